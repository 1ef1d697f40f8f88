"""Changes during a run: of its budget, its concurrency, its search space and its last race.

A change makes a new experiment, which is checked like an experiment file and used from then on. The
run keeps its first experiment and that experiment's hash. Changes of the space are stored by
parameter, so that you can search a frozen parameter again. The study decides which of the trials so
far still count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from workbench.experiment.aliases import resolve_parameters
from workbench.experiment.budget_units import describe_money, format_energy
from workbench.experiment.experiment import Experiment, read_document
from workbench.experiment.sections import PlanSettings
from workbench.experiment.space import Domain, Fixed, Float, Int, Space, describe, same_value
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import format_duration

Setting = Literal[
    "resources.concurrency",
    "budget.trials",
    "budget.time",
    "budget.gpu_time",
    "budget.energy",
    "budget.money",
    "budget.plateau",
    "confirm.best",
]
CHANGEABLE: tuple[Setting, ...] = get_args(Setting)
DURATIONS: frozenset[str] = frozenset({"budget.time", "budget.gpu_time"})
"""The settings in seconds."""
ENERGY = "budget.energy"
"""The setting in watt-hours."""
CONFIRM = "confirm.best"
"""How many of the best configurations are trained again."""
MONEY = "budget.money"
"""The setting in the currency of the price."""
SEARCH = "search"
"""The key of changes of the space among the changed settings of a run."""
_ENDS = {"low", "high"}


def change(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return the experiment with new values for settings that may change during a run.

    A new limit does not remove the others, not even the default number of trials that an experiment
    without any limit gets.

    Args:
        experiment: The experiment that the run uses so far.
        settings: New values by dotted path, from `CHANGEABLE`. A duration may be text such as `1h`.

    Raises:
        ExperimentError: If there is nothing to change, a setting cannot change, or its value is
            wrong.
    """
    if not settings:
        raise ExperimentError(
            "there is nothing to change",
            next_step=(
                "Give at least one of --concurrency, --trials, --time, --gpu-time, --energy,"
                " --money, --plateau and --search."
            ),
        )
    for path, value in settings.items():
        if path not in CHANGEABLE:
            raise ExperimentError(
                "it cannot change during a run", field=path, allowed=list(CHANGEABLE)
            )
        if value is None or isinstance(value, bool):
            raise ExperimentError(f"{value!r} is not a value", field=path, allowed="a number")
    sections: dict[str, dict[str, Any]] = {"budget": {"trials": experiment.max_configurations()}}
    for path, value in settings.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    return experiment.replace(**sections)


def describe_changes(before: Experiment, after: Experiment) -> list[str]:
    """Return each setting that differs, such as `budget.trials 20 -> 70`."""
    old, new = values_of(before), values_of(after)
    price = before.budget.price
    limits = [
        f"{path} {_write(path, old[path], price)} -> {_write(path, value, price)}"
        for path, value in new.items()
        if value != old[path]
    ]
    searched = after.search.root
    return limits + [
        f"search.{name} {describe(domain)} -> {_describe_if_any(searched.get(name))}"
        for name, domain in before.search.root.items()
        if searched.get(name) != domain
    ]


def _describe_if_any(domain: Domain | None) -> str:
    if domain is None:
        return "none"
    return describe(domain)


def _write(path: str, value: float | str | None, price: str | None) -> str:
    if value is None:
        return "none"
    return describe_amount(path, value, price)


def describe_amount(path: str, value: float | str, price: str | None) -> str:
    """Write the value of a setting with its unit. Money is in the currency of the price."""
    if path in DURATIONS:
        return format_duration(float(value))
    if path == MONEY and price is not None:
        return describe_money(float(value), price)
    if path == ENERGY:
        return format_energy(float(value))
    return str(value)


def values_of(experiment: Experiment) -> dict[str, Any]:
    """Return the values of `CHANGEABLE` by dotted path. None: there is no such limit."""
    return {
        "resources.concurrency": experiment.resources.concurrency,
        "budget.trials": experiment.max_configurations(),
        "budget.time": experiment.budget.time,
        "budget.gpu_time": experiment.budget.gpu_time,
        ENERGY: experiment.budget.energy,
        MONEY: experiment.budget.money,
        "budget.plateau": experiment.budget.plateau,
        CONFIRM: experiment.confirm.best,
    }


def merge_changes(
    experiment: Experiment, before: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all changes of a space, the new ones included, as they are stored.

    Args:
        experiment: The experiment with which the run started.
        before: The changes so far.
        given: What the user requests, by parameter: a value, a range, or choices. One end of a
            range is enough.

    Raises:
        ExperimentError: If a parameter is unknown, if the space cannot change, or if the new space
            would not be valid.
    """
    if experiment.sampler.kind.enumerates_grid or experiment.sampler.kind.keeps_notes:
        raise ExperimentError(
            f"the sampler {experiment.sampler.name} cannot continue in another space",
            field=SEARCH,
            next_step="Start a new run that learns from this one, with --warm-start.",
        )
    original = experiment.search.model_dump(mode="json")
    changes = dict(before)
    given = resolve_parameters(given, original)
    for name, wanted in given.items():
        if name not in original:
            raise ExperimentError(
                "this parameter is not searched", field=f"search.{name}", allowed=list(original)
            )
        written = changes.get(name, original[name])
        if isinstance(wanted, Mapping) and wanted and wanted.keys() <= _ENDS:
            # The other end stays. A parameter that is frozen now gets the ends of its first range.
            if not isinstance(written, Mapping) or "low" not in written:
                written = original[name]
            wanted = {**written, **wanted}
        elif not isinstance(wanted, Mapping):
            _check_frozen(name, wanted, [experiment.search.root[name], _domain(written)])
            wanted = {"value": wanted}
        changes[name] = dict(_with_conditions(wanted, experiment.search.root[name].when))
    changed = with_changes(experiment, changes)
    for name in given:
        first, now = experiment.search.root[name], changed.search.root.get(name)
        if now is not None:
            _covering_domain(name, first, now)
            _check_plan(name, first, now)
    return changes


def with_changes(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Return an experiment with a changed space.

    Parameters that can no longer exist, because their parent was frozen or narrowed, are dropped.

    Args:
        experiment: The experiment with which the run started.
        changes: All changes of its space, by parameter.

    Raises:
        ExperimentError: If the result is not a valid experiment.
    """
    document = experiment.model_dump(mode="json")
    written = {**document.get(SEARCH, {}), **changes}
    kept: dict[str, Any] = {}
    # Parents come before their children, so a parent that is not in `kept` was dropped.
    for name in experiment.search.order():
        conditions: dict[str, Any] = {}
        for parent, wanted in experiment.search.root[name].when.items():
            conditions[parent] = []
            if parent in kept:
                conditions[parent] = _possible(kept[parent], wanted)
        if all(conditions.values()):
            kept[name] = _with_conditions(written[name], conditions)
    document[SEARCH] = {name: kept[name] for name in written if name in kept}
    return read_document(document).with_payloads(experiment.payloads())


def _with_conditions(written: Any, conditions: Mapping[str, Any]) -> Any:
    if not conditions:
        return written
    return {**written, "when": conditions}


def _possible(written: Any, wanted: Any) -> list[Any]:
    """Return the values of a condition that its parent can still have."""
    if not isinstance(wanted, list):
        wanted = [wanted]
    return [value for value in wanted if _domain(written).contains(value)]


def _domain(written: Any, when: Mapping[str, Any] | None = None) -> Domain:
    """Read one parameter on its own, without its parents.

    Args:
        written: The parameter as it is stored. Its own conditions are ignored.
        when: Conditions to add afterwards. They are not checked.
    """
    if isinstance(written, Mapping):
        written = {**written, "when": {}}
    space = Space({"parameter": written})
    return space.root["parameter"].model_copy(update={"when": dict(when or {})})


def _check_frozen(name: str, value: Any, domains: Sequence[Domain]) -> None:
    """Raise an error for a frozen value that the parameter never had, which is probably a typo."""
    if not any(domain.contains(value) for domain in domains):
        raise ExperimentError(
            f"{value!r} is not one of its values",
            field=f"search.{name}",
            allowed=describe(domains[-1]),
            next_step="To freeze it outside of its range anyway, write {value: ...}.",
        )


def covering(first: Space, second: Space) -> Space:
    """Return a space with every value of two spaces of the same run.

    Args:
        first: A space with all parameters.
        second: A space with all or some of them.

    Raises:
        ExperimentError: If a parameter is a range in one space, and has values that are not numbers
            in the other.
    """
    merged = dict(first.root)
    for name, domain in first.root.items():
        if name in second.root:
            merged[name] = _covering_domain(name, domain, second.root[name])
    return first.model_copy(update={"root": merged})


def _covering_domain(name: str, first: Domain, second: Domain) -> Domain:
    """Return a domain with all values of two domains."""
    both = (first, second)
    if first == second:
        return first
    if not any(isinstance(domain, Int | Float) for domain in both):
        values = [value for domain in both for value in domain.values() or ()]
        return _domain({"choices": _distinct(values)}, first.when)
    ends: list[Any] = []
    for domain in both:
        if isinstance(domain, Int | Float):
            ends += [domain.low, domain.high]
        else:
            ends += domain.values() or ()
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise ExperimentError(
            "only numbers can replace a range of numbers",
            field=f"search.{name}",
            allowed=describe(first),
        )
    is_log = all(getattr(domain, "log", True) for domain in both) and min(ends) > 0
    kind = "float"
    if all(isinstance(end, int) for end in ends):
        kind = "int"
    written = {"low": min(ends), "high": max(ends), "log": is_log, "type": kind}
    return _domain(written, first.when)


def _distinct(values: Sequence[Any]) -> list[Any]:
    distinct: list[Any] = []
    for value in values:
        if not any(same_value(value, other) for other in distinct):
            distinct.append(value)
    return distinct


def _check_plan(name: str, before: Domain, after: Domain) -> None:
    """Raise an error for values of a plan that the run has not checked against the hardware."""
    if name not in PlanSettings.model_fields:
        return
    values: Sequence[Any] | None = after.values()
    if values is None:
        values = [getattr(after, "low", None), getattr(after, "high", None)]
    if not all(before.contains(value) for value in values):
        raise ExperimentError(
            "a parameter of the plan can only be narrowed during a run",
            field=f"search.{name}",
            allowed=describe(before),
        )


def describe_change(experiment: Experiment, name: str) -> str:
    """Describe a parameter in the changed space, such as `lr is frozen at 0.01`."""
    domain = experiment.search.root.get(name)
    if domain is None:
        return f"{name} no longer exists"
    if isinstance(domain, Fixed):
        return f"{name} is frozen at {domain.value!r}"
    return f"{name} is searched among {describe(domain)}"

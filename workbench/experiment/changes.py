"""What may change while a run is under way: its budget, its concurrency and its search space.

A change gives the experiment that is in force from then on and is checked like an experiment file.
The run keeps the experiment that it was started with, and its hash. Changes of the space are kept
by parameter, so that one that was frozen can be searched again. What becomes of the trials so far
is left to the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from workbench.experiment.aliases import resolve_parameters
from workbench.experiment.budget_units import describe_money, format_energy
from workbench.experiment.experiment import Experiment, read_document
from workbench.experiment.sections import PlanSettings
from workbench.experiment.space import Domain, Fixed, Float, Int, Space, describe, same_value
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import format_duration

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

Setting = Literal[
    "resources.concurrency",
    "budget.trials",
    "budget.time",
    "budget.gpu_time",
    "budget.energy",
    "budget.money",
    "budget.plateau",
]
CHANGEABLE: tuple[Setting, ...] = get_args(Setting)
DURATIONS: frozenset[str] = frozenset({"budget.time", "budget.gpu_time"})
"""Those in seconds."""
ENERGY = "budget.energy"
"""The one in watt-hours."""
MONEY = "budget.money"
"""The one in the currency of the price."""
SEARCH = "search"
"""The name of the changes among the settings of a run."""
_ENDS = {"low", "high"}


def change(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return the experiment with some settings changed that may change while it runs.

    A limit that is added leaves the others as they are, also the number of trials that an
    experiment without any limit gets.

    Args:
        experiment: What has been in force.
        settings: New values by dotted path, those of `CHANGEABLE`; durations such as `1h` are
            understood.

    Raises:
        ExperimentError: If there is nothing to change, a setting cannot change, or its value is
            wrong.
    """
    if not settings:
        raise ExperimentError(
            "there is nothing to change",
            next_step="Give at least one of --concurrency, --trials, --time, --gpu-time, --energy,"
            " --money, --plateau and --search.",
        )
    for path, value in settings.items():
        if path not in CHANGEABLE:
            raise ExperimentError(
                "cannot change during a run", field=path, allowed=list(CHANGEABLE)
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
        f"search.{name} {describe(domain)} ->"
        f" {describe(searched[name]) if name in searched else 'none'}"
        for name, domain in before.search.root.items()
        if searched.get(name) != domain
    ]


def _write(path: str, value: float | str | None, price: str | None) -> str:
    if value is None:
        return "none"
    return describe_amount(path, value, price)


def describe_amount(path: str, value: float | str, price: str | None) -> str:
    """Write the value of a setting with its unit, money in the currency of the price."""
    if path in DURATIONS:
        return format_duration(float(value))
    if path == MONEY and price is not None:
        return describe_money(float(value), price)
    return format_energy(float(value)) if path == ENERGY else str(value)


def values_of(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that may change, by dotted path; None for a limit that there is not."""
    return {
        "resources.concurrency": experiment.resources.concurrency,
        "budget.trials": experiment.max_configurations(),
        "budget.time": experiment.budget.time,
        "budget.gpu_time": experiment.budget.gpu_time,
        ENERGY: experiment.budget.energy,
        MONEY: experiment.budget.money,
        "budget.plateau": experiment.budget.plateau,
    }


def merge_changes(
    experiment: Experiment, before: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all changes of a space after further ones, as they are stored.

    Args:
        experiment: The experiment of the run, as it began.
        before: The changes so far.
        given: What a user requests, by parameter: a value, a range, or choices; of a range one end
            suffices.

    Raises:
        ExperimentError: If a parameter is unknown, the space would not be valid, or cannot change.
    """
    if experiment.sampler.kind.enumerates_grid or experiment.sampler.kind.keeps_notes:
        raise ExperimentError(
            f"the sampler {experiment.sampler.name} cannot continue in another space",
            field=SEARCH,
            next_step="Start another run that learns from this one: --warm-start.",
        )
    original = experiment.search.model_dump(mode="json")
    changes = dict(before)
    given = resolve_parameters(given, original)
    for name, wanted in given.items():
        if name not in original:
            raise ExperimentError(
                "this parameter is not searched", field=f"search.{name}", allowed=list(original)
            )
        written, conditions = changes.get(name, original[name]), experiment.search.root[name].when
        if isinstance(wanted, Mapping) and wanted and wanted.keys() <= _ENDS:
            has_ends = isinstance(written, Mapping) and "low" in written
            wanted = {**(written if has_ends else original[name]), **wanted}
        elif not isinstance(wanted, Mapping):
            _check_frozen(name, wanted, [experiment.search.root[name], _domain(written)])
            wanted = {"value": wanted}
        changes[name] = {**wanted, "when": conditions} if conditions else dict(wanted)
    changed = with_changes(experiment, changes)
    for name in given:
        first, now = experiment.search.root[name], changed.search.root.get(name)
        if now is not None:
            _covering_domain(name, first, now)
            _check_plan(name, first, now)
    return changes


def with_changes(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Return an experiment with a changed space.

    Parameters whose condition cannot hold any more are left out.

    Args:
        experiment: The experiment with the space that its run began with.
        changes: All changes of it, by parameter.

    Raises:
        ExperimentError: If it is no valid experiment.
    """
    document = experiment.model_dump(mode="json")
    written = {**document.get(SEARCH, {}), **changes}
    kept: dict[str, Any] = {}
    for name in experiment.search.order():
        conditions = {
            parent: _possible(kept[parent], wanted) if parent in kept else []
            for parent, wanted in experiment.search.root[name].when.items()
        }
        if all(conditions.values()):
            one = written[name]
            kept[name] = {**one, "when": conditions} if conditions else one
    document[SEARCH] = {name: kept[name] for name in written if name in kept}
    return read_document(document).with_payloads(experiment.payloads())


def _possible(written: Any, wanted: Any) -> list[Any]:
    """Return the values of a condition that its parent can still have."""
    listed = wanted if isinstance(wanted, list) else [wanted]
    return [value for value in listed if _domain(written).contains(value)]


def _domain(written: Any, when: Mapping[str, Any] | None = None) -> Domain:
    """Read one parameter by itself, with conditions that are known to be valid, or without."""
    plain = {**written, "when": {}} if isinstance(written, Mapping) else written
    return Space({"one": plain}).root["one"].model_copy(update={"when": dict(when or {})})


def _check_frozen(name: str, value: Any, domains: Sequence[Domain]) -> None:
    """Refuse to freeze a parameter at what is probably a slip of the pen."""
    if not any(domain.contains(value) for domain in domains):
        raise ExperimentError(
            f"{value!r} is not one of its values",
            field=f"search.{name}",
            allowed=describe(domains[-1]),
            next_step="Write {value: ...} to freeze it outside its range all the same.",
        )


def covering(first: Space, second: Space) -> Space:
    """Return a space that has every value of two spaces of the same run.

    Args:
        first: A space with all parameters.
        second: One with all or some of them.

    Raises:
        ExperimentError: If a parameter has a range in one and other values than numbers in the
            other.
    """
    merged = {
        name: _covering_domain(name, domain, second.root[name]) if name in second.root else domain
        for name, domain in first.root.items()
    }
    return first.model_copy(update={"root": merged})


def _covering_domain(name: str, first: Domain, second: Domain) -> Domain:
    """Return a domain with all values of two."""
    both = (first, second)
    if first == second:
        return first
    if not any(isinstance(domain, Int | Float) for domain in both):
        values = [value for domain in both for value in domain.values() or ()]
        return _domain({"choices": _distinct(values)}, first.when)
    ends: list[Any] = []
    for domain in both:
        ends += (
            [domain.low, domain.high] if isinstance(domain, Int | Float) else domain.values() or ()
        )
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise ExperimentError(
            "only numbers can replace a range of numbers",
            field=f"search.{name}",
            allowed=describe(first),
        )
    is_log = all(getattr(domain, "log", True) for domain in both) and min(ends) > 0
    is_whole = all(isinstance(end, int) for end in ends)
    written = {
        "low": min(ends),
        "high": max(ends),
        "log": is_log,
        "type": "int" if is_whole else "float",
    }
    return _domain(written, first.when)


def _distinct(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(same_value(value, other) for other in found):
            found.append(value)
    return found


def _check_plan(name: str, before: Domain, after: Domain) -> None:
    """Refuse values of a plan that were not checked against the hardware when the run started."""
    if name not in PlanSettings.model_fields:
        return
    ends = [getattr(after, "low", None), getattr(after, "high", None)]
    if not all(
        before.contains(value)
        for value in (ends if after.values() is None else after.values() or ())
    ):
        raise ExperimentError(
            "a parameter of the plan can only be narrowed during a run",
            field=f"search.{name}",
            allowed=describe(before),
        )


def describe_change(experiment: Experiment, name: str) -> str:
    """Describe what a parameter is now in the space in force, such as `lr is frozen at 0.01`."""
    domain = experiment.search.root.get(name)
    if domain is None:
        return f"{name} does not exist any more"
    if isinstance(domain, Fixed):
        return f"{name} is frozen at {domain.value!r}"
    return f"{name} is searched among {describe(domain)}"

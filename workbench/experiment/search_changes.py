"""Change the search space of a run that is under way: freeze a parameter, or shrink or widen it.

A change is kept beside the space that the run began with, by parameter, so that one that was frozen
can be searched again. What becomes of the trials so far is left to the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.experiment.aliases import resolve_parameters
from workbench.experiment.experiment import Experiment, read_document
from workbench.experiment.plan_settings import PlanSettings
from workbench.experiment.space import Domain, Fixed, Float, Int, Space, describe, same_value
from workbench.foundation.errors import ExperimentError

SEARCH = "search"
"""The name of the changes among the settings of a run."""
_ENDS = {"low", "high"}


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
                "no such parameter", field=f"search.{name}", allowed=list(original)
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

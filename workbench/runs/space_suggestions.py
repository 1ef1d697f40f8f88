"""Better search spaces for a run, and their commands: wider ranges, or fewer parameters.

How much a parameter decides is computed by `workbench.search.importance`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.experiment.actions import suggest
from workbench.experiment.changes import merge_changes, with_changes
from workbench.experiment.sections import PlanSettings
from workbench.experiment.space import Float, Int
from workbench.foundation.errors import ExperimentError, Suggestion
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import format_number, format_percent, joined_by_and
from workbench.runs.descriptions import how_to_extend

if TYPE_CHECKING:
    from workbench.store.history import History

_MIN_TRIALS = 10
"""With fewer complete trials, the best is at an end by chance too often."""
_NEAR = 0.03
"""The share of a range, or of its logarithm, that is its end."""
_MIN_VALUES = 10
"""With fewer whole numbers, the best is the first or last too often."""
_LOG_FACTOR = 10.0


def how_to_widen(run_id: str, history: History) -> Suggestion | None:
    """Return the command that widens ranges whose ends the best trial has reached, or None.

    Ends that bound the parameter itself do not count: 0 and 1, and the ends of a plan's ranges,
    which the machine sets.

    Args:
        run_id: The run.
        history: Its history.
    """
    best = history.best()
    more = _continuation(history)
    if best is None or more is None or len(history.objectives) > 1 or history.result is not None:
        return None
    if len(history.in_state("complete")) < _MIN_TRIALS:
        return None
    wider: dict[str, dict[str, float]] = {}
    for name, domain in history.in_force.search.root.items():
        value = best.params.get(name)
        if not isinstance(domain, Float | Int) or name in PlanSettings.model_fields:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        end = _wider_end(domain, value)
        if end is not None and _is_allowed(history, {**wider, name: end}):
            wider[name] = end
    if not wider:
        return None
    values = joined_by_and(f"{name}={_written(best.params[name])}" for name in wider)
    where = "is at the end of its range. A wider range"
    them = "it"
    if len(wider) > 1:
        where = "are at the ends of their ranges. Wider ranges"
        them = "them"
    lead = f"{values} {where} may hold better values. To widen {them}"
    return suggest(_verb(history), run_id, lead=lead, **more, search=wider)


def how_to_freeze(
    run_id: str, history: History, importance: Mapping[str, tuple[float, float, float]]
) -> Suggestion | None:
    """Return the command that freezes parameters that decide nothing, or None.

    They get the best trial's values.

    Args:
        run_id: The run.
        history: Its history.
        importance: The importance of its parameters, as the study computed it.
    """
    from workbench.search.importance import negligible  # it imports Optuna

    best = history.best()
    more = _continuation(history)
    searched = history.in_force.search.root
    if best is None or more is None:
        return None
    frozen = {
        name: best.params[name]
        for name in sorted(negligible(dict(importance)))
        if name in best.params and name in searched and searched[name].contains(best.params[name])
    }
    if not frozen or not _is_allowed(history, frozen):
        return None
    # Effects of several parameters together do not exceed their sum: what they share counts for
    # each of them.
    bound = format_percent(sum(importance[name][2] for name in frozen))
    verb = "decide"
    if len(frozen) == 1:
        verb = "decides"
    lead = (
        f"{joined_by_and(frozen)} {verb} at most {bound} of the variance. To search only the rest"
    )
    return suggest(_verb(history), run_id, lead=lead, **more, search=frozen)


def _verb(history: History) -> str:
    """Return the command that changes the space: a run that has ended must be extended."""
    return "extend" if history.state in FINISHED_RUN_STATES else "set"


def _continuation(history: History) -> dict[str, Any] | None:
    """Return the further arguments of that command, or None if the run cannot be continued."""
    if history.state not in FINISHED_RUN_STATES:
        return {}
    return how_to_extend(history)


def _wider_end(domain: Float | Int, value: float) -> dict[str, float] | None:
    """Return the end of a range beyond that which a value has reached.

    None if it is inside the range.
    """
    low, high = float(domain.low), float(domain.high)
    if not (low < high and low <= value <= high):
        return None
    if isinstance(domain, Int) and len(domain.values()) < _MIN_VALUES:
        return None
    at, first, last = value, low, high
    if domain.log:
        at, first, last = map(math.log, (value, low, high))
    place = (at - first) / (last - first)
    if place >= 1 - _NEAR and high not in (0.0, 1.0):
        end = high + (high - low)
        if domain.log:
            end = high * _LOG_FACTOR
        if low >= 0 and high < 1:
            end = min(end, 1.0)  # a range between 0 and 1 is likely a share
        return {"high": _like(domain, end)}
    if place <= _NEAR and low not in (0.0, 1.0):
        end = low - (high - low)
        if domain.log:
            end = low / _LOG_FACTOR
        if low > 0:  # a positive parameter stays positive, a count stays at least 1
            end = max(end, 1.0 if isinstance(domain, Int) else 0.0)
        return {"low": _like(domain, end)}
    return None


def _like(domain: Float | Int, end: float) -> float:
    if isinstance(domain, Int):
        return round(end)
    return float(f"{end:.6g}")


def _written(value: Any) -> str:
    if isinstance(value, float):
        return format_number(value)
    return str(value)


def _is_allowed(history: History, changes: Mapping[str, Any]) -> bool:
    """Return whether the sampler and the settings of a run allow another space."""
    try:
        with_changes(
            history.experiment, merge_changes(history.experiment, history.search_changes, changes)
        )
    except ExperimentError:
        return False
    return True

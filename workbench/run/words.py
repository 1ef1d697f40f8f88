"""Numbers, configurations and plans in words, as a terminal and a page both write them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.advisor.quantities import format_duration
from workbench.events import TrialState

if TYPE_CHECKING:
    from workbench.history import History

_STATES: tuple[TrialState, ...] = ("complete", "running", "waiting", "pruned", "stopped", "failed")


def format_number(value: float) -> str:
    """Write a number in as few digits as a person compares."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    return (
        f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 1e4 else f"{value:.4f}".rstrip("0").rstrip(".")
    )


def format_value(value: Any) -> str:
    """Write the value of a parameter."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def format_params(params: Mapping[str, Any]) -> str:
    """Write a configuration as `name=value` words."""
    return " ".join(f"{name}={format_value(value)}" for name, value in params.items())


def format_plan(plan: Mapping[str, Any]) -> str:
    """Write how a trial uses hardware, its global batch in full; "" where none was made."""
    if "micro_batch" not in plan or "global_batch" not in plan:
        return f"{plan['workers']} workers" if plan.get("workers", 1) != 1 else ""
    batch = "global batch {global_batch} = {micro_batch} x {accumulation} accumulated x {workers} worker"
    batch += "s" if plan["workers"] != 1 else ""
    words = [plan[name] for name in ("strategy", "precision") if name in plan]
    if plan.get("recompute", "none") != "none":
        words.append("blocks recomputed")
    return ", ".join([batch.format(**plan), *words])


def format_counts(history: History) -> str:
    """Write how many trials are in which state; "" where there are none."""
    return ", ".join(f"{len(found)} {state}" for state in _STATES if (found := history.in_state(state)))


def format_numbers(numbers: Sequence[int], most: int = 8) -> str:
    """Write which trials: trial 3, or trials 1, 2, 5, ..."""
    named = ", ".join(str(number) for number in numbers[:most]) + (", ..." if len(numbers) > most else "")
    return f"trial{'' if len(numbers) == 1 else 's'} {named}"


def format_values(values: Mapping[str, float]) -> str:
    """Write metrics as `name=value` words."""
    return " ".join(f"{name}={format_number(value)}" for name, value in values.items())


def first_line(text: str | None) -> str:
    """Return the first line of a message that is not empty."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "no message")


def format_age(seconds: float) -> str:
    """Write how long ago something was."""
    if seconds < 60:
        return "just now"
    for unit, unit_s in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= unit_s:
            count = int(seconds // unit_s)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    raise AssertionError(seconds)


def plain(value: Any) -> Any:
    """Return a document that strict readers of JSON take: what is no finite number is text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def how_to_extend(history: History) -> tuple[str, str] | None:
    """Return the limit that ended a run and by how much more it would go on; None where it would not."""
    budget = history.in_force.budget
    if history.replay_of is not None or history.reason in ("exhausted", "target"):
        return None
    if history.reason == "time" and budget.time is not None:
        return "--time", format_duration(round(budget.time))
    if history.reason == "plateau" and budget.plateau is not None:
        return "--plateau", str(budget.plateau)
    return "--trials", "10"

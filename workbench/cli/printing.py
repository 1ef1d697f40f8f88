"""Words, numbers and documents as they are printed."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from workbench.advisor.quantities import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from workbench.advisor.memory import MemoryForecast

_WIDE = 400
_COLOURS = {
    "complete": "green",
    "running": "cyan",
    "stopping": "yellow",
    "waiting": "bright_black",
    "pruned": "bright_black",
    "stopped": "yellow",
    "failed": "red",
    "lost": "red",
}


def print_json(document: Any) -> None:
    """Print one document that strict parsers read: what is no finite number is text."""
    click.echo(json.dumps(_plain(document), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def print_error(message: str) -> None:
    """Print what went wrong, on stderr."""
    click.secho(f"error: {message}", err=True, fg="red")


def print_note(message: str) -> None:
    """Print what a person should know, on stderr."""
    click.secho(f"note: {message}", err=True, fg="yellow")


def hide_password(url: str) -> str:
    """Return the URL of a store as it may be shown."""
    return re.sub(r"(://[^:@/]*):[^@/]*@", r"\1:***@", url)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console; where no terminal is, its lines are long rather than broken."""
    from rich.console import Console

    file = sys.stderr if stderr else sys.stdout
    return Console(file=file, width=None if file.isatty() else _WIDE, highlight=False, soft_wrap=False)


def colour_of(state: str) -> str:
    """Return the colour in which a state of a run or trial is written."""
    return _COLOURS.get(state, "default")


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
    batch = "global batch {global_batch} = {micro_batch} x {accumulation} accumulated x {workers} workers"
    words = [plan[name] for name in ("strategy", "precision") if name in plan]
    if plan.get("recompute", "none") != "none":
        words.append("blocks recomputed")
    return ", ".join([batch.format(**plan), *words])


def format_numbers(numbers: Sequence[int], most: int = 8) -> str:
    """Write which trials: trial 3, or trials 1, 2, 5, ..."""
    named = ", ".join(str(number) for number in numbers[:most]) + (", ..." if len(numbers) > most else "")
    return f"trial{'' if len(numbers) == 1 else 's'} {named}"


def describe_memory(forecast: MemoryForecast) -> str:
    """Say what a worker will hold, of what that consists, and what would fit."""
    step, law = forecast.step, forecast.law
    parts = {"parameters": step.parameters_bytes, "gradients": step.gradients_bytes}
    parts["optimizer"] = step.optimizer_bytes
    told = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
    fits = "it fits" if forecast.fits else "it does not fit"
    lines = [
        "Memory of a worker, estimated from shapes alone, beside what Python and torch take:",
        f"  {format_bytes(forecast.peak_bytes)} with {format_plan(forecast.plan)}",
        f"  {told}, the rest activations; each sample adds {format_bytes(law.per_sample_bytes)}",
        f"  {fits} the {format_bytes(forecast.limit_bytes)} that a {forecast.device} worker has here; "
        f"the largest micro batch that does: {forecast.largest_micro_batch:,}",
    ]
    return "\n".join([*lines, f"  looked at {format_params(forecast.params)}"] if forecast.params else lines)


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

"""The runs of another tool, as its reader returns them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from workbench.experiment.goals import Goal
from workbench.foundation.errors import DataError

OldState = Literal["complete", "pruned", "stopped", "failed", "running"]
RUNNING = "still running, so import it again when it has ended"
DELETED = "deleted"
_WHOLE = re.compile(r"[+-]?(?:0|[1-9]\d*)")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SEED = re.compile(r"(?:^|[._-])(?:seed|random_state)$", re.IGNORECASE)
_TRUTH = {"true": True, "false": False}
_MISSING = ("", "null")
_MAX_DEPTH = 8
_EXACT = 2**53
"""From here on, a floating-point number no longer tells steps apart."""
_WRITTEN_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""How JSON holds what it has no number for."""


class Point(NamedTuple):
    """One value of a metric."""

    step: int
    metric: str
    value: float
    time_unix_s: float | None = None


@dataclass
class OldRun:
    """One training.

    Attributes:
        key: What identifies it wherever its files are, unlike all other runs of the tool.
        name: Its name for people.
        state: How it ended.
        params: Its hyper-parameters by name.
        metrics: The names of its metrics.
        read_points: Returns its values in the order of their steps. Called at most once.
        results: Final values that have no step, by metric.
        begun_unix_s: When it started, or None.
        ended_unix_s: When it ended, or None.
        message: Why it failed, or None.
    """

    key: str
    name: str
    state: OldState
    params: dict[str, JsonValue]
    metrics: Iterable[str] = ()
    read_points: Callable[[], list[Point]] = list
    results: dict[str, float] = field(default_factory=dict)
    begun_unix_s: float | None = None
    ended_unix_s: float | None = None
    message: str | None = None


@dataclass
class OldRuns:
    """Runs that belong together: a project, a study, an experiment, or a file.

    Attributes:
        tool: The tool that wrote them.
        place: Where they were read, as an absolute path.
        source: Their name in the tool.
        runs: The runs.
        objectives: The metrics and goals that the tool itself has, the first one first.
        search: The domains that the tool itself has, as an experiment writes them.
        left_out: How often something was not taken, by the reason. Reading points adds to it.
        notes: What was decided about some of them, and for how many.
        close: Closes the files. Called when all points are read.
    """

    tool: str
    place: str
    source: str
    runs: list[OldRun]
    objectives: list[tuple[str, Goal]] = field(default_factory=list)
    search: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    close: Callable[[], None] = lambda: None


def parse_text(text: str) -> JsonValue:
    """Return the value that a tool has written as text: a number, a truth value or the text.

    A number keeps its text if that says more, as in `007`.

    Args:
        text: The text.

    Example:
        >>> from workbench.runs.importing.old_runs import parse_text
        >>> [parse_text(text) for text in ("64", "1e-3", "True", "007", "adam")]
        [64, 0.001, True, '007', 'adam']
    """
    plain = text.strip()
    if plain in _MISSING or plain == "None":
        return None
    if plain.lower() in _TRUTH:
        return _TRUTH[plain.lower()]
    if _WHOLE.fullmatch(plain):
        return int(plain)
    if _NUMBER.fullmatch(plain) and not re.match(r"[+-]?0\d", plain):
        value = float(plain)
        return value if math.isfinite(value) else plain
    return text


def parse_number(text: str | float | None) -> float | None:
    """Return a number of a metric, or None. NaN and infinity are numbers.

    Args:
        text: A number, or its text in Python, JavaScript or JSON.
    """
    if isinstance(text, bool) or text is None:
        return None
    if isinstance(text, int | float):
        return _as_float(text)
    try:
        return None if "_" in text else float(text)  # Python reads 0.9_1 as 0.91
    except (TypeError, ValueError):
        return None


def are_numbers(texts: Collection[str]) -> bool:
    """Return whether `parse_number` reads all of some texts, in much less time than one by one."""
    try:
        deque(map(float, texts), maxlen=0)
    except ValueError:
        return False
    return "_" not in "".join(texts)


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def is_seed(name: str) -> bool:
    """Return whether a parameter is a seed. Trainings that differ only in it are repeats."""
    return _SEED.search(name) is not None


def whole_step(written: object) -> int | None:
    """Return a step, or None if it is no whole number.

    Args:
        written: A number, or the text of a whole number.

    Example:
        >>> from workbench.runs.importing.old_runs import whole_step
        >>> [whole_step(step) for step in (3, 3.0, "3", 0.5, "1.0", None)]
        [3, 3, 3, None, None, None]
    """
    if isinstance(written, str):
        return whole_step(int(written)) if _WHOLE.fullmatch(written) else None
    if isinstance(written, bool) or not isinstance(written, int | float):
        return None
    return int(written) if abs(written) < _EXACT and written == int(written) else None


def count_steps(steps: Iterable[float]) -> dict[float, int]:
    """Return the whole step for each step: itself, or its place among all if some are fractional.

    Args:
        steps: The steps of all runs, such as the epochs 0.5, 1.0 and 1.5. What is not finite is
            left out.

    Example:
        >>> from workbench.runs.importing.old_runs import count_steps
        >>> count_steps([1.5, 0.5, 1.0])
        {0.5: 0, 1.0: 1, 1.5: 2}
    """
    ordered = sorted({step for step in steps if abs(step) < _EXACT})
    if all(float(step).is_integer() for step in ordered):
        return {step: int(step) for step in ordered}
    return {step: place for place, step in enumerate(ordered)}


def flatten(
    document: Mapping[str, Any], prefix: str = "", *, separator: str = "."
) -> dict[str, Any]:
    """Return nested values by their path. Lists stay values.

    Args:
        document: Values by name.
        prefix: What the names start with.
        separator: What is between the parts of a path.

    Example:
        >>> from workbench.runs.importing.old_runs import flatten
        >>> flatten({"model": {"width": 8}, "layers": [1, 2]})
        {'model.width': 8, 'layers': [1, 2]}
    """
    flat: dict[str, Any] = {}
    for name, value in document.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and path.count(separator) < _MAX_DEPTH:
            flat |= flatten(value, f"{path}{separator}", separator=separator)
        else:
            flat[path] = value
    return flat


def numbers_of(document: Mapping[str, Any], *, separator: str = ".") -> dict[str, float]:
    """Return the numbers among nested values, by their path."""
    numbers: dict[str, float] = {}
    for name, value in flatten(document, separator=separator).items():
        is_number = isinstance(value, int | float) or value in _WRITTEN_NUMBERS
        if is_number and (number := parse_number(value)) is not None:
            numbers[name] = number
    return numbers


def unix_s(written: str | float | datetime | None) -> float | None:
    """Return a time in seconds since 1970, or None if it cannot be read.

    Args:
        written: A date and time in ISO format, in UTC unless it says otherwise, or seconds.
    """
    if isinstance(written, int | float) and not isinstance(written, bool):
        return float(written)
    try:
        if isinstance(written, str):
            written = datetime.fromisoformat(written.replace("Z", "+00:00"))
    except ValueError:
        return None
    if not isinstance(written, datetime):
        return None
    if written.tzinfo is None:
        written = written.replace(tzinfo=timezone.utc)
    return written.timestamp()


def key_of(*parts: object) -> str:
    """Return a key from what identifies a run."""
    text = json.dumps(parts, default=str, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def read_json_file(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", allowed="a JSON file") from error

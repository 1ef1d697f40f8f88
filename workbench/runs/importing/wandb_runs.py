"""Reads runs of Weights & Biases: the folder `wandb`, or a folder of one run.

Each run has a log, `run-ID.wandb`, whether or not it was online. A project becomes a run, and a
sweep of it another one. Histories that were exported as tables are read by `tables`.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.runs.importing.old_runs import (
    OldRun,
    OldRuns,
    OldState,
    Point,
    flatten,
    numbers_of,
    whole_step,
)
from workbench.training.programs.wandb_files import WandbLog
from workbench.training.programs.written_metrics import fields_of

# Kinds of records, and fields of a run.
_HISTORY, _SUMMARY, _CONFIG, _RUN, _EXIT = 2, 3, 5, 17, 18
_RUN_ID, _ENTITY, _PROJECT, _RUN_CONFIG, _DISPLAY_NAME, _SWEEP, _START = 1, 2, 3, 4, 8, 12, 17
_UPDATE, _REMOVE = 1, 2
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
_OWN = "_"


@dataclass
class _Read:
    """What the log of one run says."""

    texts: dict[int, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    begun_unix_s: float | None = None
    exit_code: int | None = None

    @property
    def state(self) -> OldState:
        """A log without an exit code was cut off, because the process was killed."""
        if self.exit_code is None:
            return "stopped"
        return "complete" if self.exit_code == 0 else "failed"


def find_wandb_logs(folder: Path) -> list[Path]:
    """Return the logs of runs below a folder, at the depths at which wandb writes them."""
    patterns = ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb", "*/wandb/*run-*/*.wandb")
    paths = {path.resolve() for pattern in patterns for path in folder.glob(pattern)}
    return sorted(paths)


def read_wandb_folder(folder: Path) -> list[OldRuns]:
    """Read the runs of a folder that wandb has written.

    Args:
        folder: The folder `wandb`, one that contains it, or that of one run.
    """
    groups: dict[str, OldRuns] = {}
    broken: Counter[str] = Counter()
    for path in find_wandb_logs(folder):
        read = _read(path)
        if _RUN_ID not in read.texts:
            broken["log without a run"] += 1
            continue
        source = read.texts.get(_PROJECT) or "wandb"
        if sweep := read.texts.get(_SWEEP):
            source += f" (sweep {sweep})"
        group = groups.setdefault(source, OldRuns("wandb", str(folder.absolute()), source, []))
        group.runs.append(_run(read, group.left_out))
    if broken:
        first = next(iter(groups.values()), None)
        if first is None:
            first = groups["wandb"] = OldRuns("wandb", str(folder.absolute()), "wandb", [])
        first.left_out += broken
    return list(groups.values())


def _read(path: Path) -> _Read:
    read = _Read()
    log = WandbLog(path)
    while records := list(log.records()):
        for record in records:
            try:
                _apply(read, record)
            except (ValueError, IndexError):  # a kind of record that this version does not know
                continue
    return read


def _apply(read: _Read, record: bytes) -> None:
    for kind, content in fields_of(record):
        if not isinstance(content, bytes):
            continue
        if kind == _HISTORY:
            read.rows.append(_items(content, 1))
        elif kind == _SUMMARY:
            read.summary |= _items(content, _UPDATE)
        elif kind == _CONFIG:
            _change_config(read, content)
        elif kind == _RUN:
            _apply_run(read, content)
        elif kind == _EXIT:
            codes = [value for number, value in fields_of(content) if number == 1]
            read.exit_code = int(codes[0]) if codes else 0


def _apply_run(read: _Read, content: bytes) -> None:
    for number, value in fields_of(content):
        if not isinstance(value, bytes):
            continue
        if number in (_RUN_ID, _ENTITY, _PROJECT, _DISPLAY_NAME, _SWEEP):
            read.texts[number] = value.decode(errors="replace")
        elif number == _RUN_CONFIG:
            _change_config(read, value)
        elif number == _START:
            parts = {inner: item for inner, item in fields_of(value) if isinstance(item, int)}
            read.begun_unix_s = parts.get(1, 0) + parts.get(2, 0) / 1e9


def _change_config(read: _Read, content: bytes) -> None:
    for name, value in _items(content, _UPDATE).items():
        if not name.startswith("_wandb"):
            read.config[name] = value
    for name in _items(content, _REMOVE):
        read.config.pop(name, None)


def _items(content: bytes, field_number: int) -> dict[str, Any]:
    """Return the values of a message with items, each with a key and its value as JSON."""
    items: dict[str, Any] = {}
    for number, item in fields_of(content):
        if number != field_number or not isinstance(item, bytes):
            continue
        names: list[str] = []
        written = b"null"
        for inner, value in fields_of(item):
            if isinstance(value, bytes) and inner in (_KEY, _NESTED_KEY):
                names.append(value.decode(errors="replace"))
            elif isinstance(value, bytes) and inner == _VALUE_JSON:
                written = value
        items[".".join(filter(None, names))] = json.loads(written)
    return items


def _run(read: _Read, left_out: Counter[str]) -> OldRun:
    texts = read.texts
    last_unix_s = max((_time(row) or 0.0 for row in read.rows), default=0.0) or None
    logged = {name for row in read.rows for name in numbers_of(_without_own(row))}
    config: dict[str, JsonValue] = flatten(read.config)
    return OldRun(
        key="/".join([texts.get(_ENTITY, ""), texts.get(_PROJECT, ""), texts[_RUN_ID]]),
        name=texts.get(_DISPLAY_NAME) or texts[_RUN_ID],
        state=read.state,
        params=config,
        metrics=sorted(logged),
        read_points=partial(_points, read.rows, left_out),
        results={
            name: value
            for name, value in numbers_of(_without_own(read.summary)).items()
            if name not in logged
        },
        begun_unix_s=read.begun_unix_s,
        ended_unix_s=last_unix_s or read.begun_unix_s,
        message=f"exit code {read.exit_code}" if read.exit_code else None,
    )


def _time(row: dict[str, Any]) -> float | None:
    value = row.get("_timestamp")
    return float(value) if isinstance(value, int | float) else None


def _without_own(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(_OWN)}


def _points(rows: list[dict[str, Any]], left_out: Counter[str]) -> list[Point]:
    points: list[Point] = []
    for number, row in enumerate(rows):
        own = _without_own(row)
        numbers = numbers_of(own)
        step = whole_step(row.get("_step"))
        step = number if step is None else step
        points += [Point(step, name, value, _time(row)) for name, value in numbers.items()]
        if others := len(flatten(own)) - len(numbers):
            left_out["values that are no numbers, such as images and tables"] += others
    return points

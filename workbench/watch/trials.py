"""The table of trials as one front end sees it: a window of it, sorted and filtered here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from workbench.errors import ExperimentError
from workbench.history import History, Trial
from workbench.run.words import format_value
from workbench.watch.protocol import TableColumn, TableLook, TablePicture, TrialRow
from workbench.watch.tail import RunTail

_COURSE: dict[str, tuple[str, Callable[[Trial], Any]]] = {
    "step": ("step", lambda trial: trial.last_step),
    "epoch": ("epoch", lambda trial: trial.last_epoch),
    "duration_s": ("seconds", lambda trial: duration_s(trial)),
    "samples_per_s": ("samples/s", lambda trial: trial.samples_per_s),
    "attempts": ("attempts", lambda trial: trial.attempts),
}
_MAX_CELL = 120


def table_picture(tail: RunTail, look: TableLook) -> TablePicture:
    """Return the window of the table of trials that a front end shows.

    Args:
        tail: The run, locked by the caller.
        look: Which window, in which order.

    Raises:
        ExperimentError: If there is no such column to sort by.
    """
    history = tail.data.history
    columns = _columns(history, tail.data.series.metrics)
    keys = [column.key for column in columns]
    if look.sort not in keys:
        raise ExperimentError(f"there is no column {look.sort!r}", field="table.sort", allowed=keys)
    best = history.best()
    found = [trial for trial in history.trials.values() if _matches(trial, look)]
    found.sort(key=lambda trial: _order(_value(trial, look.sort), look.descending), reverse=look.descending)
    window = found[look.offset : look.offset + look.limit]
    return TablePicture(
        columns=tuple(columns),
        rows=tuple(
            TrialRow(
                number=trial.number,
                state=trial.state,
                reason=trial.reason,
                is_best=best is not None and best.number == trial.number,
                cells=tuple(_cell(_value(trial, key)) for key in keys),
            )
            for trial in window
        ),
        offset=look.offset,
        total=len(found),
    )


def duration_s(trial: Trial) -> float | None:
    """Return for how long a trial has been trained, over its attempts; None where it has not begun."""
    if trial.started_unix_s is None:
        return None
    return trial.trained_s + max(0.0, trial.heard_unix_s - trial.attempt_unix_s)


def _columns(history: History, metrics: list[str]) -> list[TableColumn]:
    params = dict.fromkeys(history.experiment.search.root)
    params |= dict.fromkeys(name for trial in history.trials.values() for name in trial.params)
    return [
        TableColumn(key="number", label="trial", kind="number"),
        TableColumn(key="state", label="state", kind="state"),
        *(TableColumn(key=f"value:{name}", label=name, kind="value") for name in metrics),
        *(TableColumn(key=f"param:{name}", label=name, kind="param") for name in params),
        *(TableColumn(key=key, label=label, kind="course") for key, (label, _) in _COURSE.items()),
    ]


def _value(trial: Trial, key: str) -> Any:
    if key == "number":
        return trial.number
    if key == "state":
        return trial.state if trial.reason is None else f"{trial.state} ({trial.reason})"
    kind, _, name = key.partition(":")
    if kind == "value":
        return trial.values.get(name, trial.last_values.get(name))
    return trial.params.get(name) if kind == "param" else _COURSE[key][1](trial)


def _order(value: Any, descending: bool) -> tuple[int, float, str]:
    """Order numbers before words; what is missing or no number comes last either way."""
    last = -1 if descending else 2
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return last, 0.0, ""
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, format_value(value)


def _matches(trial: Trial, look: TableLook) -> bool:
    if look.states and trial.state not in look.states:
        return False
    words = look.text.casefold().split()
    if not words:
        return True
    told = " ".join(
        [str(trial.number), trial.state, trial.reason or "", trial.message or "",
         *(f"{name}={format_value(value)}" for name, value in trial.params.items())]
    ).casefold()  # fmt: skip
    return all(word in told for word in words)


def _cell(value: Any) -> float | int | bool | str | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = format_value(value)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"

"""The table of trials: the window that one front end shows, sorted and filtered here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from workbench.errors import ArgumentError
from workbench.formatting import format_value
from workbench.history import History, Trial
from workbench.live_feed.protocol import TableColumn, TableQuery, TrialRow, TrialTable
from workbench.live_feed.run_tail import RunTail

_PROGRESS: dict[str, tuple[str, Callable[[Trial], Any]]] = {
    "step": ("step", lambda trial: trial.last_step),
    "epoch": ("epoch", lambda trial: trial.last_epoch),
    "duration_s": ("seconds", lambda trial: duration_s(trial)),
    "samples_per_s": ("samples/s", lambda trial: trial.samples_per_s),
    "attempts": ("attempts", lambda trial: trial.attempts),
}
_MAX_CELL = 120


def trial_table(tail: RunTail, query: TableQuery) -> TrialTable:
    """Return the window of the table of trials that a front end shows.

    Args:
        tail: The run, locked by the caller.
        query: The window, order and filter.

    Raises:
        ArgumentError: If the column to sort by does not exist.
    """
    history = tail.data.history
    columns = _columns(history, tail.data.series.metrics)
    keys = [column.key for column in columns]
    if query.sort not in keys:
        raise ArgumentError(f"there is no column {query.sort!r}", field="table.sort", allowed=keys)
    best = _best_numbers(history)
    found = [trial for trial in history.trials.values() if _matches(trial, query)]
    found.sort(
        key=lambda trial: _order(_value(trial, query.sort), query.descending), reverse=query.descending
    )
    window = found[query.offset : query.offset + query.limit]
    return TrialTable(
        columns=tuple(columns),
        rows=tuple(
            TrialRow(
                number=trial.number,
                state=trial.state,
                reason=trial.reason,
                is_best=trial.number in best,
                cells=tuple(_cell(_value(trial, key)) for key in keys),
            )
            for trial in window
        ),
        offset=query.offset,
        total=len(found),
    )


def _best_numbers(history: History) -> set[int]:
    """Return the best trial, or with several objectives those on the front."""
    if len(history.objectives) > 1:
        return {trial.number for trial in history.front()}
    best = history.best()
    return set() if best is None else {best.number}


def duration_s(trial: Trial) -> float | None:
    """Return the training time of a trial over all attempts; None if it has not started."""
    return trial.duration_s


def _columns(history: History, metrics: list[str]) -> list[TableColumn]:
    params = dict.fromkeys(history.experiment.search.root)
    params |= dict.fromkeys(name for trial in history.trials.values() for name in trial.params)
    return [
        TableColumn(key="number", label="trial", kind="number"),
        TableColumn(key="state", label="state", kind="state"),
        *(TableColumn(key=f"value:{name}", label=name, kind="value") for name in metrics),
        *(TableColumn(key=f"param:{name}", label=name, kind="param") for name in params),
        *(TableColumn(key=key, label=label, kind="progress") for key, (label, _) in _PROGRESS.items()),
    ]


def _value(trial: Trial, key: str) -> Any:
    if key == "number":
        return trial.number
    if key == "state":
        return trial.state if trial.reason is None else f"{trial.state} ({trial.reason})"
    kind, _, name = key.partition(":")
    if kind == "value":
        return trial.values.get(name, trial.last_values.get(name))
    return trial.params.get(name) if kind == "param" else _PROGRESS[key][1](trial)


def _order(value: Any, descending: bool) -> tuple[int, float, str]:
    """Return a sort key: numbers before text, missing values and NaN always last."""
    last = -1 if descending else 2
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return last, 0.0, ""
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, format_value(value)


def _matches(trial: Trial, query: TableQuery) -> bool:
    if query.states and trial.state not in query.states:
        return False
    words = query.text.casefold().split()
    if not words:
        return True
    searched = " ".join(
        [str(trial.number), trial.state, trial.reason or "", trial.message or "",
         *(f"{name}={format_value(value)}" for name, value in trial.params.items())]
    ).casefold()  # fmt: skip
    return all(word in searched for word in words)


def _cell(value: Any) -> float | int | bool | str | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = format_value(value)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"

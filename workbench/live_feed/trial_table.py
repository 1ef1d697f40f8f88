"""The table of trials: the window that one front end shows, sorted and filtered here."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection
from typing import Any

from workbench.errors import ArgumentError
from workbench.formatting import format_value
from workbench.history import History, Trial
from workbench.history.failures import describe_state, reason_of
from workbench.history.lineage import describe_source, name_of_source
from workbench.live_feed.metric_units import shown_as
from workbench.live_feed.protocol import TableColumn, TableQuery, TrialRow, TrialTable
from workbench.live_feed.run_tail import RunTail
from workbench.live_feed.trial_filter import matches, read_filter

_PROGRESS: dict[str, tuple[str, Callable[[Trial], Any]]] = {
    "step": ("step", lambda trial: trial.last_step),
    "epoch": ("epoch", lambda trial: trial.last_epoch),
    "duration_s": ("seconds", lambda trial: duration_s(trial)),
    "samples_per_s": ("samples/s", lambda trial: trial.samples_per_s),
    "attempts": ("attempts", lambda trial: trial.attempts),
    "member": ("member", lambda trial: trial.segment and trial.segment.member),
    "continues": ("continues", lambda trial: describe_source(trial) or None),
}
_MAX_CELL = 120
RANK = "rank"
"""Sorts by how good trials are: the best first, then those without a valid result."""


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
    found = _selected(history, columns, query)
    leading, best = _best_numbers(history), history.best() if len(history.objectives) == 1 else None

    def row(trial: Trial, num_repeats: int = 1) -> TrialRow:
        named = history.mean_values(trial).items() if num_repeats > 1 else ()
        means = {f"value:{name}": shown_as(history.experiment, name)[1] * value for name, value in named}
        return TrialRow(
            number=trial.number, state=trial.state, reason=reason_of(history, trial),
            is_best=trial.number in leading, is_chosen=trial.number == history.chosen_trial,
            num_repeats=num_repeats,
            cells=tuple(_cell(means.get(key, _value(history, trial, key))) for key in keys),
        )  # fmt: skip

    return TrialTable(
        columns=tuple(columns),
        rows=tuple(row(trial) for trial in found[query.offset : query.offset + query.limit]),
        offset=query.offset,
        total=len(found),
        best=None if best is None else row(best, len(history.repeats_of(best))),
    )


def trials_as_csv(tail: RunTail, query: TableQuery) -> str:
    """Return all trials that match, as CSV with a line of names.

    Args:
        tail: The run, locked by the caller.
        query: The order, the filter and the columns; its window is ignored.

    Raises:
        ArgumentError: As in `trial_table`.
    """
    history = tail.data.history
    columns = _columns(history, tail.data.series.metrics)
    chosen = {column.key: column for column in columns}
    if query.columns:
        wanted = dict.fromkeys(["number", "state", *query.columns])
        chosen = {key: chosen[key] for key in wanted if key in chosen}
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_safe(column.label) for column in chosen.values())
    for trial in _selected(history, columns, query):
        writer.writerow(_safe(_value(history, trial, key)) for key in chosen)
    return text.getvalue()


def matching_trials(tail: RunTail, text: str) -> list[int]:
    """Return the numbers of the trials that match a filter.

    Args:
        tail: The run, not locked.
        text: The text of the filter.

    Raises:
        ArgumentError: If the filter cannot be read.
    """
    tail.catch_up()
    with tail.lock:
        history = tail.data.history
        columns = _columns(history, tail.data.series.metrics)
        return [trial.number for trial in _selected(history, columns, TableQuery(text=text))]


def _selected(history: History, columns: list[TableColumn], query: TableQuery) -> list[Trial]:
    """Return the trials that match a query, in its order."""
    keys = [column.key for column in columns]
    if query.sort not in (RANK, *keys):
        raise ArgumentError(f"there is no column {query.sort!r}", field="table.sort", allowed=[RANK, *keys])
    names = {column.label.casefold(): column.key for column in reversed(columns)}
    names |= {column.label: column.key for column in reversed(columns)}
    # A filter names a column in one word.
    names |= {column.key.partition(":")[2]: column.key for column in columns if " " in column.label}
    words, comparisons = read_filter(query.text, names)
    found = [
        trial
        for trial in history.trials.values()
        if (not query.states or trial.state in query.states)
        and all(one.holds(_compared(history, trial, one.key)) for one in comparisons)
        and (not words or matches(words, _searched(history, trial)))
    ]
    if query.sort == RANK:
        places = {trial.number: place for place, trial in enumerate(history.ranked())}
        return sorted(found, key=lambda trial: (places.get(trial.number, len(places)), trial.number))
    found.sort(
        key=lambda trial: _order(_value(history, trial, query.sort), query.descending),
        reverse=query.descending,
    )
    return found


def _best_numbers(history: History) -> set[int]:
    """Return the trials of the best configuration, or with several objectives those on the front."""
    if len(history.objectives) > 1:
        return {trial.number for trial in history.front()}
    best = history.best()
    return set() if best is None else {trial.number for trial in history.repeats_of(best)}


def duration_s(trial: Trial) -> float | None:
    """Return the training time of a trial over all attempts; None if it has not started."""
    return trial.duration_s


def _columns(history: History, metrics: list[str]) -> list[TableColumn]:
    params = dict.fromkeys(history.experiment.search.root)
    params |= dict.fromkeys(name for trial in history.trials.values() for name in trial.params)
    progress = {key: label for key, (label, _) in _PROGRESS.items()} | {"continues": name_of_source(history)}
    taken = {"trial", "state", *progress.values()}

    def name_apart(kind: str, name: str, others: Collection[str]) -> str:  # as the table in Python does
        return f"{kind}.{name}" if name in taken or name in others else name

    columns = [
        TableColumn(key="number", label="trial", kind="number"),
        TableColumn(key="state", label="state", kind="state"),
        *(TableColumn(key=f"value:{name}", kind="value", goal=history.goal_of(name),
                      label=name_apart("values", shown_as(history.experiment, name)[0], params))
          for name in metrics),
        *(TableColumn(key=f"param:{name}", label=name_apart("params", name, metrics), kind="param")
          for name in params),
        *(TableColumn(key=key, label=label, kind="progress") for key, label in progress.items()),
    ]  # fmt: skip
    trials = history.trials.values()
    return [
        column.model_copy(
            update={"is_empty": all(_value(history, trial, column.key) is None for trial in trials)}
        )
        for column in columns
    ]


def _value(history: History, trial: Trial, key: str) -> Any:
    if key == "number":
        return trial.number
    if key == "state":
        return describe_state(history, trial)
    kind, _, name = key.partition(":")
    if kind == "value":
        found = trial.values.get(name, trial.last_values.get(name))
        return None if found is None else shown_as(history.experiment, name)[1] * found
    return trial.params.get(name) if kind == "param" else _PROGRESS[key][1](trial)


def _order(value: Any, descending: bool) -> tuple[int, float, str]:
    """Return a sort key: numbers before text, missing values and NaN always last."""
    last = -1 if descending else 2
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return last, 0.0, ""
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, format_value(value)


def _compared(history: History, trial: Trial, key: str) -> Any:
    """Return what a filter compares: a state without its reason."""
    return trial.state if key == "state" else _value(history, trial, key)


def _searched(history: History, trial: Trial) -> str:
    return " ".join(
        [str(trial.number), trial.state, reason_of(history, trial) or "", trial.message or "",
         *(f"{name}={format_value(value)}" for name, value in trial.params.items())]
    )  # fmt: skip


def _safe(value: Any) -> Any:
    """Return a value for a cell of CSV: text that a spreadsheet would compute is marked as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = format_value(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _cell(value: Any) -> float | int | bool | str | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = format_value(value)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"

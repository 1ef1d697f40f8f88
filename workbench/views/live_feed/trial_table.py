"""The table of trials: the window that one front end shows, sorted and filtered here."""

from __future__ import annotations

import csv
import io
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_value
from workbench.store.history import History, Trial
from workbench.store.history.failures import describe_state
from workbench.store.history.trial_columns import (
    NUMBER,
    STATE,
    Kind,
    TrialColumn,
    columns_of,
    means_of,
)
from workbench.views.live_feed.protocol import TableColumn, TableQuery, TrialRow, TrialTable
from workbench.views.live_feed.run_tail import RunTail

_COMPARISON = re.compile(r"([^\s<>=!]+)\s*(<=|>=|!=|==|<|>|=)\s*([^\s<>=!]+)")
_UNFINISHED = re.compile(r"[^<>=!]*(<=|>=|!=|==|<|>|=)")
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Comparison:
    """One comparison of a filter."""

    key: str
    """The column."""
    sign: str
    value: str

    def holds(self, value: Any) -> bool:
        """Return whether it holds for a value. Nothing compares with a missing value or NaN."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return False
        wanted = _number(self.value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.sign in _ORDERS:
            return is_number and wanted is not None and _ORDERS[self.sign](value, wanted)
        if is_number and wanted is not None:
            is_same = value == wanted
        else:
            is_same = format_value(value).casefold() == self.value.casefold()
        return is_same != (self.sign == "!=")


def read_filter(text: str, names: Mapping[str, str]) -> tuple[list[str], list[Comparison]]:
    """Read the text of a filter.

    Args:
        text: Words, and comparisons of columns with values, separated by spaces. All must hold.
        names: The columns: the key of each by its name.

    Returns:
        The words, and the comparisons.

    Raises:
        ArgumentError: If a comparison has no column or no value, its column is unknown, or it
            orders values that are not numbers.
    """
    comparisons = []
    for name, sign, value in _COMPARISON.findall(text):
        key = names.get(name) or names.get(name.casefold())
        if key is None:
            raise ArgumentError(
                f"there is no column {name!r}", field="table.text", allowed=list(names)
            )
        if sign in _ORDERS and _number(value) is None:
            example = f"{name} {sign} 0.01"
            raise ArgumentError(f"{value!r} is not a number", field="table.text", allowed=example)
        comparisons.append(Comparison(key, sign, value))
    words = _COMPARISON.sub(" ", text).casefold().split()
    if any(_UNFINISHED.fullmatch(word) and word.rstrip("<>=!") in {"", *names} for word in words):
        raise ArgumentError(
            "a comparison has no column or no value",
            field="table.text",
            allowed="words, and lr < 0.01",
        )
    return words, comparisons


def matches(words: Iterable[str], searched: str) -> bool:
    """Return whether a text contains all words."""
    folded = searched.casefold()
    return all(word in folded for word in words)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_MAX_CELL = 120
_ORDER: tuple[Kind, ...] = ("number", "state", "value", "param", "progress")
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
    return table_of(tail.data.history, query)


def table_of(history: History, query: TableQuery) -> TrialTable:
    """Return the window of the table of trials of a history.

    Arguments and errors as in `trial_table`.
    """
    columns = _columns(history)
    trials = _selected(history, columns, query)
    leading = _best_numbers(history)
    best = None
    if len(history.objectives) == 1:
        best = history.best()

    def row(trial: Trial, num_repeats: int = 1) -> TrialRow:
        means = {}
        if num_repeats > 1:
            means = means_of(history, trial)
        return TrialRow(
            number=trial.number,
            state=trial.state,
            reason=history.reason_of(trial),
            is_best=trial.number in leading,
            is_chosen=trial.number == history.chosen_trial,
            num_repeats=num_repeats,
            cells=tuple(
                _cell(means.get(column.identity, column.value(history, trial)))
                for column in columns
            ),
        )

    return TrialTable(
        columns=_described(history, columns),
        rows=tuple(row(trial) for trial in trials[query.offset : query.offset + query.limit]),
        offset=query.offset,
        total=len(trials),
        reading=history.reading and history.reading.describe(),
        best=best and row(best, len(history.repeats_of(best))),
    )


def trials_as_csv(tail: RunTail, query: TableQuery) -> str:
    """Return all trials that match, as CSV with a line of names.

    Args:
        tail: The run, locked by the caller.
        query: The order, the filter and the columns. Its window is ignored.

    Raises:
        ArgumentError: As in `trial_table`.
    """
    history = tail.data.history
    columns = _columns(history)
    chosen = {column.identity: column for column in columns}
    if query.columns:
        wanted = dict.fromkeys([NUMBER.identity, STATE.identity, *query.columns])
        chosen = {key: chosen[key] for key in wanted if key in chosen}
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_safe(column.heading) for column in chosen.values())
    for trial in _selected(history, columns, query):
        writer.writerow(_safe(_downloaded(history, column, trial)) for column in chosen.values())
    return text.getvalue()


def _downloaded(history: History, column: TrialColumn, trial: Trial) -> Any:
    if column is STATE:
        return describe_state(history, trial)  # with its reason
    return column.value(history, trial)


def matching_trials(history: History, text: str) -> list[int]:
    """Return the numbers of the trials that match a filter.

    Args:
        history: The history of the run.
        text: The text of the filter.

    Raises:
        ArgumentError: If the filter cannot be read.
    """
    columns = _columns(history)
    return [trial.number for trial in _selected(history, columns, TableQuery(text=text))]


def _selected(history: History, columns: list[TrialColumn], query: TableQuery) -> list[Trial]:
    """Return the trials that match a query, in its order."""
    by_key = {column.identity: column for column in columns}
    if query.sort not in (RANK, *by_key):
        raise ArgumentError(
            f"there is no column {query.sort!r}", field="table.sort", allowed=[RANK, *by_key]
        )
    words, comparisons = read_filter(query.text, _names(columns))
    trials = [
        trial
        for trial in history.trials.values()
        if (not query.states or trial.state in query.states)
        and all(item.holds(by_key[item.key].value(history, trial)) for item in comparisons)
        and (not words or matches(words, _searched(history, trial)))
    ]
    if query.sort == RANK:
        places = {trial.number: place for place, trial in enumerate(history.ranked())}
        return sorted(
            trials, key=lambda trial: (places.get(trial.number, len(places)), trial.number)
        )
    sorted_by = by_key[query.sort]
    # States are sorted by their names, everything else by its value.
    write = sorted_by.value
    if sorted_by is STATE:
        write = sorted_by.text
    trials.sort(
        key=lambda trial: _order(write(history, trial), query.descending),
        reverse=query.descending,
    )
    return trials


def _names(columns: Sequence[TrialColumn]) -> dict[str, str]:
    """Return the key of each column by its name in Python, and by its heading."""
    names: dict[str, str] = {}
    for column in reversed(columns):
        for name in (column.name, column.heading):
            names |= {name.casefold(): column.identity, name: column.identity}
    return names


def _best_numbers(history: History) -> set[int]:
    """Return the trials of the best configuration, or of the front with several objectives."""
    if len(history.objectives) > 1:
        return {trial.number for trial in history.front()}
    best = history.best()
    if best is None:
        return set()
    return {trial.number for trial in history.repeats_of(best)}


def _columns(history: History) -> list[TrialColumn]:
    """Return the columns of tables, metrics first, as they are what trials are compared by."""
    return sorted(
        (column for column in columns_of(history) if column.is_shown),
        key=lambda column: _ORDER.index(column.kind),
    )


def _described(history: History, columns: Sequence[TrialColumn]) -> tuple[TableColumn, ...]:
    """Return columns as a front end receives them."""
    trials = history.trials.values()
    return tuple(
        TableColumn(
            key=column.identity,
            label=column.heading,
            kind=column.kind,
            meaning=column.meaning,
            unit=column.unit,
            format=column.format,
            goal=column.goal,
            is_empty=all(column.value(history, trial) is None for trial in trials),
        )
        for column in columns
    )


def _order(value: Any, descending: bool) -> tuple[int, float, str]:
    """Return a sort key: numbers before text, missing values and NaN always last."""
    last = -1 if descending else 2
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return last, 0.0, ""
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, format_value(value)


def _searched(history: History, trial: Trial) -> str:
    return " ".join(
        [
            str(trial.number),
            trial.state,
            history.reason_of(trial) or "",
            trial.message or "",
            *(f"{name}={format_value(value)}" for name, value in trial.params.items()),
        ]
    )


def _safe(value: Any) -> Any:
    """Return a value for a cell of CSV: text that a spreadsheet would compute is marked as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = format_value(value)
    if text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{text}"  # spreadsheets would run it as a formula
    return text


def _cell(value: Any) -> float | int | bool | str | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = format_value(value)
    if len(text) > _MAX_CELL:
        return f"{text[: _MAX_CELL - 1]}…"
    return text

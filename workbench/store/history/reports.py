"""Read the rows of a store: reports of trials as columns, other events one by one.

A run may have a million reports, so many of them are parsed at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json as parse_json
from typing_extensions import Self

from workbench.foundation.events import Event, from_json

Floats = NDArray[np.float64]

_FEW = 500
"""Number of reports below which parsing one by one is as fast as parsing columns."""
_MANY = 8
"""Number of reports per trial from which columns pay off."""
_NUMBERS = (
    "step",
    "epoch",
    "time_unix_s",
    "samples_per_s",
    "gradient_signal_sqr",
    "gradient_noise",
    "left_out",
    "slowest_rank",
    "slowest_rank_factor",
    "memory_share",
)


class NumberColumn(NamedTuple):
    """One number of each report, and whether the report contains it. Missing numbers are NaN."""

    values: Floats
    is_known: NDArray[np.bool_]

    @classmethod
    def of(cls, numbers: Sequence[Any]) -> Self:
        """Build a column from numbers, None, and texts for non-finite numbers."""
        is_known = [number is not None for number in numbers]
        values = [math.nan if number is None else float(number) for number in numbers]
        return cls(np.array(values, dtype=np.float64), np.array(is_known, dtype=np.bool_))

    def at(self, places: Any) -> NumberColumn:
        """Return the rows at some places."""
        return NumberColumn(self.values[places], self.is_known[places])

    def last(self) -> float | None:
        """Return the last known number, or None."""
        if self.is_known[-1]:
            return float(self.values[-1])
        where = np.flatnonzero(self.is_known)
        if len(where):
            return float(self.values[where[-1]])
        return None


@dataclass(frozen=True, eq=False)
class Reports:
    """At least one report, in order, as columns.

    Attributes:
        attempts: The attempt of each report.
        numbers: Single numbers, by name. A name may be missing if no report has such a number.
        values: Metrics, by name.
        parts_s: Seconds per step, by part of the step.
    """

    attempts: NDArray[np.int64]
    numbers: Mapping[str, NumberColumn]
    values: Mapping[str, NumberColumn]
    parts_s: Mapping[str, NumberColumn]

    @classmethod
    def of(cls, reports: Sequence[Mapping[str, Any]]) -> Self:
        """Build columns from the fields of `TrialReported`. Non-finite values may be texts."""
        return cls(
            np.array([report.get("attempt", 0) for report in reports], dtype=np.int64),
            {name: NumberColumn.of([report.get(name) for report in reports]) for name in _NUMBERS},
            _columns_of([report.get("values") or {} for report in reports]),
            _columns_of([report.get("parts_s") or {} for report in reports]),
        )

    def __len__(self) -> int:
        return len(self.attempts)

    def at(self, places: Any) -> Reports:
        """Return the reports at some places."""
        numbers, values, parts_s = (
            {name: column.at(places) for name, column in columns.items()}
            for columns in (self.numbers, self.values, self.parts_s)
        )
        return Reports(self.attempts[places], numbers, values, parts_s)

    def known(self) -> Reports:
        """Return the reports without the columns in which nothing is known."""
        numbers, values, parts_s = (
            {name: column for name, column in columns.items() if column.is_known.any()}
            for columns in (self.numbers, self.values, self.parts_s)
        )
        return Reports(self.attempts, numbers, values, parts_s)

    def last_parts_s(self) -> dict[str, float]:
        """Return the parts of a step in the last report that has any."""
        if not self.parts_s:
            return {}
        parts, last = self.parts_s.items(), -1
        if not any(column.is_known[last] for column in self.parts_s.values()):
            where = np.flatnonzero(
                np.any([column.is_known for column in self.parts_s.values()], axis=0)
            )
            if not len(where):
                return {}
            last = where[-1]
        return {name: float(column.values[last]) for name, column in parts if column.is_known[last]}


class Batch:
    """Reports of many trials, returned trial by trial."""

    def __init__(
        self, by_trial: Mapping[int, NDArray[np.intp]], columns: Reports | Sequence[str]
    ) -> None:
        """Prepare to return these reports.

        Args:
            by_trial: The places of each trial's reports in the batch, ascending.
            columns: The reports as columns, sorted like `by_trial`. If there are few, they are JSON
                texts in the order of the batch.
        """
        starts = np.cumsum([0, *map(len, by_trial.values())])
        starting = zip(by_trial.items(), starts.tolist(), strict=False)
        self._waiting = {trial: (places, start) for (trial, places), start in starting}
        # Most columns are empty in most runs. Otherwise each trial would take its part of them.
        self._columns = columns.known() if isinstance(columns, Reports) else columns

    @classmethod
    def of(cls, trials: Sequence[int], payloads: Sequence[str]) -> Self:
        """Parse reports.

        Args:
            trials: The trial of each report.
            payloads: The JSON of each report.
        """
        numbers = np.array(trials, dtype=np.int64)
        order = np.argsort(numbers, kind="stable")
        reporting, starts = np.unique(numbers[order], return_index=True)
        by_trial = {}
        if len(order):
            by_trial = dict(zip(reporting.tolist(), np.split(order, starts[1:]), strict=True))
        columns = read_columns(payloads) if len(payloads) >= _FEW else None
        return cls(by_trial, payloads if columns is None else columns.at(order))

    def take(self, trial: int | None, before: int) -> Iterator[tuple[int, Reports]]:
        """Yield the reports of one or all trials that are not yet taken, up to a place."""
        for number in [trial] if trial is not None else list(self._waiting):
            if number not in self._waiting:
                continue
            places, start = self._waiting[number]
            count = int(np.searchsorted(places, before))
            if count == len(places):
                del self._waiting[number]
            else:
                self._waiting[number] = places[count:], start + count
            if count:
                yield number, self._at(places[:count], start)

    def _at(self, places: NDArray[np.intp], start: int) -> Reports:
        if isinstance(self._columns, Reports):
            return self._columns.at(slice(start, start + len(places)))
        return Reports.of([parse_json(self._columns[int(index)]) for index in places])


def _columns_of(mappings: Sequence[Mapping[str, Any]]) -> dict[str, NumberColumn]:
    names = dict.fromkeys(name for mapping in mappings for name in mapping)
    return {name: NumberColumn.of([mapping.get(name) for mapping in mappings]) for name in names}


def read_columns(payloads: Sequence[str]) -> Reports | None:
    """Parse reports in columns.

    Args:
        payloads: The JSON of each report. There is at least one.

    Returns:
        The columns, or None without pyarrow or if a value is not a JSON number, such as NaN.
    """
    try:
        import pyarrow as pa
        from pyarrow import json
    except ModuleNotFoundError:
        return None

    text = "\n".join(payloads).encode()
    schema = pa.schema([("attempt", pa.int64()), *((name, pa.float64()) for name in _NUMBERS)])
    try:
        table = json.read_json(
            pa.BufferReader(text),
            # With one block, the columns are inferred from all reports.
            read_options=json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=json.ParseOptions(explicit_schema=schema),
        )
        assert table.num_rows == len(payloads)
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        attempts = np.nan_to_num(_column(columns["attempt"]).values).astype(np.int64)
        numbers = {name: _column(columns[name]) for name in _NUMBERS}
        return Reports(
            attempts, numbers, _of_struct(columns, "values"), _of_struct(columns, "parts_s")
        )
    except pa.ArrowInvalid:
        return None


def _of_struct(columns: Mapping[str, Any], name: str) -> dict[str, NumberColumn]:
    import pyarrow as pa

    column = columns.get(name)
    if column is None or not pa.types.is_struct(column.type):
        return {}
    fields = zip([field.name for field in column.type], column.flatten(), strict=True)
    return {field: _column(part) for field, part in fields}


def _column(array: Any) -> NumberColumn:
    """Read an array from its buffers.

    `to_numpy` would import pandas, which takes longer than everything else here.
    """
    import pyarrow as pa

    end = array.offset + len(array)
    if pa.types.is_null(array.type):
        return NumberColumn(np.full(len(array), math.nan), np.zeros(len(array), dtype=np.bool_))
    if array.type not in (pa.int64(), pa.float64()):
        raise pa.ArrowInvalid("a value is not a number")
    is_known, content = array.buffers()
    stored = np.float64 if pa.types.is_floating(array.type) else np.int64
    values = np.frombuffer(content, stored, end)[array.offset :].astype(np.float64)
    if is_known is None:
        return NumberColumn(values, np.ones(len(array), dtype=np.bool_))
    bits = np.unpackbits(np.frombuffer(is_known, np.uint8), count=end, bitorder="little")
    known = bits[array.offset :].astype(np.bool_)
    values[~known] = math.nan
    return NumberColumn(values, known)


class ReadRows(NamedTuple):
    """Rows of a store that were read but not yet applied to anything.

    Attributes:
        reports: The reports, as columns if trials have many.
        num_reports: Number of reports.
        others: All other events: (number of preceding reports, trial or None, seq, event).
        last_unix_s: The time at which the last row was stored, or None without rows.
    """

    reports: Batch
    num_reports: int
    others: list[tuple[int, int | None, int, Event]]
    last_unix_s: float | None

    def steps(self) -> Iterator[tuple[int, Reports] | Event]:
        """Yield pairs of a trial and its reports, and other events. Call it only once.

        Everything about one trial comes in its order.
        """
        # Before an event of a trial, only its own reports are due. Before an event of the run, the
        # reports of all trials are.
        for place, trial, _, event in self.others:
            yield from self.reports.take(trial, place)
            yield event
        yield from self.reports.take(None, self.num_reports)


def read_rows(rows: Sequence[Sequence[Any]]) -> ReadRows:
    """Read rows of a store.

    Reports become columns if trials have many of them, otherwise they stay events.

    Args:
        rows: Tuples of (seq, type, trial, time_unix_s, payload). The payload is the JSON text of
            the event.
    """
    others: list[tuple[int, int | None, int, Event]] = []
    trials: list[int] = []
    payloads: list[str] = []
    last_unix_s = None
    as_columns = are_many_reports(rows)
    for seq, kind, trial, last_unix_s, payload in rows:  # noqa: B007
        if as_columns and kind == "trial_reported":
            trials.append(trial)
            payloads.append(payload)
        else:
            others.append((len(payloads), trial, seq, from_json(payload)))
    return ReadRows(Batch.of(trials, payloads), len(payloads), others, last_unix_s)


def are_many_reports(rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether there are enough reports per trial for columns to pay off."""
    reporting = [row[2] for row in rows if row[1] == "trial_reported"]
    return len(reporting) >= _MANY * len(set(reporting))

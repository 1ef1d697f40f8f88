"""Reports of trials as columns, read from their JSON many at a time: a run has a million of them.

What is read is left to `history` and to the plots, which keep of it what they need.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

Floats = NDArray[np.float64]

_FEW = 500
_NUMBERS = ("step", "epoch", "time_unix_s", "samples_per_s", "gradient_signal_sqr", "gradient_noise")
_ZERO = np.zeros(1)


class Told(NamedTuple):
    """One number of each report, and whether the report told it; what it did not is NaN."""

    values: Floats
    is_told: NDArray[np.bool_]

    @classmethod
    def of(cls, numbers: Sequence[Any]) -> Self:
        """Make it of numbers, texts that stand for numbers that are not finite, and None."""
        told = [number is not None for number in numbers]
        values = [math.nan if number is None else float(number) for number in numbers]
        return cls(np.array(values, dtype=np.float64), np.array(told, dtype=np.bool_))

    def at(self, places: Any) -> Told:
        """Return those at some places."""
        return Told(self.values[places], self.is_told[places])

    def last(self) -> float | None:
        """Return the last one that was told."""
        if self.is_told[-1]:
            return float(self.values[-1])
        where = np.flatnonzero(self.is_told)
        return float(self.values[where[-1]]) if len(where) else None


@dataclass(frozen=True, eq=False)
class Reports:
    """Reports in their order, at least one, as columns.

    Attributes:
        attempts: Which attempt each is of.
        numbers: By name, what each tells as one number.
        values: By metric.
        parts_s: By part of a step.
    """

    attempts: NDArray[np.int64]
    numbers: Mapping[str, Told]
    values: Mapping[str, Told]
    parts_s: Mapping[str, Told]

    @classmethod
    def of(cls, reports: Sequence[Mapping[str, Any]]) -> Self:
        """Make them of the fields of `TrialReported`; values that are not finite may be texts."""
        return cls(
            np.array([report.get("attempt", 0) for report in reports], dtype=np.int64),
            {name: Told.of([report.get(name) for report in reports]) for name in _NUMBERS},
            _columns_of([report.get("values") or {} for report in reports]),
            _columns_of([report.get("parts_s") or {} for report in reports]),
        )

    def __len__(self) -> int:
        return len(self.attempts)

    def at(self, places: Any) -> Reports:
        """Return those at some places."""
        numbers, values, parts_s = (
            {name: told.at(places) for name, told in columns.items()}
            for columns in (self.numbers, self.values, self.parts_s)
        )
        return Reports(self.attempts[places], numbers, values, parts_s)

    def last_parts_s(self) -> dict[str, float]:
        """Return the parts that the last report told that told any."""
        if not self.parts_s:
            return {}
        where = np.flatnonzero(np.any([told.is_told for told in self.parts_s.values()], axis=0))
        if not len(where):
            return {}
        last = where[-1]
        return {name: float(told.values[last]) for name, told in self.parts_s.items() if told.is_told[last]}


class Batch:
    """Reports of many trials, taken trial by trial."""

    def __init__(self, trials: Sequence[int], payloads: Sequence[str]) -> None:
        """Read them.

        Args:
            trials: Whose each is.
            payloads: The JSON of each.
        """
        numbers = np.array(trials, dtype=np.int64)
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        self._waiting = (
            dict(zip(found.tolist(), np.split(order, starts[1:]), strict=True)) if len(order) else {}
        )
        self._payloads = payloads
        self._columns = _read_columns(payloads) if len(payloads) >= _FEW else None

    def take(self, trial: int | None, before: int) -> Iterator[tuple[int, Reports]]:
        """Return what has not been taken of a trial, or of all of them, before a place in the batch."""
        for number in [trial] if trial is not None else list(self._waiting):
            places = self._waiting.get(number)
            if places is None:
                continue
            many = int(np.searchsorted(places, before))
            if many == len(places):
                del self._waiting[number]
            else:
                self._waiting[number] = places[many:]
            if many:
                yield number, self._at(places[:many])

    def _at(self, places: NDArray[np.intp]) -> Reports:
        if self._columns is None:
            return Reports.of([from_json(self._payloads[int(place)]) for place in places])
        first, last = int(places[0]), int(places[-1])
        # The reports of one trial often lie together: then nothing is copied.
        return self._columns.at(slice(first, last + 1) if last - first + 1 == len(places) else places)


def _columns_of(told: Sequence[Mapping[str, Any]]) -> dict[str, Told]:
    names = dict.fromkeys(name for one in told for name in one)
    return {name: Told.of([one.get(name) for one in told]) for name in names}


def _read_columns(payloads: Sequence[str]) -> Reports | None:
    """Read them without an object each; None where some hold what is no number, as NaN is in JSON."""
    import pyarrow as pa
    from pyarrow import json

    text = "\n".join(payloads).encode()
    schema = pa.schema([("attempt", pa.int64()), *((name, pa.float64()) for name in _NUMBERS)])
    try:
        table = json.read_json(
            pa.BufferReader(text),
            # One block: what is in the columns is then inferred from all reports.
            read_options=json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=json.ParseOptions(explicit_schema=schema),
        )
        columns = table.combine_chunks()
        assert columns.num_rows == len(payloads)
        attempts = columns["attempt"].fill_null(0).to_numpy()
        numbers = {name: _told(columns[name]) for name in _NUMBERS}
        return Reports(attempts, numbers, _of_struct(columns, "values"), _of_struct(columns, "parts_s"))
    except pa.ArrowInvalid:
        return None


def _of_struct(table: Any, name: str) -> dict[str, Told]:
    import pyarrow as pa

    if name not in table.column_names or not pa.types.is_struct(table[name].type):
        return {}
    column = table[name]
    fields = zip([field.name for field in column.type], column.flatten(), strict=True)
    return {field: _told(part) for field, part in fields}


def _told(column: Any) -> Told:
    import pyarrow as pa

    if not (
        pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_null(column.type)
    ):
        raise pa.ArrowInvalid("this is no number")
    return Told(column.cast(pa.float64()).to_numpy(), column.is_valid().to_numpy())

"""Write a range of stored events as one block: reports as columns by trial, the others as JSON.

Reading a block gives the same result as parsing its events, in a tenth of the time. The store keeps
blocks, and the driver decides when to make them.

A block starts with the length of its header, in four bytes, followed by the header. The header is
JSON, and lists the type and length of every array that follows, in their order. A column with one
number everywhere is stored as one number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json as parse_json

from workbench.foundation.events import from_json
from workbench.store.history.reports import (
    Batch,
    NumberColumn,
    ReadRows,
    Reports,
    are_many_reports,
    read_columns,
)

VERSION = 2
_GROUPS = ("numbers", "values", "parts_s")
_LENGTH_BYTES = 4


def encode_block(rows: Sequence[Sequence[Any]]) -> bytes | None:
    """Write rows of a store as a block.

    Args:
        rows: Tuples of (seq, type, trial, time_unix_s, payload). The payload is the JSON text of
            the event.

    Returns:
        The block, or None if there are so few reports that reading the rows is as fast.
    """
    if not are_many_reports(rows):
        return None
    reports = [(row[2], row[4]) for row in rows if row[1] == "trial_reported"]
    if not reports:
        return None
    payloads = [payload for _, payload in reports]
    columns = read_columns(payloads) or Reports.of([parse_json(payload) for payload in payloads])
    trials = np.array([trial for trial, _ in reports])
    order = np.argsort(trials, kind="stable")
    columns = columns.at(order)
    reporting, counts = np.unique(trials, return_counts=True)
    others, texts, index = [], [], 0
    for seq, kind, trial, _, payload in rows:
        if kind == "trial_reported":
            index += 1
        else:
            others.append((index, trial, seq))
            texts.append(payload)
    block = _Writer()
    block.add(order)
    block.add(columns.attempts)
    names = {
        group: [block.add_column(name, column) for name, column in getattr(columns, group).items()]
        for group in _GROUPS
    }
    block.add(np.frombuffer("\n".join(texts).encode(), dtype=np.uint8))
    return block.finish(
        {
            "version": VERSION,
            "last_unix_s": rows[-1][3],
            "others": others,
            "columns": names,
            "trials": reporting.tolist(),
            "counts": counts.tolist(),
        }
    )


def decode_block(block: bytes) -> ReadRows | None:
    """Read a block of `encode_block`, or return None if another version wrote it."""
    end = _LENGTH_BYTES + int.from_bytes(block[:_LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(block[_LENGTH_BYTES:end])
    if header["version"] != VERSION:
        return None
    arrays = _Reader(block, end, header["arrays"])
    order, attempts = arrays.take(), arrays.take()
    columns = Reports(
        attempts.astype(np.int64),
        *(
            {
                name: arrays.take_column(len(order), known)
                for name, known in header["columns"][group]
            }
            for group in _GROUPS
        ),
    )
    text = arrays.take().tobytes().decode()
    texts = text.split("\n") if text else []
    edges = np.cumsum([0, *header["counts"]])
    by_trial = {
        trial: order[start:stop].astype(np.intp)
        for trial, (start, stop) in zip(header["trials"], pairwise(edges.tolist()), strict=True)
    }
    others = [
        (index, trial, seq, from_json(payload))
        for (index, trial, seq), payload in zip(header["others"], texts, strict=True)
    ]
    return ReadRows(Batch(by_trial, columns), len(order), others, header["last_unix_s"])


class _Writer:
    """Writes arrays one after another, each with the shortest type that keeps its numbers exact."""

    def __init__(self) -> None:
        self._arrays: list[tuple[str, int]] = []
        self._parts: list[bytes] = []

    def add(self, array: NDArray[Any]) -> None:
        shortest = _shortest(array)
        self._arrays.append((shortest.dtype.str, len(shortest)))
        self._parts.append(shortest.tobytes())

    def add_column(self, name: str, column: NumberColumn) -> tuple[str, bool | None]:
        """Add a column, and return its name and whether all, some (None) or none are known."""
        known = column.is_known
        if not known.any():
            return name, False
        self.add(column.values)
        if known.all():
            return name, True
        self.add(np.packbits(known))
        return name, None

    def finish(self, header: Mapping[str, Any]) -> bytes:
        text = json.dumps({**header, "arrays": self._arrays}, separators=(",", ":")).encode()
        return b"".join((len(text).to_bytes(_LENGTH_BYTES, "little"), text, *self._parts))


class _Reader:
    """Reads the arrays of a block in their order."""

    def __init__(self, block: bytes, offset: int, arrays: Sequence[tuple[str, int]]) -> None:
        self._block, self._offset, self._arrays = block, offset, iter(arrays)

    def take(self) -> NDArray[Any]:
        kind, count = next(self._arrays)
        array = np.frombuffer(self._block, dtype=np.dtype(kind), count=count, offset=self._offset)
        self._offset += array.nbytes
        return array

    def take_column(self, num_reports: int, known: bool | None) -> NumberColumn:
        if known is False:
            nothing = np.broadcast_to(np.float64(np.nan), num_reports)
            return NumberColumn(nothing, np.broadcast_to(np.False_, num_reports))
        array = self.take()
        if len(array) < num_reports:  # the same number everywhere
            array = np.broadcast_to(array, num_reports)
        if known:
            return NumberColumn(array.astype(np.float64), np.broadcast_to(np.True_, num_reports))
        return NumberColumn(
            array.astype(np.float64), np.unpackbits(self.take(), count=num_reports).astype(np.bool_)
        )


def _shortest(array: NDArray[Any]) -> NDArray[Any]:
    if len(array) > 1 and array.dtype.kind == "f":
        # Compared as bits, because NaN does not equal itself.
        if np.all(array.view(np.int64) == array[:1].view(np.int64)):
            return array[:1].astype("<f8")
        with np.errstate(over="ignore"):
            shorter = array.astype("<f4")
        if np.array_equal(shorter.astype("<f8"), array, equal_nan=True):
            return shorter
    if array.dtype.kind == "i":
        kind = next(kind for kind in ("<i1", "<i2", "<i4", "<i8") if _fits(array, np.iinfo(kind)))
        return array.astype(kind)
    return array.astype(array.dtype.newbyteorder("<"))


def _fits(array: NDArray[Any], limits: np.iinfo[Any]) -> bool:
    return len(array) == 0 or bool(limits.min <= array.min() and array.max() <= limits.max)

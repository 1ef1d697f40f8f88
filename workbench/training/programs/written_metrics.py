"""Reads metrics in files that a program writes while it runs: lines, and TensorBoard event files.

If a file exists before the program starts, an earlier attempt or another program has written it. So
its old content does not count. Event files are parsed here, without TensorFlow or TensorBoard.
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from workbench.training.programs.documents import Rows, Values, read_json
from workbench.training.programs.printed_metrics import Lines

Found = tuple[Values, int | None]
"""Metrics, and their step if the file has one."""
_MAX_READ = 2**22
_MARK_BYTES = 64
_SEARCH_S = 0.1
_HEAD_BYTES, _CHECKSUM_BYTES = 12, 4
_MAX_RECORD = 2**26


class MetricFile(Protocol):
    """A file or folder that grows while a program runs."""

    def poll(self, *, at_end: bool = False) -> Iterator[Found]:
        """Yield the values that were written since the last call.

        Args:
            at_end: Whether nothing more will be written.
        """
        ...


class LineFile:
    """A file of lines that grows, or is rewritten."""

    def __init__(self, path: Path, new_reader: Callable[[], Callable[[bytes], Values]]) -> None:
        """Start at the end of the file.

        Args:
            path: The file. It need not exist yet.
            new_reader: Returns a function that reads the lines of a file, starting with the first.
        """
        self._path, self._new_reader = path, new_reader
        self._read = new_reader()
        self._lines = Lines()
        self._offset, self._mark = 0, b""
        self._num_taken = self._num_to_skip = 0
        for new in self._new_parts():
            for line in self._lines.feed(new):
                self._read(line)

    def poll(self, *, at_end: bool = False) -> Iterator[Found]:
        """Yield the metrics of the lines that are complete now."""
        for new in self._new_parts():
            yield from self._values_of(self._lines.feed(new))
        if at_end:
            yield from self._values_of(self._lines.end())

    def _values_of(self, lines: Sequence[bytes]) -> Iterator[Found]:
        for line in lines:
            values = self._read(line)
            if not values.is_empty:
                if self._num_to_skip:
                    self._num_to_skip -= 1
                    continue
                self._num_taken += 1
                yield values, None

    def _new_parts(self) -> Iterator[bytes]:
        """Yield the bytes that were written since the last call, in parts that fit into memory."""
        try:
            size = self._path.stat().st_size
        except OSError:
            return
        # Bytes that are written in the meantime wait for the next call, or this might never end.
        while new := self._next_part():
            yield new
            if self._offset >= size:
                return

    def _next_part(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size == self._offset:
                    return b""
                file.seek(self._offset - len(self._mark))
                data = file.read(len(self._mark) + _MAX_READ)
                if (
                    not data.startswith(self._mark)
                    or not self._offset <= os.fstat(file.fileno()).st_size
                ):
                    self._begin_again()
                    file.seek(0)
                    data = file.read(_MAX_READ)
        except OSError:
            return b""
        new = data[len(self._mark) :]
        self._offset += len(new)
        self._mark = data[-_MARK_BYTES:]
        return new

    def _begin_again(self) -> None:
        """Follow a file that was rewritten. It contains the earlier rows as well."""
        self._read, self._lines = self._new_reader(), Lines()
        self._offset, self._mark = 0, b""
        self._num_to_skip = self._num_taken
        self._num_taken = 0


def json_lines(path: Path) -> LineFile:
    """Return a file with one JSON object per line."""
    return LineFile(path, lambda: read_json)


def csv_rows(path: Path) -> LineFile:
    """Return a file with a row of names and rows of numbers."""
    return LineFile(path, lambda: Rows().read)


class EventFolder:
    """A folder with event files of TensorBoard, at any depth."""

    def __init__(self, folder: Path) -> None:
        """Start at the end of the current content."""
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._searched_s = -1.0
        for path in self._find():
            self._offsets[path] = path.stat().st_size

    def poll(self, *, at_end: bool = False) -> Iterator[Found]:
        """Yield the scalars of the records that are complete now."""
        if not at_end and time.monotonic() - self._searched_s < _SEARCH_S:
            return
        self._searched_s = time.monotonic()
        for path in self._find():
            for record in self._new_records(path):
                step, values = scalars_of(record)
                if values:
                    yield values, step

    def _new_records(self, path: Path) -> Iterator[bytes]:
        """Yield the complete records: length, checksum of the length, content, checksum of it.

        A record that is too large for a number, such as a picture or a graph, is skipped.
        """
        offset = self._offsets.get(path, 0)
        try:
            file = path.open("rb")
        except OSError:  # it has been removed since it was listed
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            while offset + _HEAD_BYTES <= size:
                file.seek(offset)
                (length,) = struct.unpack("<Q4x", file.read(_HEAD_BYTES))
                end = offset + _HEAD_BYTES + length + _CHECKSUM_BYTES
                if end > size:
                    return
                record = file.read(length) if length <= _MAX_RECORD else b""
                offset = self._offsets[path] = end
                yield record

    def _find(self) -> list[Path]:
        return sorted(path for path in self._folder.rglob("*tfevents*") if path.is_file())


def is_rounded(value: float, printed: float) -> bool:
    """Return whether a printed number is a value of a file, rounded to the digits that it has.

    Args:
        value: The number in the file, which may have the precision of float32.
        printed: The printed number.

    Example:
        >>> from workbench.training.programs.written_metrics import is_rounded
        >>> is_rounded(0.98312, 0.983), is_rounded(0.98312, 0.985), is_rounded(0.1, 0.1)
        (True, False, True)
    """
    if not (math.isfinite(value) and math.isfinite(printed)):
        return repr(value) == repr(printed)
    last_digit = 10.0 ** -len(format(Decimal(repr(printed)), "f").partition(".")[2])
    return math.isclose(value, printed, rel_tol=1e-6, abs_tol=0.5001 * last_digit)


def is_same_number(value: float, other: float) -> bool:
    """Return whether two numbers are the same, one of them perhaps with fewer digits."""
    return is_rounded(value, other) or is_rounded(other, value)


def scalars_of(record: bytes) -> tuple[int, Values]:
    """Return the step and the scalars of one event of TensorBoard."""
    step, values = 0, Values()
    try:
        for number, content in fields_of(record):
            if number == 2 and isinstance(content, int):
                step = content
            elif number == 5 and isinstance(content, bytes):
                for inner, value in fields_of(content):
                    if inner == 1 and isinstance(value, bytes):
                        values |= _scalar(value)
    except (ValueError, IndexError, struct.error):  # it is not an event
        return 0, Values()
    return step, values


def _scalar(value: bytes) -> Values:
    """Return the scalar of a `Summary.Value`.

    Field 1 is the tag, field 2 the number. Field 8 is a tensor instead of the number.
    """
    tag, number = "", None
    for field, content in fields_of(value):
        if field == 1 and isinstance(content, bytes):
            tag = content.decode(errors="replace")
        elif field == 2 and isinstance(content, bytes):
            (number,) = struct.unpack("<f", content)
        elif field == 8 and isinstance(content, bytes):
            number = _tensor_scalar(content)
    return Values() if number is None or not tag else Values({tag: number})


def _tensor_scalar(tensor: bytes) -> float | None:
    """Return the number of a tensor with a single float or double."""
    kind = 1
    for field, content in fields_of(tensor):
        if field == 1 and isinstance(content, int):
            kind = content
        elif field in (4, 5, 6) and isinstance(content, bytes):
            letter = "d" if field == 6 or (field == 4 and kind == 2) else "f"
            if len(content) == struct.calcsize(letter):
                return struct.unpack(f"<{letter}", content)[0]
    return None


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer: numbers for varints, bytes for everything else.

    Raises:
        ValueError: If it is not a protocol buffer.
        IndexError: If it is torn.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            length, place = _varint(message, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if place + length > len(message):
            raise IndexError("torn")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("not a varint")

"""Reads metrics in files that a program writes: lines, event files of TensorBoard, other logs.

Some are followed while it runs. What else it leaves in its folder is read at its end. If a file
exists before the program starts, an earlier attempt or another program has written it. So its old
content does not count. Event files are parsed here, without TensorFlow or TensorBoard.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import le
from pathlib import Path
from typing import Protocol

from workbench.training.programs.documents import Rows, Values, read_history, read_json
from workbench.training.programs.metric_names import is_count
from workbench.training.programs.printed_metrics import Lines
from workbench.training.programs.printed_numbers import number_of_text

Found = tuple[Values, int | None]
"""Metrics, and their step if the file has one."""
_MAX_READ = 2**22
_MARK_BYTES = 64
_SEARCH_S = 0.1
_HEAD_BYTES, _CHECKSUM_BYTES = 12, 4
_MAX_RECORD = 2**26
_LOGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".log", ".txt")
_MAX_LOG_BYTES = 2**26
_MAX_FILES = 20_000
_TIMES = ("timestamp", "_timestamp", "time", "wall_time", "datetime", "date")
"""Columns that say when a row was written, if it has no count."""
_MAX_DESCRIBED = 4
_MAX_COURSE, _MAX_LAST = 80, 18


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
                    yield _with_curve(values, path.parent), step

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


def _with_curve(values: Values, folder: Path) -> Values:
    """Return scalars with the names of their curves.

    `add_scalars("loss", {"train": a, "val": b})` writes both as `loss`: PyTorch in the folders
    `loss_train` and `loss_val`, tensorboardX in `loss/train` and `loss/val`.
    """
    named = Values()
    for tag, value in values.items():
        start = f"{tag.replace('/', '_')}_"
        curve = folder.name.removeprefix(start) if folder.name.startswith(start) else ""
        if folder.parts[-1 - len(tag.split("/")) : -1] == tuple(tag.split("/")):
            curve = folder.name
        named[f"{tag}/{curve}" if curve else tag] = value
    return named


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
    digits = format(Decimal(repr(float(printed))), "f").partition(".")[2]
    last_digit = 10.0 ** -len(digits)
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


# Logs that a program leaves.


@dataclass
class LoggedValues:
    """What the logs of a program say about a metric.

    Attributes:
        values: Its values in the first of these logs, the last one at the end.
        is_tracked: Whether a tool that tracks experiments wrote them, such as TensorBoard.
        is_contradicted: Whether another log ends with another value, such as the log of each fold.
    """

    values: list[float]
    is_tracked: bool = False
    is_contradicted: bool = False

    @property
    def course(self) -> list[float]:
        """At most a hundred of its values in their order, with the lowest, highest and last."""
        num = len(self.values)
        every = -(-num // _MAX_COURSE)
        extremes = {self.values.index(min(self.values)), self.values.index(max(self.values))}
        return [
            value
            for place, value in enumerate(self.values)
            if place % every == 0 or place in extremes or place >= num - _MAX_LAST
        ]

    def result(self, printed: float | None) -> float | None:
        """Return the last value, or None if the printed one counts.

        A table or a file of JSON is a log of the printed metric if it has the printed number, as
        its last or as an earlier value. Otherwise it may be about something else, such as one
        batch, or have another unit.

        Args:
            printed: What the program printed at last, or None if it was not printed.
        """
        if self.is_contradicted:
            return None
        *_, last = self.values
        if printed is None or is_rounded(last, printed):
            return last
        if is_rounded(printed, last):
            return None
        is_log = self.is_tracked or any(is_same_number(value, printed) for value in self.values)
        return last if is_log else None


class FinalValues:
    """The last values in the logs that a program leaves in its folder, at any depth.

    These are event files of TensorBoard, runs of wandb and MLflow, CSV files and JSON. A row of CSV
    and a line of JSON count if they say when they were written, such as in a column `epoch` or
    `timestamp`: other tables hold predictions or configurations.
    """

    def __init__(self, folder: Path, tracked: Sequence[MetricFile]) -> None:
        """Remember what is there before the program starts. It does not count.

        Args:
            folder: The folder of the trial.
            tracked: The logs of tools that track experiments, at any place of the folder.
        """
        self._folder, self._tracked = folder, tracked
        self._before = {path: _version(path) for path in self._files()}

    def read(self) -> tuple[dict[str, LoggedValues], dict[str, LoggedValues]]:
        """Return what was written, by the name of the metric, after the program has ended.

        Returns:
            The values of logs, and those of JSON documents, which may be a best value instead.
        """
        logged: dict[str, LoggedValues] = {}
        documents: dict[str, LoggedValues] = {}
        for log in self._tracked:
            written = _by_name(values for values, _ in log.poll(at_end=True))
            _add(logged, written, is_tracked=True)
        changed = [path for path in self._files() if _version(path) != self._before.get(path)]
        for path in sorted(changed, key=lambda path: path.stat().st_mtime):
            with contextlib.suppress(OSError):
                if "mlruns" in path.parts:
                    _add(logged, _of_mlflow_file(path), is_tracked=True)
                elif path.name == "mlflow.db":
                    _add(logged, _of_mlflow_database(path), is_tracked=True)
                elif path.suffix == ".json" and (held := read_history(path.read_bytes())):
                    _add(documents, _by_name([held]))
                else:
                    _add(logged, _of_rows(path))
        return logged, documents

    def describe_unread(self) -> str:
        """Return which files the program wrote, and why no metric was read in them, or ""."""
        reasons: list[str] = []
        num_others = 0
        for path in itertools.islice(sorted(self._folder.rglob("*")), _MAX_FILES):
            if not path.is_file() or self._before.get(path) == _version(path):
                continue
            name = path.relative_to(self._folder).as_posix()
            if not _may_be_log(path):
                num_others += 1
            elif path.stat().st_size > _MAX_LOG_BYTES:
                reasons.append(f"{name} is longer than {_MAX_LOG_BYTES // 2**20} MiB")
            else:
                reasons.append(f"{name} {_why_unread(path)}")
        shown = reasons[:_MAX_DESCRIBED]
        num_others += len(reasons) - len(shown)
        if num_others and shown:
            shown.append(f"{num_others} more are of other kinds")
        return "; ".join(shown)

    def _files(self) -> list[Path]:
        """Return the files that may be logs. A log that is too long to be read is none."""
        return [
            path
            for path in itertools.islice(self._folder.rglob("*"), _MAX_FILES)
            if _may_be_log(path) and path.is_file() and path.stat().st_size <= _MAX_LOG_BYTES
        ]


def _may_be_log(path: Path) -> bool:
    return path.suffix in _LOGS or path.name == "mlflow.db" or "mlruns" in path.parts


def _why_unread(path: Path) -> str:
    """Return why a log has not the metric, as a clause without its subject."""
    try:
        held = read_history(path.read_bytes()) if path.suffix == ".json" else None
        names = list(held or _of_rows(path))
    except OSError:
        names = []
    if names:
        return f"has {', '.join(names[:_MAX_DESCRIBED])}"
    return "has no numbers by name in rows that say their step or epoch"


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _by_name(rows: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the numbers of rows by name. Switches of a kept configuration are not results."""
    by_name: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if not isinstance(value, bool):
                by_name.setdefault(name, []).append(value)
    return by_name


def _add(
    logged: dict[str, LoggedValues],
    of_one_log: Mapping[str, list[float]],
    *,
    is_tracked: bool = False,
) -> None:
    """Add the values of one log, the last one at the end."""
    for name, values in of_one_log.items():
        known = logged.get(name)
        if known is None:
            logged[name] = LoggedValues(values, is_tracked)
        elif not is_same_number(known.values[-1], values[-1]):
            known.is_contradicted = True


def _of_rows(path: Path) -> dict[str, list[float]]:
    """Return the values of rows of CSV or lines of JSON that say when they were written.

    The last one is that of the newest row. A table may be sorted by its result.
    """
    read = Rows().read if path.suffix in (".csv", ".tsv") else read_json
    rows: list[Values] = []
    newest: list[float] = []
    with path.open("rb") as file:
        for line in file:
            values = read(line)
            counts = [value for name, value in values.items() if is_count(name)] or [
                value for name, value in values.items() if name.lower() in _TIMES
            ]
            if not counts:
                continue
            is_older = len(counts) == len(newest) and all(map(le, counts, newest))
            if is_older and counts != newest:
                rows.insert(-1, values)
            else:
                rows.append(values)
                newest = counts
    return _by_name(rows)


def _of_mlflow_file(path: Path) -> dict[str, list[float]]:
    """Return the values of a metric of MLflow. Its lines are a time, a value and a step."""
    _, _, name = path.as_posix().rpartition("/metrics/")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    cells = [line.split() for line in lines]
    numbers = [number_of_text(line[1]) if len(line) == 3 else None for line in cells]
    if not name or not numbers or None in numbers:
        return {}
    return {name: [number for number in numbers if number is not None]}


def _of_mlflow_database(path: Path) -> dict[str, list[float]]:
    """Return the values of all metrics in a database of MLflow."""
    query = "SELECT key, value FROM metrics WHERE NOT is_nan ORDER BY timestamp, step"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            return _by_name({name: value} for name, value in database.execute(query))
        except sqlite3.DatabaseError:  # it is another database
            return {}

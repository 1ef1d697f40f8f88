"""Follows a program from its start to its end: its process, its output, the metrics it writes.

Ending the program with all of its processes is left to `supervisor`, and the meaning of metrics to
`training.program`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import sqlite3
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import le
from pathlib import Path

from workbench.experiment.metric_source import MetricSource
from workbench.foundation.formatting import format_bytes
from workbench.training.programs import supervisor
from workbench.training.programs.documents import Rows, Values, read_history, read_json
from workbench.training.programs.metric_names import is_count
from workbench.training.programs.printed_metrics import (
    Lines,
    PrintedMetrics,
    Reader,
    Source,
    may_have_metrics,
    pattern_reader,
)
from workbench.training.programs.printed_numbers import number_of_text
from workbench.training.programs.wandb_files import WandbFolder
from workbench.training.programs.written_metrics import (
    EventFolder,
    MetricFile,
    csv_rows,
    is_rounded,
    is_same_number,
    json_lines,
)

_LOGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".log", ".txt")
_MAX_LOG_BYTES = 2**26
_MAX_FILES = 20_000
POLL_S = 0.05
READ_BYTES = 2**20
TAIL_BYTES = 65536
_FILES: dict[str, Callable[[Path], MetricFile]] = {
    "jsonl": json_lines,
    "csv": csv_rows,
    "tensorboard": EventFolder,
    "wandb": WandbFolder,
}
"""Readers of the files that a program writes, by the kind of metric source."""


class MetricReaders:
    """Reads the metrics of one program, from its printed lines and from its files."""

    def __init__(
        self,
        source: MetricSource | None = None,
        path: Path | None = None,
        reported: Path | None = None,
        metrics: frozenset[str] = frozenset(),
    ) -> None:
        """Choose the readers. Existing files are skipped if the format allows it.

        Args:
            source: Where metrics are read. None reads none.
            path: The file or folder of the source.
            reported: The file that `wb.report` writes, or None if it is not read.
            metrics: The metrics of the experiment.
        """
        self.of_output: Reader | None = None
        self.of_errors: Reader | None = None
        self._of_lines: list[PrintedMetrics] = []
        reads_pairs = source is not None and source.kind in ("auto", "stdout")
        self.is_of_interest = may_have_metrics if reads_pairs else None
        self.files: list[MetricFile] = []
        if reported is not None:
            self.files.append(json_lines(reported))
        if source is None:
            return
        match source.kind:
            case "auto":
                self.of_output, self.of_errors = (self._printed(metrics) for _ in range(2))
            case "stdout":
                self.of_output = self._printed(metrics)
            case "pattern":
                self.of_output = self.of_errors = pattern_reader(source.pattern or ())
            case written:
                assert path is not None
                self.files.append(_FILES[written](path))

    def _printed(self, metrics: frozenset[str]) -> Reader:
        reader = PrintedMetrics(metrics)
        self._of_lines.append(reader)
        return reader.read

    @property
    def sources(self) -> list[tuple[str, Source]]:
        """The printed metrics of the experiment, and the lines that they were read from."""
        return [item for reader in self._of_lines for item in reader.sources.items()]


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
    and a line of JSON count if they say when they were written, such as in a column `epoch`: other
    tables hold predictions or configurations.
    """

    def __init__(self, folder: Path) -> None:
        """Remember what is there before the program starts. It does not count.

        Args:
            folder: The folder of the trial.
        """
        self._folder = folder
        self._logs: tuple[MetricFile, ...] = (EventFolder(folder), WandbFolder(folder))
        self._before = {path: _version(path) for path in self._files()}

    def read(self) -> tuple[dict[str, LoggedValues], dict[str, LoggedValues]]:
        """Return what was written, by the name of the metric, after the program has ended.

        Returns:
            The values of logs, and those of JSON documents, which may be a best value instead.
        """
        logged: dict[str, LoggedValues] = {}
        documents: dict[str, LoggedValues] = {}
        for log in self._logs:
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

    def _files(self) -> list[Path]:
        """Return the files that may be logs. A log that is too long to be read is none."""
        files = []
        for path in itertools.islice(self._folder.rglob("*"), _MAX_FILES):
            is_log = path.suffix in _LOGS or path.name == "mlflow.db" or "mlruns" in path.parts
            if is_log and path.is_file() and path.stat().st_size <= _MAX_LOG_BYTES:
                files.append(path)
        return files


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _by_name(rows: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    by_name: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
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
            counts = [value for name, value in values.items() if is_count(name)]
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


class FollowedProgram:
    """A program that is started and followed once.

    Attributes:
        output: The output of the program.
    """

    def __init__(
        self,
        readers: MetricReaders,
        output: KeptOutput,
        take: Callable[[Values, int | None], None],
        tick: Callable[[], None] = lambda: None,
        should_end: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare to follow a program.

        Args:
            readers: The readers of its metrics.
            output: Stores its output.
            take: Receives values that were written together, and their step if the format has one.
            tick: Called several times a second.
            should_end: Returns whether the program should end.
        """
        self._readers, self.output = readers, output
        self._take, self._tick, self._should_end = take, tick, should_end

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        grace_s: float,
        folder: Path | None = None,
    ) -> ProgramEnd:
        """Start the program, and read its output until all of its processes have ended.

        Args:
            arguments: The program and its arguments. `python` means the interpreter of this
                process.
            environment: Its environment variables.
            grace_s: Seconds between the request to stop and the kill.
            folder: Its working folder. None is that of this process.
        """
        program, *others = arguments
        if program in ("python", "python3"):
            program = sys.executable
        sys.stdout.flush()
        process = ProgramProcess([program, *others], environment, grace_s, folder)
        try:
            self._follow(process)
        finally:
            end = process.end()
        self.output.close()
        return end

    def _follow(self, process: ProgramProcess) -> None:
        readers = self._readers
        reads = {process.output: readers.of_output, process.errors: readers.of_errors}
        streams = {stream: Lines(readers.is_of_interest) for stream in reads}
        polled_s = 0.0
        with selectors.DefaultSelector() as selector:
            # The status is written once, at the end. The streams must not block, because other
            # processes of the program may keep them open without writing.
            for descriptor in (*streams, process.status):
                os.set_blocking(descriptor, descriptor == process.status)
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select(POLL_S)}
                for descriptor in ready & streams.keys():
                    if not self._read(process, descriptor, streams[descriptor], reads[descriptor]):
                        selector.unregister(descriptor)
                if time.monotonic() - polled_s >= POLL_S:
                    self._poll()
                    polled_s = time.monotonic()
                # All of its processes have ended, so the pipes can be read to their end.
                if process.status in ready:
                    break
                if self._should_end():
                    process.stop()
        for descriptor, lines in streams.items():
            while self._read(process, descriptor, lines, reads[descriptor]):
                pass
            self._pass_on(lines.end(), reads[descriptor])
        self._poll(at_end=True)

    def _read(
        self, process: ProgramProcess, descriptor: int, lines: Lines, reader: Reader | None
    ) -> bool:
        """Read the current content of a stream, and return whether there may be more."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except OSError:  # nothing can be read now, or ever again
            return False
        if not data:
            return False
        self.output.write(data, is_error=descriptor == process.errors)
        if reader is not None:
            self._pass_on(lines.feed(data), reader)
        return True

    def _pass_on(self, lines: list[bytes], reader: Reader | None) -> None:
        if reader is None:
            return
        for line in lines:
            if not (values := reader(line)).is_empty:
                self._take(values, None)

    def _poll(self, *, at_end: bool = False) -> None:
        for file in self._readers.files:
            with contextlib.suppress(OSError):  # the file is being replaced. Try again next time.
                for values, step in file.poll(at_end=at_end):
                    self._take(values, step)
        self._tick()


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        code: Its exit status, or minus the signal that killed it. None if it is unknown.
        error: Why it could not be started, or None if it was started.
        was_killed: Whether it was killed because it did not stop within the grace period.
        left: The names of processes that outlived it and were ended.
    """

    code: int | None = None
    error: str | None = None
    was_killed: bool = False
    left: list[str] = field(default_factory=list)


class ProgramProcess:
    """A program below a supervisor. Its output can be read from `output` and `errors`."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        grace_s: float,
        folder: Path | None = None,
    ) -> None:
        """Start the program.

        Args:
            arguments: The program and its arguments.
            environment: Its environment variables.
            grace_s: Seconds between the request to stop and the kill.
            folder: Its working folder. None is that of this process.
        """
        control, self._control = os.pipe()
        self.status, status = os.pipe()
        # Isolated and without site-packages, the supervisor starts within milliseconds, and your
        # environment variables cannot change it.
        command = [
            sys.executable,
            "-I",
            "-S",
            str(Path(supervisor.__file__)),
            str(control),
            str(status),
            str(grace_s),
            *arguments,
        ]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(environment),
                cwd=folder,
                pass_fds=(control, status),
                start_new_session=True,
            )
        finally:
            os.close(control)
            os.close(status)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output, self.errors = self._process.stdout.fileno(), self._process.stderr.fileno()
        self._is_stopping = False

    def stop(self) -> None:
        """Request the program to end. If it does not end in time, the supervisor kills it."""
        if not self._is_stopping:
            self._is_stopping = True
            with contextlib.suppress(OSError):  # it has ended
                os.write(self._control, supervisor.STOP)

    def end(self) -> ProgramEnd:
        """Kill the program if it is running, wait for all of its processes, and return its end."""
        os.close(self._control)
        written = b""
        while part := os.read(self.status, 65536):
            written += part
        os.close(self.status)
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        if not written:
            return ProgramEnd(error="its supervisor was killed")
        return ProgramEnd(**json.loads(written))


class KeptOutput:
    """The output of one attempt, which this process prints to the log of the trial."""

    def __init__(self, max_bytes: int) -> None:
        """Start without output.

        Args:
            max_bytes: Maximum output in the log.
        """
        self._left_bytes = max_bytes
        self._num_dropped = 0
        self._parts: deque[bytes] = deque()
        self._num_bytes = 0
        self.errors = b""
        """The end of the standard error."""

    def write(self, data: bytes, *, is_error: bool) -> None:
        """Add output.

        Args:
            data: The bytes.
            is_error: Whether they were printed to the standard error.
        """
        if is_error:
            self.errors = (self.errors + data)[-TAIL_BYTES:]
        kept = data[: self._left_bytes]
        self._left_bytes -= len(kept)
        self._num_dropped += len(data) - len(kept)
        _write_log(kept)
        self._parts.append(data)
        self._num_bytes += len(data)
        while self._num_bytes - len(self._parts[0]) >= TAIL_BYTES:
            self._num_bytes -= len(self._parts.popleft())

    def tail(self) -> str:
        """Return the end of the output."""
        return b"".join(self._parts)[-TAIL_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Write the end of the output, if it was too long for the log."""
        if self._num_dropped:
            end = b"".join(self._parts)[-min(TAIL_BYTES, self._num_dropped) :]
            dropped = format_bytes(self._num_dropped - len(end))
            _write_log(
                f"\nworkbench: {dropped} of output were dropped here. It ends with:\n".encode()
                + end
            )


def _write_log(data: bytes) -> None:
    for part in _parts_of(data):
        with contextlib.suppress(OSError):  # a full disk must not end the trial
            os.write(1, part)


def _parts_of(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), TAIL_BYTES):
        yield data[begin : begin + TAIL_BYTES]

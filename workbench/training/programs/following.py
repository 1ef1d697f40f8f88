"""Follows a program from its start to its end: its process, its output, the metrics it writes.

Ending the program with all of its processes is left to `supervisor`, and the meaning of metrics to
`training.program_trial`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.experiment.metric_source import MetricSource
from workbench.foundation.formatting import format_bytes
from workbench.training.programs import supervisor
from workbench.training.programs.documents import Values
from workbench.training.programs.printed_metrics import (
    Lines,
    PrintedMetrics,
    Reader,
    Source,
    may_have_metrics,
    pattern_reader,
)
from workbench.training.programs.wandb_files import WandbFolder
from workbench.training.programs.written_metrics import (
    EventFolder,
    MetricFile,
    csv_rows,
    json_lines,
)

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

    @property
    def unread_rows(self) -> list[tuple[str, str]]:
        """The rows that were not read below the names of metrics, each behind such a name."""
        return [reader.unread_row for reader in self._of_lines if reader.unread_row is not None]


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

"""The process of a trial's program as a worker sees it.

Started, read, stopped, and gone at the end.

Ending the program and whatever it started is left to `supervisor`; what the output means to others.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.training.programs import supervisor


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        code: Its exit status, or minus the signal that killed it; None where that is not known.
        error: Why it could not be started; None where it was.
        was_killed: Whether it did not stop within the grace period.
        left: The names of processes that outlived it and were ended.
    """

    code: int | None = None
    error: str | None = None
    was_killed: bool = False
    left: list[str] = field(default_factory=list)


class ProgramProcess:
    """A program that runs below a supervisor.

    What it prints can be read from `output` and `errors`.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], grace_s: float
    ) -> None:
        """Start it.

        Args:
            arguments: The program and its arguments.
            environment: Its environment variables.
            grace_s: Seconds between the request to stop and the kill.
        """
        control, self._control = os.pipe()
        self.status, status = os.pipe()
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
        """Request the program to end, and have it killed where it does not end in time."""
        if not self._is_stopping:
            self._is_stopping = True
            with contextlib.suppress(OSError):  # it has ended
                os.write(self._control, supervisor.STOP)

    def end(self) -> ProgramEnd:
        """Kill the program if it runs, wait until nothing of it is left, and return how it
        ended.
        """
        os.close(self._control)
        written = b""
        while part := os.read(self.status, 65536):
            written += part
        os.close(self.status)
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return (
            ProgramEnd(**json.loads(written))
            if written
            else ProgramEnd(error="its supervisor was killed")
        )

"""The sink `command`: runs a program for each alert."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import ClassVar

from pydantic import Field

from workbench.foundation.formatting import format_duration
from workbench.store.alerts.sinks import Alert, Sink, SinkError


class Command(Sink):
    """A program that is run for each alert, without a shell.

    It reads the alert as JSON from its input.
    """

    timeout_s: ClassVar[float] = 30.0

    command: tuple[str, ...] = Field(min_length=1, description="The program and its arguments.")

    def send(self, alert: Alert) -> None:
        """Run the program, with the alert on its input and in its environment."""
        variables = {
            f"WORKBENCH_ALERT_{name.upper()}": str(value).replace("\0", "")
            for name, value in alert.items()
            if value is not None
        }
        try:
            process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except OSError as error:
            problem = f"{self.command[0]} cannot be started: {error.strerror}"
            raise SinkError(problem, may_pass=self.may_pass(error)) from None
        try:
            process.communicate(json.dumps(alert).encode(), timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            limit = format_duration(self.timeout_s)
            problem = f"it was killed because it was still running after {limit}"
            raise SinkError(problem, may_pass=False) from None
        if process.returncode:
            raise SinkError(f"it ended with exit code {process.returncode}", may_pass=False)

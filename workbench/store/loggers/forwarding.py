"""Call each logger in its own thread, so that it can neither delay nor fail a run.

A logger may be slow, hang or fail. One that fails is no longer used in this run. The caller decides
what loggers receive, and fetches their problems.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from workbench.foundation.attachments import Attachment
from workbench.foundation.errors import ArtifactsError
from workbench.store.loggers.logger import LOGGERS, LoggedRun, TrialLogger

logger = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""Number of calls that may wait for one logger. More are dropped."""


class Forwarding:
    """Passes the events of a run on to loggers."""

    def __init__(
        self, names: Sequence[str], run: LoggedRun, *, max_waiting: int = MAX_WAITING
    ) -> None:
        """Start a thread for each logger.

        Args:
            names: Names that `LOGGERS` knows.
            run: The run.
            max_waiting: Number of calls that may wait for one logger.
        """
        self._problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lines = [_Line(name, run, self._problems, max_waiting) for name in names]

    def put(self, method: str, *arguments: Any) -> None:
        """Queue a call of a method of every logger, without waiting.

        Args:
            method: The name of a method of TrialLogger.
            *arguments: Its arguments.
        """
        for line in self._lines:
            line.put(lambda target: getattr(target, method)(*arguments))

    def attach(self, trial: int, step: int, load: Callable[[], Attachment]) -> None:
        """Queue a call of `attach` of every logger, without waiting.

        Args:
            trial: The number of the trial.
            step: The step.
            load: Reads the file. It is called later, in the logger's thread, when the file may be
                gone.
        """

        def call(target: TrialLogger) -> None:
            with contextlib.suppress(ArtifactsError):
                target.attach(trial, step, load())

        for line in self._lines:
            line.put(call)

    def problems(self) -> list[str]:
        """Return the problems of loggers since the last call."""
        problems = []
        while not self._problems.empty():
            problems.append(self._problems.get())
        return problems

    def close(self, timeout_s: float) -> None:
        """Wait until the loggers have written everything that they received.

        Args:
            timeout_s: Maximum seconds to wait for all of them.
        """
        until_s = time.monotonic() + timeout_s
        for line in self._lines:
            line.close(until_s)


class _Line:
    """The calls that wait for one logger, and the thread that makes them."""

    def __init__(
        self, name: str, run: LoggedRun, problems: queue.SimpleQueue[str], max_waiting: int
    ) -> None:
        self._name, self._run, self._problems = name, run, problems
        self._waiting: queue.Queue[Callable[[Any], object] | None] = queue.Queue(max_waiting)
        self._num_dropped = 0
        self._thread = threading.Thread(target=self._serve, name=f"logger {name}", daemon=True)
        self._thread.start()

    def put(self, call: Callable[[Any], object]) -> None:
        try:
            self._waiting.put_nowait(call)
        except queue.Full:
            self._num_dropped += 1

    def close(self, until_s: float) -> None:
        try:
            self._waiting.put(None, timeout=max(0.0, until_s - time.monotonic()))
            self._thread.join(max(0.0, until_s - time.monotonic()))
        except queue.Full:
            pass
        if self._thread.is_alive():
            self._problems.put(f"{self._name} had not written everything when the run ended")
        elif self._num_dropped:
            self._problems.put(
                f"{self._name} was too slow: {self._num_dropped} reports were dropped"
            )

    def _serve(self) -> None:
        target: Any = None
        has_failed = False
        is_open = True
        while is_open:
            call = self._waiting.get()
            is_open = call is not None
            if has_failed:
                continue
            try:
                target = target or LOGGERS.load(self._name)(self._run)
                target.close() if call is None else call(target)
            except BaseException as error:
                has_failed = True
                logger.warning("%s failed", self._name, exc_info=error)
                # Only the type, because the message may contain secrets, which must not be stored.
                self._problems.put(
                    f"{self._name} receives no more trials of this run, because it failed with"
                    f" {type(error).__name__}. See the log of the driver"
                )

"""One thread for each logger, so that a logger that is slow, hangs or fails neither delays nor
fails a run.

A logger that fails is used no longer in this run. What it receives is left to the caller; the
problems are kept until they are fetched.
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
"""Facts that may wait for one logger; further reports are left out."""


class Forwarding:
    """Passes what happens in a run on to loggers."""

    def __init__(
        self, names: Sequence[str], run: LoggedRun, *, max_waiting: int = MAX_WAITING
    ) -> None:
        """Start a thread for each logger.

        Args:
            names: Names that `LOGGERS` knows.
            run: The run.
            max_waiting: Facts that may wait for one logger.
        """
        self._problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lines = [_Line(name, run, self._problems, max_waiting) for name in names]

    def put(self, method: str, *arguments: Any) -> None:
        """Have a method of every logger called, without waiting.

        Args:
            method: The name of a method of TrialLogger.
            *arguments: What it receives.
        """
        for line in self._lines:
            line.put(lambda target: getattr(target, method)(*arguments))

    def attach(self, trial: int, step: int, load: Callable[[], Attachment]) -> None:
        """Have `attach` of every logger called, without waiting.

        Args:
            trial: The number of the trial.
            step: The step.
            load: Reads the file, which may be gone by then; called in the thread of the logger.
        """

        def call(target: TrialLogger) -> None:
            with contextlib.suppress(ArtifactsError):
                target.attach(trial, step, load())

        for line in self._lines:
            line.put(call)

    def problems(self) -> list[str]:
        """Return what went wrong since the last call."""
        found = []
        while not self._problems.empty():
            found.append(self._problems.get())
        return found

    def close(self, timeout_s: float) -> None:
        """Wait until the loggers have written what they were given.

        Args:
            timeout_s: Seconds to wait for all of them, at most.
        """
        until_s = time.monotonic() + timeout_s
        for line in self._lines:
            line.close(until_s)


class _Line:
    """What waits for one logger, and the thread that hands it over."""

    def __init__(
        self, name: str, run: LoggedRun, problems: queue.SimpleQueue[str], max_waiting: int
    ) -> None:
        self._name, self._run, self._problems = name, run, problems
        self._waiting: queue.Queue[Callable[[Any], object] | None] = queue.Queue(max_waiting)
        self._num_left_out = 0
        self._thread = threading.Thread(target=self._serve, name=f"logger {name}", daemon=True)
        self._thread.start()

    def put(self, call: Callable[[Any], object]) -> None:
        try:
            self._waiting.put_nowait(call)
        except queue.Full:
            self._num_left_out += 1

    def close(self, until_s: float) -> None:
        try:
            self._waiting.put(None, timeout=max(0.0, until_s - time.monotonic()))
            self._thread.join(max(0.0, until_s - time.monotonic()))
        except queue.Full:
            pass
        if self._thread.is_alive():
            self._problems.put(f"{self._name} had not written everything when the run ended")
        elif self._num_left_out:
            self._problems.put(
                f"{self._name} was too slow: {self._num_left_out} reports were left out"
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
                # Only its type, as its message may hold secrets, which must not be stored.
                self._problems.put(
                    f"{self._name} receives no more trials of this run: {type(error).__name__}, "
                    "see the log of the driver"
                )

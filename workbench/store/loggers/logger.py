"""The common part of all loggers: a class that receives the trials of one run.

A new logger is a subclass in its own file and a line in `LOGGERS`, or an entry point of the group
`workbench.loggers` in another package. Its library is imported when an object is created.

A logger may be slow, hang or fail. `Forwarding` calls each in its own thread, so that it can
neither delay nor fail a run. One that fails is no longer used in this run. The caller decides what
loggers receive, and fetches their problems.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from workbench.foundation.attachments import Attachment
from workbench.foundation.errors import ArtifactsError, ExperimentError
from workbench.foundation.registry import Registry

LOGGERS = Registry(
    "logger",
    {
        "tensorboard": "workbench.store.loggers.tensorboard:TensorBoard",
        "mlflow": "workbench.store.loggers.mlflow:MLflow",
        "wandb": "workbench.store.loggers.wandb:WeightsAndBiases",
    },
    group="workbench.loggers",
)
logger = logging.getLogger(__name__)
MAX_WAITING = 10_000
"""Number of calls that may wait for one logger. More are dropped."""


@dataclass(frozen=True)
class LoggedRun:
    """The run whose trials are logged.

    Attributes:
        run_id: Its ID.
        name: The name of its experiment.
        folder: A folder on this machine for the files of loggers.
        experiment: The experiment as plain values.
    """

    run_id: str
    name: str
    folder: Path
    experiment: Mapping[str, Any]


class TrialLogger(ABC):
    """Receives the trials of a run. It is called from one thread only."""

    package: ClassVar[str]
    """The package that must be installed."""

    def __init__(self, run: LoggedRun) -> None:
        """Prepare to log the trials of a run."""
        self.run = run

    @abstractmethod
    def begin(self, trial: int, params: Mapping[str, Any]) -> None:
        """Start a trial, or continue one that an earlier attempt started.

        Args:
            trial: Its number.
            params: Its configuration.
        """

    @abstractmethod
    def report(self, trial: int, step: int, values: Mapping[str, float]) -> None:
        """Log a report of a trial.

        Args:
            trial: Its number.
            step: The step.
            values: Metrics by name. They may be NaN or infinite.
        """

    def attach(self, trial: int, step: int, attachment: Attachment) -> None:  # noqa: B027 - not all can
        """Log a picture, a table or a text of a trial.

        Args:
            trial: Its number.
            step: The step.
            attachment: The picture, table or text.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing left to write
        """Write the remaining data of unfinished trials, which another driver may continue."""

    @abstractmethod
    def end(self, trial: int, state: str) -> None:
        """End a trial.

        Args:
            trial: Its number.
            state: complete, pruned, stopped or failed.
        """


def check_logger(name: str, *, field: str, on_this_machine: bool) -> None:
    """Raise an error if a logger is unknown or its package is not installed.

    Args:
        name: Its name.
        field: The dotted field with its name.
        on_this_machine: Whether it must be installed here.

    Raises:
        ExperimentError: If it cannot be used.
    """
    package = LOGGERS.load(name, field=field).package
    if on_this_machine and importlib.util.find_spec(package) is None:
        raise ExperimentError(
            f"{name} needs the package {package!r}, which is not installed",
            field=field,
            next_step=f"Install it, or remove the logger: pip install {package}",
        )


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

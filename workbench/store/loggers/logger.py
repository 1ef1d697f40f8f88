"""The common part of all loggers: a class that receives the trials of one run.

A new logger is a subclass in its own file and a line in `LOGGERS`, or an entry point of the group
`workbench.loggers` in another package. Its library is imported when an object is created.
`forwarding` handles threads, failures and lost calls.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from workbench.foundation.attachments import Attachment
from workbench.foundation.errors import ExperimentError
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

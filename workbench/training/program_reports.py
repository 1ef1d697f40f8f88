"""Turns what a program writes into reports: which metrics belong together, and to which step.

An objective is reported at once, so that a trial can be pruned at it; other metrics are collected for up to
half a second. Which reports of many are stored is left to the worker.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from workbench.events import Event, TrialReported
from workbench.experiment import Experiment
from workbench.outside_text import storable_name
from workbench.training.outcome import Outcome, diverged, find_divergence
from workbench.training.task import TrialTask

OTHERS_EVERY_S = 0.5
MAX_NAMES = 200


class ProgramReports:
    """The reports of one attempt."""

    def __init__(self, task: TrialTask, experiment: Experiment, report: Callable[[Event], bool]) -> None:
        """Begin before the first one.

        Args:
            task: The trial.
            experiment: Its experiment.
            report: Takes events; returns whether the trial should stop.
        """
        self._task, self._report = task, report
        self._objectives = experiment.objectives
        self._metrics = frozenset(item.metric for item in experiment.objectives)
        self._counted = experiment.step
        self._started_s = time.monotonic()
        self._flushed_s = self._started_s - OTHERS_EVERY_S
        self._pending: dict[str, float] = {}
        self.step = 0
        self.values: dict[str, float] = {}
        self.names: dict[str, None] = {}
        """What was seen, the first first."""
        self.has_step = False
        self.stop = False
        self.failed: Outcome | None = None

    @property
    def is_over(self) -> bool:
        """Whether the program should end."""
        return self.stop or self.failed is not None

    def take(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Take what was written together.

        Args:
            values: Numbers by name.
            step: The step that the program states beside them, if its format has one.
        """
        if self.is_over:
            return
        named = {storable_name(name): value for name, value in values.items()}
        found = {name: value for name, value in named.items() if self._is_known(name)}
        if self._counted is not None:
            count = found.pop(self._counted, math.nan)
            if math.isfinite(count):
                self.has_step = True
                if int(count) > self.step and self._pending:
                    self._flush()  # they belong to the step before
                self.step = max(self.step, int(count))
        elif step is not None:
            self.step = max(self.step, step)
        elif self._objectives[0].metric in found:
            self.step += 1
        self._pending |= found
        if self._metrics & found.keys():
            self._flush()

    def tick(self) -> None:
        """Report what is due now."""
        if time.monotonic() - self._flushed_s >= OTHERS_EVERY_S:
            self.end()

    def end(self) -> None:
        """Report what is left."""
        if self._pending and not self.is_over:
            self._flush()

    def _flush(self) -> None:
        values, self._pending = self._pending, {}
        self._flushed_s = time.monotonic()
        self.values |= values
        event = TrialReported(
            trial=self._task.trial, attempt=self._task.attempt, step=self.step, epoch=None,
            elapsed_s=self._flushed_s - self._started_s, values=values,
        )  # fmt: skip
        self.stop = bool(self._report(event))
        name = find_divergence(self._objectives, values)
        if name is not None:
            self.failed = diverged(name, values[name], self.step, dict(self.values))

    def _is_known(self, name: str) -> bool:
        """Note a name; those beyond a limit are not kept, unless they are objectives."""
        if name not in self.names and len(self.names) < MAX_NAMES:
            self.names[name] = None
        return name in self.names or name in self._metrics or name == self._counted

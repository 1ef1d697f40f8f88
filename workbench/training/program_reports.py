"""Turns what a program writes into reports: which metrics belong together, and to which step.

An objective is reported at once, so that a trial can be pruned at it; other metrics are collected
for up to half a second. Which reports of many are stored is left to the worker.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from workbench.experiment import Experiment
from workbench.experiment.trial_value import find_divergence
from workbench.foundation.events import Event, TrialReported
from workbench.foundation.outside_text import storable_name
from workbench.training.outcome import Outcome, diverged
from workbench.training.programs.printed_metrics import Values
from workbench.training.task import TrialTask

OTHERS_EVERY_S = 0.5
MAX_NAMES = 200


class ProgramReports:
    """The reports of one attempt."""

    def __init__(
        self, task: TrialTask, experiment: Experiment, report: Callable[[Event], bool]
    ) -> None:
        """Begin before the first one.

        Args:
            task: The trial.
            experiment: Its experiment.
            report: Takes events; returns whether the trial should stop.
        """
        self._task, self._report = task, report
        self._experiment, self._objectives = experiment, experiment.objectives
        self._decisive = experiment.decisive_metrics
        self._metrics = frozenset(item.metric for item in experiment.objectives)
        self._counted = experiment.step
        self._started_s = time.monotonic()
        self._flushed_s = self._started_s - OTHERS_EVERY_S
        self._pending: dict[str, float] = {}
        self._often_unmeasured: set[str] = set()
        self.step = 0
        self.values: dict[str, float] = {}
        self.words: dict[str, str] = {}
        """What was written last in the place of a number of a metric of the experiment."""
        self.names: dict[str, None] = {}
        """What was seen, the first first."""
        self.has_step = False
        self.stop = False
        self.failed: Outcome | None = None

    @property
    def is_over(self) -> bool:
        """Whether the program should end."""
        return self.stop or self.failed is not None

    @property
    def unmeasured(self) -> tuple[str, str] | None:
        """A metric of the experiment whose number a word has taken at last, and the word.

        A word that numbers followed, as in a program that does not measure at every step, does not
        count.
        """
        return next(
            (
                (name, word)
                for name, word in self.words.items()
                if name not in self._often_unmeasured
            ),
            None,
        )

    def describe_unmeasured(self) -> str | None:
        """Describe words in the place of last numbers that do not fail the trial.

        None without any.
        """
        names = [name for name in self.words if name in self._often_unmeasured]
        if not names:
            return None
        written = ", ".join(f"{name} as {self.words[name]}" for name in names)
        return f"the program wrote {written} at last, so the last number before that counts"

    def refuse(self, name: str, why: str) -> bool:
        """Fail the trial if a metric of the experiment was reported as something else than a
        number.

        Args:
            name: What was reported.
            why: Why it is not a number, as a clause.

        Returns:
            Whether the experiment names the metric.
        """
        if name not in self._decisive:
            return False
        self.end()
        if not self.is_over:
            message = f"report.{name}: {why}"
            self.failed = Outcome("failed", self.step, dict(self.values), "error", message)
        return True

    def take(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Take what was written together.

        Args:
            values: Numbers by name, with the words in the place of others.
            step: The step that the program states beside them, if its format has one.
        """
        if self.is_over:
            return
        self._follow_words(values)
        if isinstance(values, Values) and not values:
            return
        named = {storable_name(name): value for name, value in values.items()}
        found = {name: float(value) for name, value in named.items() if self._is_known(name, value)}
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
            trial=self._task.trial,
            attempt=self._task.attempt,
            step=self.step,
            epoch=None,
            elapsed_s=self._flushed_s - self._started_s,
            values=values,
        )
        self.stop = bool(self._report(event))
        name = find_divergence(self._experiment, values)
        if name is not None:
            self.failed = diverged(name, values[name], self.step, dict(self.values))

    def _follow_words(self, values: Mapping[str, float]) -> None:
        """Remember where a word took the place of the number of a metric that the experiment
        names.
        """
        words = dict(values.words) if isinstance(values, Values) else {}
        for name in self._decisive & values.keys():
            if isinstance(values[name], bool):
                words[name] = str(values[name])
            elif self.words.pop(name, None) is not None:
                self._often_unmeasured.add(name)
        self.words |= {name: word for name, word in words.items() if name in self._decisive}

    def _is_known(self, name: str, value: float) -> bool:
        """Note a name; those beyond a limit are not kept, unless they are objectives."""
        if isinstance(value, bool) and name in self._decisive:
            return False
        if name not in self.names and len(self.names) < MAX_NAMES:
            self.names[name] = None
        return name in self.names or name in self._metrics or name == self._counted

"""What trainings showed before and at their end, as observations for a Gaussian process.

An observation states how many doublings of the rung lay between it and the end of its training:
values at different distances from the end are never compared as if they were equal.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from workbench.experiment import Experiment
from workbench.experiment.fidelity import FULL_RUNG
from workbench.experiment.goals import sign_of
from workbench.experiment.space import Fixed
from workbench.experiment.trial_value import mode_of

CURVES = "curves"
"""The attribute in which a trial of several objectives keeps what it showed at its rungs."""

# Of a curve, the last value counts, and the last ones up to a third of its rung, a ninth of it and
# so on.
_THINNING = 3
_MAX_OBSERVATIONS = 4
_FIRST_RUNG = 0.5  # what rung 0 counts as, which has no logarithm
# Values farther below the best than this many times the median is are outliers.
_FARTHEST = 5.0


@dataclass(frozen=True)
class Reading:
    """How the curves of an experiment are read.

    Attributes:
        sign: 1.0 where larger values are better, -1.0 where smaller ones are.
        num_epochs: Epochs of trainings whose parameters do not name theirs, or None if the end of a
            training is known only once it is reached.
        follows_best: Whether a trial's value is its best report, not its last one.
        full_rung: The rung of full trainings, where rungs are levels of a fidelity; else None.
    """

    sign: float = 1.0
    num_epochs: int | None = None
    follows_best: bool = False
    full_rung: int | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> list[Reading]:
        """Return how the curves of each objective are read."""
        # Curves of several objectives are what the trial would have been worth.
        several = len(experiment.objectives) > 1
        return [
            cls(
                sign=sign_of(objective.goal),
                num_epochs=stated_epochs(experiment),
                follows_best=not several and mode_of(experiment, objective) == "best",
                full_rung=None if experiment.fidelity is None else FULL_RUNG,
            )
            for objective in experiment.objectives
        ]

    def curve(self, reports: Mapping[int, float]) -> dict[int, float]:
        """Return what a trial would have been worth at each of its rungs, larger is better."""
        rungs = sorted(reports)
        values = [self.sign * reports[rung] for rung in rungs]
        return dict(
            zip(rungs, accumulate(values, max) if self.follows_best else values, strict=True)
        )

    def at_last(self, reports: Mapping[int, float], rungs: Sequence[int]) -> float:
        """Return the value of `curve` at the last of some first rungs."""
        counted = rungs if self.follows_best else rungs[-1:]
        return max(self.sign * reports[rung] for rung in counted)

    def end(self, trial: FrozenTrial, longest: int) -> float:
        """Return the rung at which a training ends unless it is stopped.

        Args:
            trial: The trial.
            longest: The last rung of the longest training so far.
        """
        if self.full_rung is not None:
            return self.full_rung
        if trial.state == TrialState.COMPLETE:
            return max(trial.intermediate_values)
        if self.num_epochs is None:
            return longest
        return float(trial.params.get("epochs", self.num_epochs))


def stated_epochs(experiment: Experiment) -> int | None:
    """Return the epochs of trainings whose parameters name none, or None if nothing does."""
    domain = experiment.search.root.get("epochs")
    if isinstance(domain, Fixed) and isinstance(domain.value, int):
        return domain.value
    return experiment.training.epochs if experiment.trains_model else None


def is_cut(trial: FrozenTrial) -> bool:
    """Return whether a trial was stopped after it had reported something."""
    return trial.state == TrialState.PRUNED and (
        bool(trial.intermediate_values) or CURVES in trial.user_attrs
    )


def of_objective(trial: FrozenTrial, index: int) -> FrozenTrial:
    """Return a trial of several objectives as if one of them were the only one."""
    shown = trial.user_attrs.get(CURVES, {})
    single = copy.copy(trial)
    single.values = None if trial.values is None else [trial.values[index]]
    single.intermediate_values = {
        rung: values[index] for rung, values in shown.items() if math.isfinite(values[index])
    }
    return single


@dataclass(frozen=True)
class Observations:
    """Observed values of some trials.

    Attributes:
        rows: Index of the trial of each observation, shape [n].
        ahead: Doublings between the observation and the end of its training, shape [n].
        values: What was observed, larger is better, shape [n].
    """

    rows: np.ndarray
    ahead: np.ndarray
    values: np.ndarray


def observe(trials: Sequence[FrozenTrial], reading: Reading) -> Observations:
    """Return what trials have shown so far, as far as they have reported anything.

    Args:
        trials: Ended and running trials, some of them with reports.
        reading: How their curves are read.
    """
    longest = max((max(trial.intermediate_values, default=0) for trial in trials), default=0)
    observed = [
        (row, ahead, value)
        for row, trial in enumerate(trials)
        for ahead, value in _seen(trial, reading, longest)
    ]
    rows, ahead, values = (np.array(column) for column in zip(*observed, strict=True))
    return Observations(rows, ahead, without_outliers(values))


def _seen(trial: FrozenTrial, reading: Reading, longest: int) -> Iterator[tuple[float, float]]:
    """Yield the doublings ahead and the value of each observation of a trial."""
    reports = trial.intermediate_values
    rungs = sorted(reports)
    end = reading.end(trial, longest) if rungs else 0.0
    num = len(rungs)
    if trial.state == TrialState.COMPLETE:
        assert trial.value is not None
        yield 0.0, reading.sign * trial.value
        num = bisect_left(rungs, end)
    for _ in range(_MAX_OBSERVATIONS):
        if num == 0:
            break
        rung = rungs[num - 1]
        yield (
            math.log2(max(end / max(rung, _FIRST_RUNG), 1.0)),
            reading.at_last(reports, rungs[:num]),
        )
        num = min(bisect_right(rungs, rung // _THINNING), num - 1)


def without_outliers(values: np.ndarray, middle: float | None = None) -> np.ndarray:
    """Raise values far below the rest.

    A training that diverged tells nothing about the others' units.

    Args:
        values: Larger is better.
        middle: A usual value, or None for their median.
    """
    best = float(values.max())
    if middle is None:
        middle = float(np.median(values))
    if best <= middle:
        return values
    return np.maximum(values, best - _FARTHEST * (best - middle))


def result_values(
    trials: Sequence[FrozenTrial], sign: float, forecasts: np.ndarray | None = None
) -> np.ndarray:
    """Return what each trial is worth, larger is better.

    A pruned trial counts as its forecast. One that could not be trained (out of memory, diverged)
    counts as the worst, and one that failed as the median, because another cause than its
    configuration is possible.

    Args:
        trials: Trials that have ended. Where none has a value, all are worth 0.
        sign: 1.0 where larger values are better, -1.0 where smaller ones are.
        forecasts: Where each trial would have ended, larger is better, if any of them was pruned.
    """
    values = np.full(len(trials), math.nan)
    for index, trial in enumerate(trials):
        if trial.state == TrialState.COMPLETE:
            assert trial.value is not None
            values[index] = sign * trial.value
        elif forecasts is not None and is_cut(trial):
            values[index] = forecasts[index]
    known = values[np.isfinite(values)]
    if not len(known):
        return np.zeros(len(trials))
    failed = np.array([trial.state == TrialState.FAIL for trial in trials])
    return np.where(np.isnan(values), np.where(failed, np.median(known), known.min()), values)


def is_decision(rungs: Sequence[int], grace: int) -> bool:
    """Return whether a pruner that forecasts curves decides at the last rung.

    It does so at `grace`, and then after each half of a doubling.

    Args:
        rungs: Rungs that a trial has reported, ascending.
        grace: The first rung at which it may be stopped, at least 1.
    """
    num_due = [
        math.floor(2 * math.log2(rung / grace)) + 1 if rung >= grace else 0
        for rung in (0, *rungs)[-2:]
    ]
    return num_due[-1] > num_due[0]

"""Turns the reports of trainings into observations for a Gaussian process.

An observation has its distance from the end of the training, in doublings of the rung. Values at
different distances are never compared as if they were equal.
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
"""The attribute in which a trial with several objectives stores their values at its rungs."""

# A curve becomes a few observations: its last value, the last value up to a third of that rung, up
# to a ninth, and so on.
_THINNING = 3
_MAX_OBSERVATIONS = 4
_FIRST_RUNG = 0.5  # counts as rung 0, which has no logarithm
# A value is an outlier if its distance from the best is more than this many times the median's.
_FARTHEST = 5.0


@dataclass(frozen=True)
class Reading:
    """How to read the curves of an experiment.

    Attributes:
        sign: 1.0 if larger values are better, -1.0 if smaller values are.
        num_epochs: Epochs of trainings without a parameter `epochs`, or None if the end of a
            training is only known when it is reached.
        follows_best: Whether the value of a trial is its best report instead of its last one.
        full_rung: The rung of full trainings if rungs are levels of a fidelity, otherwise None.
    """

    sign: float = 1.0
    num_epochs: int | None = None
    follows_best: bool = False
    full_rung: int | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> list[Reading]:
        """Return how to read the curves of each objective."""
        # With several objectives, the stored curves already contain the best values.
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
        """Return the value that a trial would have had at each of its rungs. Larger is better."""
        rungs = sorted(reports)
        values = [self.sign * reports[rung] for rung in rungs]
        return dict(
            zip(rungs, accumulate(values, max) if self.follows_best else values, strict=True)
        )

    def at_last(self, reports: Mapping[int, float], rungs: Sequence[int]) -> float:
        """Return the value of `curve` at the last of these rungs, which include all before it."""
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
    """Return the epochs of trainings without a searched `epochs`, or None if unknown."""
    domain = experiment.search.root.get("epochs")
    if isinstance(domain, Fixed) and isinstance(domain.value, int):
        return domain.value
    return experiment.training.epochs if experiment.trains_model else None


def is_cut(trial: FrozenTrial) -> bool:
    """Return whether a trial was stopped after at least one report."""
    return trial.state == TrialState.PRUNED and (
        bool(trial.intermediate_values) or CURVES in trial.user_attrs
    )


def of_objective(trial: FrozenTrial, index: int) -> FrozenTrial:
    """Return a trial with several objectives as if it had only one of them."""
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
        values: The observed values, shape [n]. Larger is better.
    """

    rows: np.ndarray
    ahead: np.ndarray
    values: np.ndarray


def observe(trials: Sequence[FrozenTrial], reading: Reading) -> Observations:
    """Return the observations of trials that have reported anything.

    Args:
        trials: Ended and running trials, some of them with reports.
        reading: How to read their curves.
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
    """Raise values that are far below the rest.

    Otherwise, one training that diverged would determine the scale of all values.

    Args:
        values: The values. Larger is better.
        middle: A usual value, or None for the median of the values.
    """
    if not len(values):
        return values
    best = float(values.max())
    if middle is None:
        middle = float(np.median(values))
    if best <= middle:
        return values
    return np.maximum(values, best - _FARTHEST * (best - middle))


def result_values(
    trials: Sequence[FrozenTrial], sign: float, forecasts: np.ndarray | None = None
) -> np.ndarray:
    """Return a value for each trial. Larger is better.

    A pruned trial gets its forecast. A trial that ran out of memory or diverged gets the worst
    value. A trial that failed for another reason gets the median, because the reason may have
    nothing to do with its configuration.

    Args:
        trials: Trials that have ended. If none has a value, all values are 0.
        sign: 1.0 if larger values are better, -1.0 if smaller values are.
        forecasts: The forecast final value of each trial, larger is better. None if no trial was
            pruned.
    """
    values = np.full(len(trials), math.nan)
    for index, trial in enumerate(trials):
        if trial.state == TrialState.COMPLETE:
            assert trial.value is not None
            values[index] = sign * trial.value
        elif forecasts is not None and is_cut(trial):
            values[index] = forecasts[index]
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.zeros(len(trials))
    failed = np.array([trial.state == TrialState.FAIL for trial in trials])
    return np.where(np.isnan(values), np.where(failed, np.median(finite), finite.min()), values)


def is_decision(rungs: Sequence[int], grace: int) -> bool:
    """Return whether a pruner that forecasts curves makes a decision at the last rung.

    It decides at `grace`, and then after each half of a doubling.

    Args:
        rungs: Rungs that a trial has reported, ascending.
        grace: The first rung at which it may be stopped, at least 1.
    """
    num_due = [
        math.floor(2 * math.log2(rung / grace)) + 1 if rung >= grace else 0
        for rung in (0, *rungs)[-2:]
    ]
    return num_due[-1] > num_due[0]

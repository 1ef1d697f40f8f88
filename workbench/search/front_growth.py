"""How much trainings and configurations are expected to extend a Pareto front.

The pruner forecasts the end of a training from its learning curves. Proposals predict each
objective of a configuration by a model. Both measure the hypervolume that is gained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from workbench.search.first_configurations import spread_points
from workbench.search.optuna_versions import keeps_limits
from workbench.search.partial_results import (
    CURVES,
    Reading,
    is_decision,
    of_objective,
    without_outliers,
)

if TYPE_CHECKING:
    from workbench.search.curves import Curve

# Complete trials that make a front meaningful, and how many of the latest curves are compared.
_MIN_COMPLETE = 4
_MAX_CURVES = 100
_NUM_DRAWS = 128
_NUM_POINTS = 2048
# Lines through the space of objectives along which the expected gain is integrated.
_NUM_LINES = 64
# Gains count this far beyond the front, as a share of its extent. Otherwise points that extend the
# ends of the front would be worth nothing.
_BEYOND_FRONT = 1.0
# A trial must add this share of the front's hypervolume to be worth its training.
_MIN_GAIN = 0.01


class FrontPruner(BasePruner):
    """Stops a trial that is unlikely to add to the hypervolume of the front."""

    def __init__(self, chance: float, grace: int, readings: Sequence[Reading]) -> None:
        """Make the pruner.

        Args:
            chance: A trial is stopped if its probability to extend the front is lower, in (0, 0.5).
            grace: Rungs before the first decision. Further decisions follow after each half of a
                doubling.
            readings: How to read the curves of each objective.
        """
        self.chance = chance
        """A trial that is less likely to extend the front is stopped."""
        self._grace = grace
        self._readings = readings
        self._ended: dict[tuple[int, int], Curve | None] = {}
        """A cache of the curves of ended trials, by trial and objective."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether the trial is unlikely to extend the front."""
        rungs = sorted(trial.user_attrs.get(CURVES, {}))
        return is_decision(rungs, self._grace) and self.chance_of_gain(study, trial) < self.chance

    def chance_of_gain(self, study: optuna.Study, trial: FrozenTrial) -> float:
        """Return the probability that a trial extends the front, or 1 if too little is known."""
        rungs = sorted(trial.user_attrs[CURVES])
        others = [
            other for other in study.get_trials(deepcopy=False) if other.number != trial.number
        ]
        complete = [
            other for other in others if other.state == TrialState.COMPLETE and keeps_limits(other)
        ]
        longest = max(
            (rung for other in complete for rung in other.user_attrs.get(CURVES, {})), default=0
        )
        end = self._readings[0].end(trial, longest)
        if len(complete) < _MIN_COMPLETE or end <= rungs[-1]:
            return 1.0
        signs = [reading.sign for reading in self._readings]
        ended = np.array([other.values for other in complete]) * signs
        ends = self._draw_ends(trial, others, end, ended)
        return 1.0 if ends is None else float((gains(ends, ended) > _MIN_GAIN).mean())

    def _draw_ends(
        self, trial: FrozenTrial, others: Sequence[FrozenTrial], end: float, ended: np.ndarray
    ) -> np.ndarray | None:
        """Draw final values of a trial, or return None if an objective has no forecast.

        An objective that is only reported at the end is assumed to become as good as the best value
        so far, so that no trial is stopped because of it.

        Returns:
            Shape [draws, objectives].
        """
        from scipy.special import stdtrit  # imports SciPy, which light installations omit

        from workbench.search.curves import forecast

        shares, columns = spread_points(_NUM_DRAWS, len(self._readings)), list[np.ndarray]()
        for index in range(len(self._readings)):
            trials = (trial, *others[-_MAX_CURVES:])
            curve, *known = (self._curve(other, index) for other in trials)
            if curve is None:
                columns.append(np.full(_NUM_DRAWS, ended[:, index].max()))
                continue
            last = forecast(curve, end, [other for other in known if other is not None])
            if last is None:
                return None
            columns.append(last.mean + last.deviation * stdtrit(last.freedom, shares[:, index]))
        return np.column_stack(columns)

    def _curve(self, trial: FrozenTrial, index: int) -> Curve | None:
        """Return the curve of a trial by one objective, or None if it has no reports."""
        from workbench.search.curves import Curve

        if (key := (trial.number, index)) in self._ended:
            return self._ended[key]
        curve = Curve.of(
            self._readings[index].curve(of_objective(trial, index).intermediate_values)
        )
        if trial.state.is_finished():
            self._ended[key] = curve
        return curve


def gains(ends: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return how much each point adds to the hypervolume of the known points, as a share of it.

    The reference point is the worst known value of each objective, without outliers. Volumes are
    estimated by counting evenly spread points, to within a few thousandths.

    Args:
        ends: The points, larger is better, shape [n, objectives].
        known: The known points, shape [k, objectives].

    Returns:
        Shape [n].
    """
    known = np.column_stack([without_outliers(column) for column in known.T])
    low, best = known.min(0), known.max(0)
    size = np.maximum(best - low, 1e-12)
    # Forecasts from few examples have heavy tails. Without a limit, the box would be so large that
    # few of the points would be near the front.
    places = np.minimum((ends - low) / size, 2.0)
    high = np.maximum(places.max(0), 1.0)
    points = spread_points(_NUM_POINTS, known.shape[1]) * high
    is_free = ~_covers((known - low) / size, points).any(0)
    covered = max(1.0 - float(is_free.mean()), 1.0 / _NUM_POINTS)
    return _covers(places, points[is_free]).sum(1) / _NUM_POINTS / covered


class ExpectedGain:
    """The expected growth of the hypervolume if each objective is normally distributed.

    The space of all objectives but the last is sampled by many lines. Along each line, the last
    objective is integrated exactly. The gains are correct to within a few hundredths.

    Source: Yang, Emmerich, Deutz and Bäck, Efficient computation of expected hypervolume
    improvement, Journal of Global Optimization 75, 2019: the integral that is computed here, over
    other cells.
    """

    def __init__(self, known: np.ndarray) -> None:
        """Find the space that the known values do not dominate.

        Args:
            known: Values, larger is better, shape [k, objectives], two or more objectives.
        """
        front = known[is_on_front(known)]
        size = np.ptp(front, axis=0)
        size = np.where(size > 1e-9, size, 1.0)
        low, high = front.min(0) - _BEYOND_FRONT * size, front.max(0) + _BEYOND_FRONT * size
        self._lines = low[:-1] + spread_points(_NUM_LINES, known.shape[1] - 1) * (high - low)[:-1]
        beaten = np.where(_covers(front[:, :-1], self._lines), front[:, -1:], low[-1])
        self._bounds = beaten.max(0)

    def log_of(self, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
        """Return the logarithm of the expected gains of configurations, up to a constant.

        Args:
            means: The predictions for each configuration, shape [n, objectives].
            deviations: Their standard deviations, shape [n, objectives].

        Returns:
            Shape [n].
        """
        from scipy.special import ndtr  # imports SciPy, which light installations omit

        from workbench.search.acquisition_search import expected_improvement

        # On each line, the expected improvement over the front in the last objective, times the
        # probability that all other objectives reach the line.
        by_line = expected_improvement(means[:, -1:], deviations[:, -1:], self._bounds)
        for index, places in enumerate(self._lines.T):
            by_line *= ndtr((means[:, index, None] - places) / deviations[:, index, None])
        return np.log(by_line.mean(1) + 1e-300)


def _covers(places: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return whether each place is at least as good as each point, shape [places, points]."""
    return np.all(places[:, None, :] >= points[None, :, :], axis=-1)


def is_on_front(values: np.ndarray) -> np.ndarray:
    """Return which rows no other row dominates. Larger is better.

    Args:
        values: Shape [n, objectives].

    Returns:
        Shape [n].
    """
    at_least = _covers(values, values)
    return np.logical_not(np.any(at_least & ~at_least.T, axis=0))

"""Forecasts the last value of a learning curve from the shape of other curves.

On a logarithmic axis of rungs, curves have similar shapes. The gain that is still ahead depends on
the level of the curve, on the gain of its last doubling, and on the number of doublings that are
left. `pruners` decides which trainings to stop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import stdtr

from workbench.search.partial_results import without_outliers

# A curve is also an example at earlier rungs, up to this many doublings back. Each step back halves
# the weight of the example.
_MAX_DOUBLINGS_BACK = 3
# Priors of the coefficients, in units of the spread: the gain at the mean level, the effect of the
# level, and the effect of the last doubling's gain. A priori, a curve gains as much again as in its
# last doubling.
_COEFFICIENT_MEANS = np.array([0.0, 0.0, 1.0])
_COEFFICIENT_SDS = np.array([0.5, 0.3, 1.0])
_NOISE_SD = 0.15
_NOISE_EXAMPLES = 2.0
"""The weight of the prior of the noise, in examples."""
_TOLERANCE = 0.1  # doublings by which an example may end too early
_LEAST = 1e-12
_NO_EXAMPLES = np.empty((0, 4))
_NUM_KEPT = 4096  # cached examples, by curve, rung and doublings to the end


@dataclass(frozen=True, eq=False)
class Curve:
    """The reports of a training.

    Attributes:
        doublings: Logarithms of the rungs to the base 2, ascending, shape [reports].
        values: The reported values, shape [reports].
    """

    doublings: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, reports: Mapping[int, float]) -> Curve | None:
        """Return the curve of reports by rung, or None if there is no report above rung 0."""
        rungs = sorted(rung for rung in reports if rung > 0)
        if not rungs:
            return None
        return cls(
            np.log2(np.array(rungs, dtype=float)), np.array([reports[rung] for rung in rungs])
        )

    def at(self, doublings: float) -> float:
        """Return the interpolated value at a logarithm of a rung."""
        return float(np.interp(doublings, self.doublings, self.values))


@dataclass(frozen=True)
class Forecast:
    """A Student t distribution of the last value of a curve.

    Attributes:
        mean: The centre.
        deviation: The scale.
        freedom: The degrees of freedom.
    """

    mean: float
    deviation: float
    freedom: float

    def chance_below(self, bound: float) -> float:
        """Return the probability that the curve ends below a value."""
        return float(stdtr(self.freedom, (bound - self.mean) / self.deviation))


def forecast(curve: Curve, end: float, others: Sequence[Curve]) -> Forecast | None:
    """Forecast the last value of a curve by Bayesian linear regression.

    The regressors are the level of the curve and the gain of its last doubling.

    Source: Gelman et al., Bayesian Data Analysis, 3rd edition, 2013, section 14.8 (normal data,
    conjugate prior). A curve's own doubling is the power law of Domhan et al., IJCAI 2015, to first
    order.

    Args:
        curve: The curve so far.
        end: Rung of its last report, above those so far.
        others: Curves of other trainings, ended or not.

    Returns:
        The distribution, or None if no other curve is long enough.
    """
    here = float(curve.doublings[-1])
    examples = _examples(here, math.log2(end) - here, others)
    if not len(examples):
        return None
    before, level, last = (without_outliers(column) for column in examples.T[:3])
    weight = examples[:, 3]
    spread = max(float(level.std()), float(np.abs(last - level).max()), _LEAST)
    centre = float(np.average(level, weights=weight))
    at, was = float(curve.values[-1]), curve.at(here - 1)
    design = np.column_stack(
        [np.ones(len(level)), (level - centre) / spread, (level - before) / spread]
    )
    place = np.array([1.0, (at - centre) / spread, (at - was) / spread])
    # Curves at other levels say less about this one, so they weigh less.
    weight = weight / (1.0 + ((level - at) / max(float(level.std()), _LEAST)) ** 2)
    # With a conjugate prior, the posterior has a closed form. Regressing on the residuals of the
    # prior means gives corrections to these means.
    unexplained = (last - level) / spread - design @ _COEFFICIENT_MEANS
    precision = np.diag((_NOISE_SD / _COEFFICIENT_SDS) ** 2) + design.T @ (weight[:, None] * design)
    covariance = np.linalg.inv(precision)
    correction = covariance @ (design.T @ (weight * unexplained))
    freedom = _NOISE_EXAMPLES + float(weight.sum())
    squares = _NOISE_EXAMPLES * _NOISE_SD**2 + float(
        weight @ unexplained**2 - correction @ precision @ correction
    )
    variance = max(squares, _LEAST) / freedom * float(1.0 + place @ covariance @ place)
    gain = float(place @ (correction + _COEFFICIENT_MEANS))
    return Forecast(at + spread * gain, spread * math.sqrt(variance), freedom)


def _examples(here: float, ahead: float, others: Sequence[Curve]) -> np.ndarray:
    """Return examples of how curves continued from this rung and from a few doublings before it.

    Args:
        here: The rung, in doublings.
        ahead: Doublings from there to the end.
        others: The curves.

    Returns:
        Shape [examples, 4]: the value one doubling before, the value there, the value at the end,
        and the weight of the example.
    """
    return np.concatenate([_NO_EXAMPLES, *(_examples_of(other, here, ahead) for other in others)])


@lru_cache(_NUM_KEPT)
def _examples_of(other: Curve, here: float, ahead: float) -> np.ndarray:
    """Return the examples of one curve, as in `_examples`.

    The cache helps because trials are only judged at a few rungs.
    """
    starts = here - np.arange(_MAX_DOUBLINGS_BACK + 1.0)
    covers = (other.doublings[0] <= starts) & (starts + ahead <= other.doublings[-1] + _TOLERANCE)
    if not covers.any():
        return _NO_EXAMPLES
    places, weights = np.concatenate([starts - 1, starts, starts + ahead]), 0.5 ** (here - starts)
    values = np.interp(places, other.doublings, other.values).reshape(3, -1)
    return np.vstack([values, weights])[:, covers].T

"""A sequential test: is a candidate better than a baseline, or are more trainings needed?

It may be looked at after every training of the candidate, and the probability of a wrong claim
holds over all looks. The spread of the trainings is estimated from both sides and from the noise
floor.

Source: Lan and DeMets, Discrete sequential boundaries for clinical trials, 1983 (spending of the
error); Armitage, McPherson and Rowe, Repeated significance tests on accumulating data, 1969
(integration over the looks); Jennison and Turnbull, Group sequential methods, 2000 (quantiles of
Student's distribution, repeated confidence intervals, predictive futility).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from scipy.special import fdtrc, ndtr, ndtri, stdtr, stdtrit

from workbench.foundation.errors import ArgumentError
from workbench.store.history.noise_floor import NoiseFloor

Array = Any
"""A number, or an array of numbers."""
Verdict = Literal["better", "not better", "more"]

ERROR = 0.05
"""The allowed probability of a wrong claim, over all looks together."""
MAX_RUNS = 6
"""The candidate runs after which a decision is made in any case."""
MOST_RUNS = 100
"""The largest limit for candidate runs. Computing the boundaries takes a few seconds for it."""
# The share of the error for the lower bound, which decides. The upper bound only informs.
_SHARE_OF_LOW = 0.95
# The error that is spent by a share t of the information is error * t**4: little at first, when the
# spread is known least.
_SPENDING_POWER = 4
_HOPELESS = 0.05
# The baseline has its own spread if chance explains with at most this probability that its runs
# differ so much more than the floor says. A larger share would miss more true gains.
_UNLIKE = 0.02
# The variance of a candidate is estimated from its results. The variance of the baseline is added
# with the weight of a part of its degrees of freedom, at most `_PRIOR_DEGREES`, and the estimate is
# at least `_LEAST_PART` of it.
_PRIOR_DEGREES = 1.0
_PRIOR_PART = 1 / 3
_LEAST_PART = 0.8
# The spread of the baseline says something about the candidate only while both look alike: chance
# explains with more than this probability that the candidate scatters so much more. Otherwise the
# candidate must pass Welch's test with its own spread alone, at this part of the error.
_ALIKE = 0.05
_PART_OF_UNLIKE = 0.2
# The boundaries hold for a spread that is known. With an estimate of few degrees of freedom, more
# statistics cross them. With up to `_FEW_DEGREES` of the baseline, only this part of the error is
# spent, which keeps it in simulations.
_FEW_DEGREES = 1
_PART_OF_FEW = 0.7
_NUM_FUTURES = 2000
_NUM_DEGREES = 40
_SEED = 54
# The density of the statistic is integrated over `_REACH` standard deviations, with at least
# `_MIN_POINTS` points and `_POINTS_PER_STEP` points in a standard deviation of the next step.
_REACH = 8.0
_MIN_POINTS = 121
_POINTS_PER_STEP = 4.0
_NUM_HALVINGS = 60
# A chance of success is estimated from this many futures with a similar statistic.
_NUM_SIMILAR = 100


@dataclass(frozen=True)
class Decision:
    """What the trainings say about a candidate.

    Attributes:
        decision: `better`, `not better` (the limit is reached, or success within it is unlikely),
            or `more` trainings are needed.
        probability: Probability that the effect is above 0.
        effect: Improvement over the baseline in the unit of the metric, positive if the candidate
            is better. None before both have a result.
        low: Lower bound of the effect, valid at every look. None if there is none.
        high: Its upper bound.
        more_runs: Candidate runs that are still expected, 0 after a decision.
    """

    decision: Verdict
    probability: float
    effect: float | None
    low: float | None
    high: float | None
    more_runs: int


@dataclass(frozen=True)
class CurveEvidence:
    """The effect as it is expected if the curves of unfinished trainings are used as well.

    It only sharpens the probability: a decision needs results.

    Attributes:
        effect: The expected improvement over the baseline.
        variance: Variance of this estimate if a result had the variance 1.
    """

    effect: float
    variance: float


@dataclass(frozen=True)
class _Looks:
    """The quantiles of the normal distribution at which a look ends the test, by look."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class _Spread:
    """What is known about the variance of the results of one side.

    Attributes:
        variance: The estimate, at least 0.
        degrees: Degrees of freedom behind it, above 0.
    """

    variance: float
    degrees: float


@dataclass(frozen=True)
class _Evidence:
    """What the finished trainings say. Larger values are better."""

    num_baseline: int
    num_candidate: int
    effect: float
    baseline: _Spread
    squares: float
    """Squared deviations of the candidate's results from their mean."""
    least_variance: float
    """Variance that rounding may hide if there is no floor."""
    is_shared: bool
    """Whether only the candidate shows the spread of both sides."""
    own_variance: float | None
    """Variance of the baseline's own results. None if there is only one."""

    @property
    def candidate(self) -> _Spread:
        """The spread of the candidate."""
        variance, degrees = self._candidate_after(self.squares, self.num_candidate)
        return _Spread(float(variance), float(degrees))

    @property
    def of_effect(self) -> _Spread:
        """The variance of the effect."""
        variance, degrees = self.effect_after(self.squares, self.num_candidate)
        return _Spread(float(variance), float(degrees))

    def effect_after(self, squares: Array, num: Array) -> tuple[Array, Array]:
        """Return the variance of the effect after some runs, and its degrees of freedom.

        Args:
            squares: Squared deviations of the candidate's results from their mean.
            num: How many results these are.
        """
        variance, degrees = self._candidate_after(squares, num)
        if self.is_shared:
            return variance * (1 / self.num_baseline + 1 / num), degrees
        return _variance_of_effect(
            self.baseline.variance / self.num_baseline,
            self.baseline.degrees,
            variance / num,
            degrees,
        )

    def is_alike(self, squares: Array, num: Array) -> Array:
        """Return whether the candidate scatters no more than chance explains.

        Args:
            squares: Squared deviations of the candidate's results from their mean.
            num: How many results these are, at least 2.

        Source: the F test.
        """
        ratio = _ratio(squares / (num - 1), self.baseline.variance)
        return fdtrc(num - 1, self.baseline.degrees, ratio) > _ALIKE

    def unequal_effect(self, squares: Array, num: Array) -> tuple[Array, Array]:
        """Return the variance of the effect if the floor says nothing about the candidate.

        If the baseline has only one result, nothing says any more that the floor fits it either. It
        then counts with the spread of the candidate.

        Args:
            squares: Squared deviations of the candidate's results from their mean.
            num: How many results these are, at least 2.

        Returns:
            The variance and its degrees of freedom.
        """
        variance = np.maximum(squares / (num - 1), self.least_variance)
        if self.own_variance is None:
            return variance * (1 / self.num_baseline + 1 / num), num - 1
        return _variance_of_effect(
            max(self.baseline.variance, self.own_variance) / self.num_baseline,
            self.baseline.degrees,
            variance / num,
            num - 1,
        )

    def _candidate_after(self, squares: Array, num: Array) -> tuple[Array, Array]:
        """Return the variance of the candidate after some runs, and its degrees of freedom.

        A change may have made it larger. The variance of the baseline is added with a small weight,
        so that two results that agree by chance do not show that there is no noise. For the same
        reason, the estimate is never far below the variance of the baseline.
        """
        if self.is_shared:
            return np.maximum(squares / (num - 1), self.least_variance), num - 1
        expected = self.baseline.variance
        prior = min(_PRIOR_DEGREES, _PRIOR_PART * self.baseline.degrees)
        variance = (prior * expected + squares) / (prior + num - 1)
        variance = np.maximum(variance, _LEAST_PART * expected)
        return np.maximum(variance, self.least_variance), prior + num - 1


def check_limits(error: float, max_runs: int) -> None:
    """Check the settings of a test.

    Args:
        error: Allowed probability of a wrong claim.
        max_runs: Limit for the candidate runs.

    Raises:
        ArgumentError: If one of them is out of range.
    """
    if not 0 < error < 0.5:
        raise ArgumentError(
            f"{error:g} is not valid", field="error", allowed="a number above 0 and below 0.5"
        )
    if not 1 <= max_runs <= MOST_RUNS:
        raise ArgumentError(
            f"{max_runs} is not valid", field="max_runs", allowed=f"from 1 to {MOST_RUNS}"
        )


def decide(
    baseline: Sequence[float],
    candidate: Sequence[float],
    floor: NoiseFloor | None = None,
    *,
    error: float = ERROR,
    max_runs: int = MAX_RUNS,
    curves: CurveEvidence | None = None,
) -> Decision:
    """Decide whether a candidate is better than a baseline, from finished trainings.

    Args:
        baseline: Results of the baseline, all finite. Larger is better.
        candidate: Results of the candidate in the order in which they came. Only the first
            `max_runs` are used.
        floor: What is known about the spread of such trainings.
        error: Allowed probability of a wrong claim over all looks, above 0 and below 0.5.
        max_runs: Limit for the candidate runs, from 1 to `MOST_RUNS`.
        curves: What the curves of unfinished trainings add to the probability.

    Raises:
        ArgumentError: If `error` or `max_runs` is out of range.

    Example:
        >>> decide([0.90, 0.91, 0.90, 0.89], [0.97, 0.96, 0.98]).decision
        'better'
    """
    check_limits(error, max_runs)
    candidate = candidate[:max_runs]
    left = max_runs - len(candidate)
    if not baseline or not candidate:
        return Decision(
            decision="more",
            probability=0.5,
            effect=None,
            low=None,
            high=None,
            more_runs=max(1, left),
        )
    evidence = _evidence_of(baseline, candidate, floor)
    if evidence is None:
        effect = float(np.mean(candidate) - np.mean(baseline))
        return Decision(
            decision="more",
            probability=0.5,
            effect=effect,
            low=None,
            high=None,
            more_runs=max(1, left),
        )
    is_few = evidence.is_shared or evidence.baseline.degrees <= _FEW_DEGREES
    looks = _looks_of(len(baseline), max_runs, _PART_OF_FEW * error if is_few else error)
    low, high = _bounds(evidence, looks, error)
    decision, more_runs = _conclude(evidence, looks, low, error)
    probability = _probability(evidence, curves)
    return Decision(
        decision=decision,
        probability=probability,
        effect=evidence.effect,
        low=low,
        high=high,
        more_runs=more_runs,
    )


def _evidence_of(
    baseline: Sequence[float], candidate: Sequence[float], floor: NoiseFloor | None
) -> _Evidence | None:
    """Return the evidence, or None if nothing says how much the results of the baseline differ."""
    first, second = np.asarray(baseline, dtype=float), np.asarray(candidate, dtype=float)
    squares = [float(np.sum((side - side.mean()) ** 2)) for side in (first, second)]
    least_variance, is_shared = 0.0, False
    if floor is None:
        least_variance = _rounding_variance(np.concatenate([first, second]))
        known, degrees = squares[0], float(len(first) - 1)
        if not degrees:  # without repeats of the baseline, those of the candidate have to do
            known, degrees, is_shared = squares[1], float(len(second) - 1), True
    else:
        known = squares[0] + floor.deviation**2 * floor.num_degrees
        degrees = floor.num_degrees + len(first) - 1
    if not degrees:
        return None
    own = _Spread(squares[0] / max(len(first) - 1, 1), len(first) - 1)
    common = _Spread(max(known / degrees, least_variance), degrees)
    return _Evidence(
        num_baseline=len(first),
        num_candidate=len(second),
        effect=float(second.mean() - first.mean()),
        baseline=own if floor is not None and _is_unlike(own, floor) else common,
        squares=squares[1],
        least_variance=least_variance,
        is_shared=is_shared,
        own_variance=own.variance if own.degrees else None,
    )


def _is_unlike(own: _Spread, floor: NoiseFloor) -> bool:
    """Return whether the baseline differs more than chance explains if the floor is true.

    Source: the F test.
    """
    if own.degrees <= 0:
        return False
    ratio = _ratio(own.variance, floor.deviation**2)
    return float(fdtrc(own.degrees, floor.num_degrees, ratio)) < _UNLIKE


def _ratio(first: Array, second: Array) -> Array:
    """Divide by a number from 0. What is too large for a number is infinite."""
    with np.errstate(over="ignore"):
        return np.divide(first, np.maximum(second, sys.float_info.min))


def _variance_of_effect(
    first: float, first_degrees: float, second: Array, second_degrees: Array
) -> tuple[Array, Array]:
    """Return the variance of the difference of two means, and its degrees of freedom.

    Args:
        first: Variance of the mean of the baseline.
        first_degrees: Degrees of freedom behind it.
        second: Variance of the mean of the candidate.
        second_degrees: Degrees of freedom behind it.

    Source: Welch, The generalization of Student's problem when several different population
    variances are involved, 1947.
    """
    variance = first + second
    # Shares of the variance, because squares of variances may be too small for a number.
    whole = np.where(variance > 0, variance, 1.0)
    share = np.where(variance > 0, first / whole, 0.5)
    return variance, 1 / (share**2 / first_degrees + (1 - share) ** 2 / second_degrees)


def _rounding_variance(values: np.ndarray) -> float:
    """Return the variance that rounding may hide: of a uniform error of one step.

    The smallest difference between two values is taken for the step. If repeats agree exactly, the
    spread is not 0 but below the step.

    Source: Sheppard, On the calculation of the most probable values of frequency constants, 1898.
    """
    gaps = np.diff(np.unique(values))
    if not gaps.size:
        return 0.0
    return float(gaps.min()) ** 2 / 12


def _bounds(evidence: _Evidence, looks: _Looks, error: float) -> tuple[float, float]:
    spread, look = evidence.of_effect, evidence.num_candidate - 1
    scale = math.sqrt(spread.variance)
    low = evidence.effect - float(_of_student(looks.low[look], spread.degrees)) * scale
    high = evidence.effect + float(_of_student(looks.high[look], spread.degrees)) * scale
    squares, num = evidence.squares, evidence.num_candidate
    if num > 1 and not evidence.is_shared and not evidence.is_alike(squares, num):
        variance, degrees = evidence.unequal_effect(squares, num)
        quantile = -stdtrit(degrees, _PART_OF_UNLIKE * error)
        low = min(low, evidence.effect - float(quantile * np.sqrt(variance)))
    return low, high


def _probability(evidence: _Evidence, curves: CurveEvidence | None) -> float:
    effect, spread = evidence.effect, evidence.of_effect
    scale = math.sqrt(spread.variance)
    if curves is not None:
        effect = curves.effect
        scale *= math.sqrt(
            curves.variance / (1 / evidence.num_baseline + 1 / evidence.num_candidate)
        )
    if scale == 0:
        return 0.5
    return float(stdtr(spread.degrees, effect / scale))


def _conclude(evidence: _Evidence, looks: _Looks, low: float, error: float) -> tuple[Verdict, int]:
    """Return the decision and the number of runs that are still expected."""
    if low > 0:
        return "better", 0
    if evidence.num_candidate == len(looks.low):
        return "not better", 0
    if (
        evidence.of_effect.variance == 0
    ):  # all results are equal, and nothing says how much they may differ
        return "more", len(looks.low) - evidence.num_candidate
    chance, more_runs = _foresee(evidence, looks, error)
    if chance < _HOPELESS:
        return "not better", 0
    return "more", max(1, round(more_runs))


def _of_student(quantile: float, degrees: Array) -> Array:
    """Return the quantile of Student's distribution with the probability of a normal quantile."""
    return -stdtrit(degrees, ndtr(-quantile))


def _foresee(evidence: _Evidence, looks: _Looks, error: float) -> tuple[float, float]:
    """Return the chance of success within the limit, and how many runs a decision will take.

    Futures are drawn from what is known: the variance, the mean of the candidate, its next runs.
    """
    random = np.random.default_rng(_SEED)
    now, last = evidence.num_candidate, len(looks.low)
    # While it has few results of its own, the candidate most likely scatters like the baseline.
    spread = max(evidence.candidate, evidence.baseline, key=lambda spread: spread.degrees)
    chi_square = random.chisquare(spread.degrees, _NUM_FUTURES)
    deviation = np.sqrt(spread.variance * spread.degrees / chi_square)
    shift = deviation * random.standard_normal(_NUM_FUTURES) / math.sqrt(now)
    drawn = random.standard_normal((_NUM_FUTURES, last - now))
    runs = shift[:, None] + deviation[:, None] * drawn  # relative to the candidate's present mean
    counts = np.arange(now + 1, last + 1)
    means = np.cumsum(runs, axis=1) / counts
    squares = evidence.squares + np.cumsum(runs**2, axis=1) - counts * means**2
    variances, degrees = evidence.effect_after(squares, counts)
    statistics = _ratio(evidence.effect + means, np.sqrt(variances))
    probabilities = ndtr(-np.array(looks.low[now:]))
    is_success = statistics > _quantiles(degrees, variances.shape, probabilities)
    if not evidence.is_shared:
        variances, degrees = evidence.unequal_effect(squares, counts)
        probabilities = np.full(len(counts), _PART_OF_UNLIKE * error)
        limits = _quantiles(degrees, variances.shape, probabilities)
        is_clear = _ratio(evidence.effect + means, np.sqrt(variances)) > limits
        is_success &= evidence.is_alike(squares, counts) | is_clear
    chance = float(np.mean(np.any(is_success, axis=1)))
    ends = is_success.copy()
    ends[:, -1] = True
    for look in range(last - now - 1):
        ends[:, look] |= _is_hopeless(
            statistics[:, look], np.any(is_success[:, look + 1 :], axis=1)
        )
    return chance, float(np.mean(np.argmax(ends, axis=1) + 1))


def _quantiles(degrees: Array, shape: tuple[int, ...], probabilities: np.ndarray) -> np.ndarray:
    """Return Student's quantiles that are exceeded with a probability, by future and look.

    They are interpolated between a few degrees of freedom, because exact ones would take long.

    Args:
        degrees: Degrees of freedom, in a form that can be broadcast to `shape`.
        shape: The numbers of futures and looks.
        probabilities: The probability of each look.
    """
    degrees = np.broadcast_to(degrees, shape)
    grid = np.geomspace(degrees.min(), degrees.max(), _NUM_DEGREES)
    limits = [
        np.interp(look, grid, -stdtrit(grid, probability))
        for probability, look in zip(probabilities, degrees.T, strict=True)
    ]
    return np.array(limits).T


def _is_hopeless(statistics: np.ndarray, succeeds: np.ndarray) -> np.ndarray:
    """Return which futures would be given up, because similar ones succeed too rarely."""
    order = np.argsort(statistics)
    similar = np.convolve(succeeds[order], np.full(_NUM_SIMILAR, 1 / _NUM_SIMILAR), mode="valid")
    num_hopeless = int(np.argmax(similar >= _HOPELESS)) if np.any(similar >= _HOPELESS) else 0
    result = np.zeros(len(statistics), dtype=bool)
    if num_hopeless:
        result[order[: num_hopeless + _NUM_SIMILAR // 2]] = True
    return result


def _looks_of(num_baseline: int, max_runs: int, error: float) -> _Looks:
    information = tuple(1 / (1 / num_baseline + 1 / runs) for runs in range(1, max_runs + 1))
    return _Looks(
        low=spending_quantiles(information, _SHARE_OF_LOW * error),
        high=spending_quantiles(information, (1 - _SHARE_OF_LOW) * error),
    )


@lru_cache(maxsize=64)
def spending_quantiles(information: tuple[float, ...], error: float) -> tuple[float, ...]:
    """Return the normal quantiles at which each look ends a one-sided test.

    By a share t of the information, the probability of having ended without an effect is
    error * t**4.

    Args:
        information: Information at each look: the inverse variance of the estimate. It increases.
        error: One-sided probability of a wrong claim over all looks, above 0 and below 0.5.

    Source: Armitage, McPherson and Rowe, 1969: the density of the score is integrated from look to
    look, without the part that has ended.
    """
    spent = [error * (part / information[-1]) ** _SPENDING_POWER for part in information]
    quantiles = [-float(ndtri(spent[0]))]
    points, weights = _nodes(information, 0, quantiles[0])
    density = np.exp(-(points**2) / (2 * information[0])) / math.sqrt(2 * math.pi * information[0])
    for look in range(1, len(information)):
        step = math.sqrt(information[look] - information[look - 1])
        mass = weights * density
        share = spent[look] - spent[look - 1]
        score = _crossed_by(share, points, mass, step)
        quantiles.append(score / math.sqrt(information[look]))
        following, weights = _nodes(information, look, quantiles[-1])
        kernel = np.exp(-(((following[:, None] - points[None, :]) / step) ** 2) / 2)
        density = kernel @ mass / (step * math.sqrt(2 * math.pi))
        points = following
    return tuple(quantiles)


def _crossed_by(share: float, points: np.ndarray, mass: np.ndarray, step: float) -> float:
    """Return the score that the next step exceeds with the probability `share`.

    Args:
        share: The probability.
        points: Scores before the step.
        mass: Their probabilities.
        step: Standard deviation of the step.
    """
    low, high = float(points[0]), float(points[-1]) + _REACH * step
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        if float(np.sum(mass * ndtr((points - middle) / step))) > share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _nodes(
    information: tuple[float, ...], look: int, quantile: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return points and weights (Simpson's rule) for the score at a look, below its boundary."""
    root = math.sqrt(information[look])
    start, end = -_REACH * root, quantile * root
    num_points = _MIN_POINTS
    if look + 1 < len(information):
        step = math.sqrt(information[look + 1] - information[look])
        num_points = max(num_points, math.ceil(_POINTS_PER_STEP * (end - start) / step))
    num_points += 1 - num_points % 2
    weights = np.full(num_points, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return np.linspace(start, end, num_points), weights * (end - start) / (num_points - 1) / 3

"""The noise floor: how much the results of one configuration usually differ.

Groups of trainings that share their code and budget show it. A new group has only a few trainings,
so its own spread is a poor estimate. The floor says what to expect of it before they are seen, and
how many trainings this knowledge is worth. `sequential_test` combines both.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from workbench.store.history.standings import RankedTrials
from workbench.store.history.trial import Trial

MAX_DEGREES = 400.0
"""No floor is worth more degrees of freedom than this: groups never have exactly equal spreads."""
# How much the spreads of groups may differ: standard deviations of their logarithm. The prior is a
# half-normal distribution with this scale. Groups of one project differ by a factor of about 1.3.
_SCALE_OF_DIFFERENCES = 0.35
_DIFFERENCES = np.geomspace(0.03, 2.5, 28)
# The common level of the log variances is searched this far around their median, in steps of 0.05.
# A wide grid in few steps would miss the level, which many groups determine to 0.1.
_REACH = 6.0
_NUM_LEVELS = 241
# Prior standard deviation of the slope of log variance over log budget. A slope of -1 means that
# twice the steps halve the variance, so most budgets change less.
_SLOPE = 0.5
# A group whose trainings agree exactly was probably rounded. Its variance counts as this part of
# the median.
_LEAST_PART = 1e-3
# The logarithm of the largest ratio of two variances whose exponential is a number, as is the
# exponential of its negative.
_MOST_APART = 600.0
# The logarithms of the smallest and the largest positive number.
_LOG_SMALLEST, _LOG_LARGEST = math.log(5e-324), math.log(sys.float_info.max)


@dataclass(frozen=True)
class NoiseFloor:
    """What is known about the spread of a group before its trainings are seen.

    Attributes:
        deviation: Typical standard deviation of the results of one group, above 0.
        num_degrees: Degrees of freedom that this is worth, above 0.
        num_groups: Number of groups behind it.
        num_trainings: Number of their trainings.
    """

    deviation: float
    num_degrees: float
    num_groups: int
    num_trainings: int


@dataclass(frozen=True)
class RepeatedTrainings:
    """Finished trainings of one configuration.

    Attributes:
        values: Their results, all finite.
        budget: Their length, such as the number of optimizer steps, or None if it is unknown.
    """

    values: Sequence[float]
    budget: float | None = None


def noise_floor_of(
    groups: Sequence[RepeatedTrainings], budget: float | None = None
) -> NoiseFloor | None:
    """Learn the noise floor from groups of repeated trainings.

    The variance of a group is a scaled inverse chi-square variable around a common level. The level
    and the differences between groups are integrated over a grid. What is left uncertain lowers the
    degrees of freedom, so one group is worth less than twenty.

    Args:
        groups: The groups. Those with fewer than two trainings are skipped.
        budget: The length of the trainings that will be compared, in the unit of the groups. If the
            spread depends on the budget, the floor is corrected for it.

    Returns:
        The floor, or None if no configuration was trained twice or all results are equal.

    Source: Smyth, Linear models and empirical Bayes methods, 2004, with a prior for the differences
    between groups as in Gelman, Prior distributions for variance parameters, 2006.
    """
    repeated = [group for group in groups if len(group.values) > 1]
    logs = np.array([_log_variance(group.values) for group in repeated], dtype=float)
    differ = np.isfinite(logs)
    if not np.any(differ):
        return None
    degrees = np.array([len(group.values) - 1 for group in repeated], dtype=float)
    logs = np.maximum(logs, math.log(_LEAST_PART) + float(np.median(logs[differ])))
    correction, doubt = _budget_correction(repeated, logs, degrees, budget)
    level, uncertainty = _predict(logs + correction, degrees)
    num_degrees = min(MAX_DEGREES, 2 * _inverse_trigamma(uncertainty + doubt))
    # The expectation of the logarithm of a scaled inverse chi-square variable is
    # log(variance * degrees / 2) - digamma(degrees / 2).
    log_variance = level + float(digamma(num_degrees / 2)) - math.log(num_degrees / 2)
    deviation = math.exp(min(max(log_variance / 2, _LOG_SMALLEST), _LOG_LARGEST))
    return NoiseFloor(deviation, num_degrees, len(repeated), int(degrees.sum()) + len(repeated))


def trainings_by_configuration(
    history: RankedTrials, metric: str
) -> dict[tuple[int, int], list[Trial]]:
    """Return the complete trainings of a run whose results can be compared.

    Args:
        history: The run.
        metric: The metric that is compared.

    Returns:
        The trials, by configuration and version of the code.
    """
    groups: dict[tuple[int, int], list[Trial]] = {}
    for trial in history.in_state("complete"):
        is_whole = trial.fidelity is None and trial.segment is None
        is_whole = is_whole and not trial.inherits
        if is_whole and math.isfinite(trial.values.get(metric, math.nan)):
            groups.setdefault((trial.configuration, trial.program), []).append(trial)
    return groups


def budget_of(trials: Iterable[Trial]) -> int | None:
    """Return the largest number of steps of complete trainings, or None if it is unknown."""
    return (
        max((trial.last_step for trial in trials if trial.state == "complete"), default=0) or None
    )


def _log_variance(values: Sequence[float]) -> float:
    """Return the logarithm of a variance, also where its square is no number. -inf for zero."""
    exponent = math.frexp(max(map(abs, values)))[1]
    shifted = np.ldexp(np.asarray(values, dtype=float), -exponent)  # changes no digits
    away = shifted - shifted[0]
    scale = float(np.max(np.abs(away)))
    if scale == 0:
        return -math.inf
    variance = float(np.var(away / scale, ddof=1))
    return 2 * (math.log(scale) + exponent * math.log(2)) + math.log(variance)


def _budget_correction(
    groups: Sequence[RepeatedTrainings],
    logs: np.ndarray,
    degrees: np.ndarray,
    budget: float | None,
) -> tuple[np.ndarray, float]:
    """Return what moves each log variance to the new budget, and the variance of the correction.

    The slope is a ridge regression: without evidence it is 0.
    """
    budgets = [group.budget for group in groups]
    if budget is None or budget <= 0 or any(not length or length <= 0 for length in budgets):
        return np.zeros(len(groups)), 0.0
    lengths = np.log([float(length or 1.0) for length in budgets])
    estimates = logs - digamma(degrees / 2) + np.log(degrees / 2)
    weights = 1 / (polygamma(1, degrees / 2) + 4 * _SCALE_OF_DIFFERENCES**2)
    centre = float(np.average(lengths, weights=weights))
    away = lengths - centre
    precision = float(np.sum(weights * away**2)) + 1 / _SLOPE**2
    mean = np.average(estimates, weights=weights)
    slope = float(np.sum(weights * away * (estimates - mean))) / precision
    return slope * (math.log(budget) - lengths), (math.log(budget) - centre) ** 2 / precision


def _predict(logs: np.ndarray, degrees: np.ndarray) -> tuple[float, float]:
    """Return mean and variance of the log variance of a new group.

    Args:
        logs: Logarithms of the observed variances, shape [groups].
        degrees: Their degrees of freedom, shape [groups].
    """
    priors = np.array([2 * _inverse_trigamma(4 * width**2) for width in _DIFFERENCES])
    middle = float(np.median(logs))
    levels = np.linspace(middle - _REACH, middle + _REACH, _NUM_LEVELS)
    # Shapes [differences, levels, groups]. The ratio of both variances has an F distribution.
    prior = priors[:, None, None]
    apart = np.clip(logs[None, None, :] - levels[None, :, None], -_MOST_APART, _MOST_APART)
    ratio = np.exp(apart) * degrees / prior
    likelihood = np.sum(
        degrees / 2 * np.log(ratio)
        - (degrees + prior) / 2 * np.log1p(ratio)
        + gammaln((degrees + prior) / 2)
        - gammaln(prior / 2),
        axis=2,
    )
    # The widths are spaced evenly in their logarithm, so the density is multiplied by the width.
    likelihood += (np.log(_DIFFERENCES) - (_DIFFERENCES / _SCALE_OF_DIFFERENCES) ** 2 / 2)[:, None]
    weights = np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    means = levels[None, :] + np.log(priors / 2)[:, None] - digamma(priors / 2)[:, None]
    inside = polygamma(1, priors / 2)[:, None]
    mean = float(np.sum(weights * means))
    return mean, float(np.sum(weights * (inside + (means - mean) ** 2)))


def _inverse_trigamma(value: float) -> float:
    """Return where the trigamma function has this value, above 0.

    Source: Smyth, Linear models and empirical Bayes methods, 2004, appendix.
    """
    place = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, place))
        change = trigamma * (1 - trigamma / value) / float(polygamma(2, place))
        place += change
        if abs(change) < 1e-8 * place:
            break
    return place

"""How important each searched parameter is, with an interval.

The importance of a parameter is its total share of the variance of true values over the declared
space. It does not depend on where a sampler placed its trials. `variance_shares` draws from the
posterior distribution of the shares. This module turns trials into observations, and draws into
intervals. A parameter only has no effect if an effect of one per cent would have been seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.experiment import Experiment
from workbench.experiment.space import Params
from workbench.foundation.events import TrialReported
from workbench.search.encoding import Encoding
from workbench.search.optuna_space import Parameters
from workbench.search.partial_results import Reading
from workbench.search.study_records import ConfigurationRecord, Outcome

if TYPE_CHECKING:
    from workbench.search.curves import Curve

MIN_TRIALS = 10
NO_EFFECT = 0.01
"""A parameter with a smaller share of the variance has no effect."""
_INTERVAL = (0.05, 0.95)
# If the upper end of an interval is below NO_EFFECT, this quantile is used instead.
_BOUND = 0.97
# A parameter has no effect if this share of the draws is below half of NO_EFFECT. The rule is
# strict because overlooking an effect is worse than leaving the question open.
_SURE = 0.99
# Shares are no more exact than this, because they are evaluated at a finite number of points and
# functions are smoothed slightly.
_RESOLUTION = 0.005
# Effects below this may be hidden by noise where there are few trials.
_MIN_BOUND = 0.002
_MAX_TRIALS = 300
_MAX_RUNGS = 4
"""Cut trainings are compared at this many rungs."""
_MIN_AT_RUNG = 20
# A value is an outlier, such as a training that diverged, if its distance from the best value is
# more than this many times the distance of a usual value.
_FARTHEST = 25.0
# Values of a parameter that differ by less than this share of its range count as the same place.
_NEAR = 0.1

Importance = dict[str, tuple[float, float, float]]
"""The total share of the variance of each parameter, and the ends of its 90 % interval.

If a parameter has no effect, its share and the lower end are 0, and the upper end is a bound.
"""
ReadReports = Callable[[Collection[int]], Iterable[TrialReported]]
"""Returns the reports of some trials, oldest first."""
AddReports = Callable[[Sequence[ConfigurationRecord]], None]
"""Gives the first trainings of some configurations their reports."""


def importance(
    experiment: Experiment,
    parameters: Parameters,
    finished: Iterable[tuple[ConfigurationRecord, Outcome]],
    add_reports: AddReports | None = None,
) -> Importance:
    """Return the share of each searched parameter in the variance of values, with its uncertainty.

    Args:
        experiment: The experiment.
        parameters: Its search space in Optuna's terms.
        finished: Finished configurations with their outcomes. Values of pruned trials are only
            compared with values of other trials at the same rung.
        add_reports: Called with the configurations of the sample, if they ended without reports.

    Returns:
        Total effects as shares of the variance over the space, the largest first. An interaction
        counts for each of its parameters, so the sum may exceed 1. Empty if there are fewer than
        MIN_TRIALS trials with values, several objectives, no parameter with two values, or only
        equal values. If chance alone explains the values, every interval is from 0 to 1.

    Source:
        Total effects: Homma and Saltelli, Importance measures in global sensitivity analysis, 1996.
    """
    seen = _seen(experiment, finished, add_reports) if len(experiment.objectives) == 1 else None
    encoding = Encoding(parameters)
    if seen is None or not encoding.distributions:
        return {}
    units, exists = encoding.locate([parameters.to_optuna(trial.params) for trial in seen.trials])
    values = np.array([trial.value for trial in seen.trials])
    kinds = np.array([trial.kind for trial in seen.trials])
    # Raise outliers separately for each kind, since values at different rungs are not comparable.
    volumes, pairs = _volumes(units, exists), list(seen.pairs)
    for kind in range(len(pairs) + 1):
        mine = kinds == kind
        floor = _floor(values[mine], volumes[mine])
        values[mine] = np.maximum(values[mine], floor)
        if kind:
            pairs[kind - 1][:, 0] = np.maximum(pairs[kind - 1][:, 0], floor)
        else:
            for pair in pairs:
                pair[:, 1] = np.maximum(pair[:, 1], floor)
    if np.ptp(values) == 0:
        return {}

    from workbench.search.gaussian_process_sampler import (
        ON_ONE_THREAD,
    )  # imports SciPy, which light installations omit
    from workbench.search.variance_shares import Observed, draw_shares

    with ON_ONE_THREAD():
        draws = draw_shares(encoding, Observed(units, exists, values, kinds, pairs))
    names = [*encoding.distributions]
    if draws is None:
        return {name: (1 / len(names), 0.0, 1.0) for name in names}
    return _shares(names, draws)


def negligible(shares: Mapping[str, tuple[float, float, float]]) -> list[str]:
    """Return the parameters that were found to have no effect.

    Args:
        shares: The result of `importance`.
    """
    return [name for name, (share, _, _) in shares.items() if share == 0]


class _Trial(NamedTuple):
    """The value of a training.

    Attributes:
        params: The configuration.
        value: The value. Larger is better.
        kind: 0 if the training ended, otherwise the number of the rung, from 1, at which it is
            compared with others.
    """

    params: Params
    value: float
    kind: int


class _Seen(NamedTuple):
    """The values of trainings.

    Attributes:
        trials: The trainings.
        pairs: For each rung at which cut trainings are compared, the values there and at the end of
            trainings that ended, shape [m, 2].
    """

    trials: list[_Trial]
    pairs: list[np.ndarray]


def _seen(
    experiment: Experiment,
    finished: Iterable[tuple[ConfigurationRecord, Outcome]],
    add_reports: AddReports | None,
) -> _Seen | None:
    """Return the values of trainings, larger is better, or None if there are too few.

    Values after different numbers of epochs are never compared. A training that was cut counts with
    its value at one of a few rungs.
    """
    reading, metric = Reading.of(experiment)[0], experiment.objectives[0].metric
    usable = {"complete"} if reading.full_rung is not None else {"complete", "pruned"}
    known = [(record, outcome) for record, outcome in finished if outcome.state in usable]
    if len(known) < MIN_TRIALS:
        return None
    from workbench.search.curves import Curve  # imports SciPy, which light installations omit

    # Early trials cover the space, and late trials the best part of it. So a sample over the whole
    # run is taken.
    places = np.unique(np.linspace(0, len(known) - 1, _MAX_TRIALS).round().astype(int))
    chosen = [known[place] for place in places]
    if add_reports is not None:
        add_reports([record for record, _ in chosen])
    longest = max(max(record.trials[0].reports, default=0) for record, _ in chosen)
    ended: list[tuple[Params, float, Curve | None]] = []
    cut: list[tuple[Params, int, Curve]] = []
    for record, outcome in chosen:
        reports = reading.curve(record.trials[0].reports)
        curve = Curve.of(reports)
        if outcome.state == "complete":
            ended.append((record.params, reading.sign * outcome.values[metric], curve))
        elif curve is not None and np.isfinite(curve.values).all():
            last = max(reports)
            if last >= (record.trials[0].num_epochs or longest):
                ended.append((record.params, reports[last], curve))
            else:
                cut.append((record.params, last, curve))
    if not ended or len(ended) + len(cut) < MIN_TRIALS:
        return None
    rungs = _rungs([last for _, last, _ in cut])
    trials = [_Trial(params, value, 0) for params, value, _ in ended]
    for params, last, curve in cut:
        kind = max(at for at, rung in enumerate(rungs) if rung <= last)
        trials.append(_Trial(params, curve.at(math.log2(rungs[kind])), kind + 1))
    pairs = [
        [
            (curve.at(math.log2(rung)), value)
            for _, value, curve in ended
            if curve is not None
            and curve.doublings[0] <= math.log2(rung)
            and np.isfinite(curve.values).all()
        ]
        for rung in rungs
    ]
    return _Seen(trials, [np.array(pair, dtype=float).reshape(-1, 2) for pair in pairs])


def _rungs(lasts: Sequence[int]) -> list[int]:
    """Return the few rungs at which cut trainings are compared, each at its highest of them.

    Args:
        lasts: The last rung of each cut training.
    """
    least = 1
    if len(set(lasts)) > _MAX_RUNGS:
        least = max(_MIN_AT_RUNG, math.ceil(len(lasts) / _MAX_RUNGS))
    rungs: list[int] = []
    num_there = 0
    for rung, num in sorted(Counter(lasts).items()):
        if not rungs or num_there >= least:
            rungs.append(rung)
            num_there = 0
        num_there += num
    return rungs


def _volumes(units: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Return the share of the space that each trial represents. It is larger far from others.

    Args:
        units: Points of configurations, shape [trials, columns].
        exists: Which parameters exist in them, same shape.
    """
    logarithms = np.zeros(len(units))
    for column, present in zip(units.T, exists.T, strict=True):
        is_near = np.abs(column[:, None] - column[None, :]) <= _NEAR
        logarithms -= np.log((is_near & (present[:, None] == present[None, :])).sum(1))
    volumes = np.exp(logarithms - logarithms.max())
    return volumes / volumes.sum()


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), 0.5)])


def _floor(values: np.ndarray, volumes: np.ndarray) -> float:
    """Return the value to which lower ones are raised.

    Otherwise, one training that diverged would determine all of the variance.
    """
    best, middle = float(values.max()), _weighted_median(values, volumes / volumes.sum())
    return best - _FARTHEST * (best - middle) if best > middle else -math.inf


def _shares(names: Sequence[str], draws: np.ndarray) -> Importance:
    """Return the share of each parameter with its interval, or 0 for one that has no effect."""
    lows, highs = np.quantile(draws, _INTERVAL, axis=0)
    highs = np.where(highs < NO_EFFECT, np.quantile(draws, _BOUND, axis=0), highs)
    sure = np.maximum(np.quantile(draws, _SURE, axis=0), _MIN_BOUND)
    has_none = sure < NO_EFFECT / 2
    # If the median of the draws is 0 but the parameter may have an effect, the mean is used. A
    # share of 0 is reserved for parameters without an effect.
    middles = np.median(draws, axis=0)
    shares = np.where(middles > 0, middles, np.minimum(draws.mean(axis=0), highs))
    shares = np.where(has_none, 0.0, shares)
    importances: Importance = {}
    for index in map(int, np.argsort(-shares, kind="stable")):
        if has_none[index]:
            importances[names[index]] = (0.0, 0.0, float(sure[index]))
            continue
        low, high = float(lows[index]), float(highs[index])
        # Draws of a share are never negative. If the true share is 0, all draws are above it, and
        # so is their lower quantile.
        low = 0.0 if low < NO_EFFECT else low - _RESOLUTION
        high = max(high, _MIN_BOUND) if high < NO_EFFECT else min(high + _RESOLUTION, 1.0)
        importances[names[index]] = (float(shares[index]), low, high)
    return importances

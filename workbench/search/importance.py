"""How much each searched parameter decides, how sure that is, and what was not resolved.

An effect is a parameter's total share of the variance of the true values over the space that was
declared, wherever a sampler has placed its trials. `variance_shares` draws what it may be after the
trials. Here trials become observations, and draws become intervals and words. It says
"no effect" only if an effect of a hundredth would have been seen, and "open" if the trials cannot
tell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.experiment import Experiment
from workbench.experiment.space import Params
from workbench.search.encoding import Encoding
from workbench.search.parameters import Parameters
from workbench.search.partial_results import Reading
from workbench.search.records import ConfigurationRecord, Outcome

if TYPE_CHECKING:
    from workbench.search.curves import Curve

MIN_TRIALS = 10
NO_EFFECT = 0.01
"""What a parameter must decide less of, as a share of the variance, to have no effect."""
_INTERVAL = (0.05, 0.95)
# If the upper end of an interval is below NO_EFFECT, it is this quantile instead.
_BOUND = 0.97
# A parameter has no effect where this share of the draws lies below half of NO_EFFECT: an effect
# that is overlooked costs more than a question that stays open.
_SURE = 0.99
# Shares are judged at so many points, and functions smoothed a little: none is more exact than
# this.
_RESOLUTION = 0.005
# Smaller effects than this one may hide in the noise wherever few trials lie.
_MIN_BOUND = 0.002
_MAX_TRIALS = 300
_MAX_RUNGS = 4
"""Cut trainings are compared at this many rungs."""
_MIN_AT_RUNG = 20
# Values farther below the best than this many times a usual value is are outliers: trainings that
# diverged.
_FARTHEST = 25.0
# How close values of a parameter are, as a share of its range, that count as the same place.
_NEAR = 0.1

Importance = dict[str, tuple[float, float, float]]
"""Per parameter its total share of the variance, and the ends of the 90 % interval.

Share and lower end are 0 for a parameter that has no effect, which the upper end bounds.
"""


def importance(
    experiment: Experiment,
    parameters: Parameters,
    finished: Iterable[tuple[ConfigurationRecord, Outcome]],
) -> Importance:
    """Return the share of each searched parameter in the variance of values, with its uncertainty.

    Args:
        experiment: The experiment.
        parameters: Its search space in Optuna's terms.
        finished: Finished configurations with their outcomes. Values of pruned trials are compared
            with those of others at the same rung only.

    Returns:
        Total effects as shares of the variance over the space, the largest first. What acts in
        interactions counts for each parameter of them, so that the sum may exceed 1. Empty where
        there are fewer than MIN_TRIALS trials with values, several objectives, no parameter with
        two values, or values that are all equal. If chance alone explains the values, every
        interval is from 0 to 1.

    Source:
        Total effects: Homma and Saltelli, Importance measures in global sensitivity analysis, 1996.
    """
    seen = _seen(experiment, finished) if len(experiment.objectives) == 1 else None
    encoding = Encoding(parameters)
    if seen is None or not encoding.distributions:
        return {}
    units, exists = encoding.locate([parameters.to_optuna(trial.params) for trial in seen.trials])
    values = np.array([trial.value for trial in seen.trials])
    kinds = np.array([trial.kind for trial in seen.trials])
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

    from workbench.search.proposals import ON_ONE_THREAD  # light installations lack SciPy
    from workbench.search.variance_shares import Observed, draw_shares

    with ON_ONE_THREAD():
        draws = draw_shares(encoding, Observed(units, exists, values, kinds, pairs))
    names = [*encoding.distributions]
    if draws is None:
        return {name: (1 / len(names), 0.0, 1.0) for name in names}
    return _shares(names, draws)


def negligible(shares: Mapping[str, tuple[float, float, float]]) -> list[str]:
    """Return the parameters that have no effect, as far as it was resolved.

    Args:
        shares: What `importance` returned.
    """
    return [name for name, (share, _, _) in shares.items() if share == 0]


class _Trial(NamedTuple):
    """What a training reached.

    Attributes:
        params: Its configuration.
        value: Larger is better.
        kind: 0 if it ended, or the number of the rung at which it is compared with others.
    """

    params: Params
    value: float
    kind: int


class _Seen(NamedTuple):
    """What trainings reached.

    Attributes:
        trials: The trainings.
        pairs: For each rung at which cut trainings are compared, what those that ended had there
            and at the end, shape [m, 2].
    """

    trials: list[_Trial]
    pairs: list[np.ndarray]


def _seen(
    experiment: Experiment, finished: Iterable[tuple[ConfigurationRecord, Outcome]]
) -> _Seen | None:
    """Return what trainings reached, larger is better, or None if there are too few.

    Values after different numbers of epochs are never compared. What was cut counts at one of a few
    rungs.
    """
    reading, metric = Reading.of(experiment)[0], experiment.objectives[0].metric
    usable = {"complete"} if reading.full_rung is not None else {"complete", "pruned"}
    known = [(record, outcome) for record, outcome in finished if outcome.state in usable]
    if len(known) < MIN_TRIALS:
        return None
    from workbench.search.curves import Curve  # light installations lack SciPy

    # Early trials cover the space, and late ones the best part of it.
    chosen = np.unique(np.linspace(0, len(known) - 1, _MAX_TRIALS).round().astype(int))
    longest = max(max(record.trials[0].reports, default=0) for record, _ in known)
    ended: list[tuple[Params, float, Curve | None]] = []
    cut: list[tuple[Params, int, Curve]] = []
    for record, outcome in (known[index] for index in chosen):
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
    """Return a few rungs: each cut training is compared at the highest that it has reached.

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
    """Return how much of the space each trial represents: more if few others are near it.

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
    """Return what values are raised to: one training that diverged would be all of the variance."""
    best, middle = float(values.max()), _weighted_median(values, volumes / volumes.sum())
    return best - _FARTHEST * (best - middle) if best > middle else -math.inf


def _shares(names: Sequence[str], draws: np.ndarray) -> Importance:
    """Return the share of each parameter with its interval, or 0 for one that has no effect."""
    lows, highs = np.quantile(draws, _INTERVAL, axis=0)
    highs = np.where(highs < NO_EFFECT, np.quantile(draws, _BOUND, axis=0), highs)
    sure = np.maximum(np.quantile(draws, _SURE, axis=0), _MIN_BOUND)
    has_none = sure < NO_EFFECT / 2
    # If most draws are 0 and some are not, the share is open: only what has no effect has the share
    # 0.
    middles = np.median(draws, axis=0)
    shares = np.where(middles > 0, middles, np.minimum(draws.mean(axis=0), highs))
    shares = np.where(has_none, 0.0, shares)
    importances: Importance = {}
    for index in map(int, np.argsort(-shares, kind="stable")):
        if has_none[index]:
            importances[names[index]] = (0.0, 0.0, float(sure[index]))
            continue
        low, high = float(lows[index]), float(highs[index])
        # A share is never negative, so that draws of one that is 0 are all above it.
        low = 0.0 if low < NO_EFFECT else low - _RESOLUTION
        high = max(high, _MIN_BOUND) if high < NO_EFFECT else min(high + _RESOLUTION, 1.0)
        importances[names[index]] = (float(shares[index]), low, high)
    return importances

"""How much each searched parameter decides, how sure that is, and what was not resolved.

An effect is a parameter's total share of the variance of the true values over the space that was declared,
wherever a sampler has placed its trials. `effects` draws what it may be after the trials; here trials become
observations, and draws become intervals and words. "No effect" is stated only where an effect of a hundredth
would have been seen. What trials have not resolved is named as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from workbench.experiment import Experiment
from workbench.space import Params
from workbench.study.encoding import Encoding
from workbench.study.parameters import Parameters
from workbench.study.partial_results import Reading
from workbench.study.records import ConfigurationRecord, Outcome

if TYPE_CHECKING:
    from workbench.study.effects import Places

MIN_TRIALS = 10
MAX_NEGLIGIBLE = 0.1
"""Up to this share of the variance, a parameter without an effect is better frozen than searched."""
NO_EFFECT = 0.01
"""What a parameter must decide less of, as a share of the variance, to have no effect."""
_INTERVAL = (0.05, 0.95)
# The share of the draws that must lie below NO_EFFECT before a parameter is said to have no effect.
_SURE = 0.99
# Functions are not drawn from the process that is fitted to them: intervals are wider by this factor, around
# the median and in log odds. It was chosen on generated spaces (`tests/benchmarks/importance_spaces.py`).
_WIDER = 1.4
# Of the bound below which a parameter has no effect, which is a rarer quantile already.
_WIDER_BOUND = 1.15
# Shares are no more exact than this: functions are smoothed a little, and judged at so many points.
_RESOLUTION = 0.005
_NUM_POINTS = 384
_MAX_TRIALS = 300
# Values farther below the best than this many times a usual value is are outliers: trainings that diverged.
_FARTHEST = 25.0
# How close values of a parameter are, as a share of its range, that count as the same place.
_NEAR = 0.1

Importance = dict[str, tuple[float, float, float]]
"""Per parameter its total share of the variance, and the ends of the 90 % interval. Share and lower end are 0
for a parameter that has no effect, which the upper end bounds."""


def importance(
    experiment: Experiment,
    parameters: Parameters,
    finished: Iterable[tuple[ConfigurationRecord, Outcome]],
) -> Importance:
    """Return the share of each searched parameter in the variance of values, with its uncertainty.

    Args:
        experiment: The experiment.
        parameters: Its search space in Optuna's terms.
        finished: Finished configurations with their outcomes. Those of pruned trials count as where the
            curves of the others say that they would have ended, and as less certain.

    Returns:
        Total effects as shares of the variance over the space, the largest first. What acts in interactions
        counts for each parameter of them, so that the sum may exceed 1. Empty where there are fewer than
        MIN_TRIALS trials with an end, several objectives, no parameter with two values, or values that are
        all alike. Where chance alone explains the values, every interval is from 0 to 1.

    Source:
        Total effects: Homma and Saltelli, Importance measures in global sensitivity analysis, 1996. With a
        process for the unknown function: Oakley and O'Hagan, Probabilistic sensitivity analysis, 2004.
    """
    ended = _ends(experiment, finished) if len(experiment.objectives) == 1 else []
    if len(ended) < MIN_TRIALS:
        return {}
    values, variances = np.array([value for _, value, _ in ended]), np.array([each for _, _, each in ended])
    encoding = Encoding(parameters)
    if not encoding.distributions or np.ptp(values) == 0:
        return {}
    located = encoding.locate([parameters.to_optuna(params) for params, _, _ in ended])
    features, volumes = encoding.features(*located), _volumes(*located)
    values = _without_outliers(values, _weighted_median(values, volumes))
    if np.ptp(values) == 0:
        return {}

    from workbench.study.effects import draw_effects  # light installations lack SciPy
    from workbench.study.proposals import ON_ONE_THREAD

    with ON_ONE_THREAD():
        draws = draw_effects(
            features, encoding.groups, values, variances, partial(_places, encoding), np.random.default_rng(0)
        )
    names = [*encoding.distributions]
    if draws is None:
        return {name: (1 / len(names), 0.0, 1.0) for name in names}
    return _shares(names, draws)


def negligible(found: Mapping[str, tuple[float, float, float]]) -> list[str]:
    """Return the parameters that have no effect, as far as it was resolved.

    A parameter with few trials is not among them: chance alone could then hide much of what it decides.

    Args:
        found: What `importance` returned.
    """
    return [name for name, (share, _, high) in found.items() if share == 0 and high <= MAX_NEGLIGIBLE]


def _ends(
    experiment: Experiment, finished: Iterable[tuple[ConfigurationRecord, Outcome]]
) -> list[tuple[Params, float, float]]:
    """Return configurations with what their trainings reached or would have reached, and its variance.

    Larger is better, and what was reached has no variance here. Values after different numbers of epochs are
    never compared: a curve that was cut counts as its forecast from the curves of the others, which knows no
    parameters, or not at all where none of them goes so far.
    """
    reading, metric = Reading.of(experiment)[0], experiment.objectives[0].metric
    known = [(record, outcome) for record, outcome in finished if outcome.state != "failed"]
    if len(known) < MIN_TRIALS:
        return []
    from workbench.study.curves import Curve, forecast  # light installations lack SciPy

    # Early trials cover the space, and late ones the best part of it.
    chosen = np.unique(np.linspace(0, len(known) - 1, _MAX_TRIALS).round().astype(int))
    known = [known[index] for index in chosen]
    curves = [Curve.of(reading.curve(record.trials[0].reports)) for record, _ in known]
    longest = max((max(record.trials[0].reports, default=0) for record, _ in known), default=0)
    found: list[tuple[Params, float, float]] = []
    for index, (record, outcome) in enumerate(known):
        if outcome.state == "complete":
            found.append((record.params, reading.sign * outcome.values[metric], 0.0))
        elif reading.full_rung is None and (curve := curves[index]) is not None:
            others = [one for at, one in enumerate(curves) if at != index and one is not None]
            expected = forecast(curve, record.trials[0].num_epochs or longest, others)
            if expected is not None:
                found.append((record.params, expected.mean, expected.deviation**2))
    return found


def _volumes(units: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Return how much of the space each trial stands for, as a share: the more, the fewer are near it.

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


def _without_outliers(values: np.ndarray, middle: float) -> np.ndarray:
    """Raise values far below the rest: one training that diverged would be all of the variance."""
    best = float(values.max())
    return np.maximum(values, best - _FARTHEST * (best - middle)) if best > middle else values


def _places(encoding: Encoding, rng: np.random.Generator) -> Places:
    """Draw points that cover the space, and the same ones with another value of each parameter."""
    from workbench.study.effects import Places

    num_columns = len(encoding.distributions)
    # A Latin hypercube: each column is covered evenly, and no two columns go together.
    ranks = rng.permuted(np.tile(np.arange(_NUM_POINTS), (2 * num_columns, 1)), axis=1).T
    points = (ranks + rng.random(ranks.shape)) / _NUM_POINTS
    first, others = points[:, :num_columns], points[:, num_columns:]
    moved: list[np.ndarray] = []
    for column in range(num_columns):
        point = first.copy()
        point[:, column] = others[:, column]
        moved.append(encoding.features(*encoding.snap(point)))
    return Places(encoding.features(*encoding.snap(first)), tuple(moved))


def _shares(names: Sequence[str], draws: np.ndarray) -> Importance:
    """Return the share of each parameter with its interval; 0 for one that has no effect."""
    shares = np.median(draws, axis=0)
    lows, highs = (_widened(np.quantile(draws, at, axis=0), shares, _WIDER) for at in _INTERVAL)
    sure = _widened(np.quantile(draws, _SURE, axis=0), shares, _WIDER_BOUND)
    has_none = sure < NO_EFFECT
    found: Importance = {}
    for index in sorted(range(len(names)), key=lambda index: (has_none[index], -shares[index])):
        share = float(shares[index])
        if has_none[index]:
            found[names[index]] = (0.0, 0.0, float(sure[index]))
            continue
        low, high = float(lows[index]) - _RESOLUTION, float(highs[index]) + _RESOLUTION
        found[names[index]] = (share, max(0.0, min(low, share)), min(1.0, max(high, share)))
    return found


def _widened(ends: np.ndarray, shares: np.ndarray, factor: float) -> np.ndarray:
    ends, shares = np.clip(ends, 1e-9, 1 - 1e-9), np.clip(shares, 1e-9, 1 - 1e-9)
    odds, at = np.log(ends / (1 - ends)), np.log(shares / (1 - shares))
    return 1 / (1 + np.exp(-(at + factor * (odds - at))))

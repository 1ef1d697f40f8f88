"""How much each searched parameter decides, and what of that chance alone could do.

A Gaussian process is fitted to the trials, wherever a sampler has placed them, and says how values vary over
the whole space. Most trials of a sampler that has found the best region lie there, where values hardly
differ: what counts as an outlier, and how trials are divided to see what is uncertain, goes by the space
instead of by their number. With few trials some parameter always looks decisive, so a parameter counts only
if leaving it out makes the values less probable than it makes shuffled ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.experiment import Experiment
from workbench.space import Params
from workbench.study.design import spread_points
from workbench.study.encoding import Encoding
from workbench.study.parameters import Parameters
from workbench.study.partial_results import Reading, without_outliers
from workbench.study.records import ConfigurationRecord, Outcome

if TYPE_CHECKING:
    from workbench.study.gaussian_process import GaussianProcess, Kernel

MIN_TRIALS = 10
MAX_NEGLIGIBLE = 0.1
"""Up to this share of what decides, a parameter is better frozen than searched."""
_NUM_SHUFFLES = 40
_NUM_HALVES = 30
_INTERVAL = (0.05, 0.95)
_CHANCE = 0.98
_MIN_SHARE = 0.01
_NUM_POINTS = 256
_MAX_TRIALS = 120
# How close values of a parameter are, as a share of its range, that count as the same place.
_NEAR = 0.1
# The logarithm of a length scale beyond which a parameter has no influence, and the logarithms of the noise
# that what it explained may become.
_WITHOUT = math.log(1e4)
_NOISES = (-3.0, -1.0, 0.0)

Importance = dict[str, tuple[float, float, float]]
"""Per parameter its share, and the ends of the 90 % interval; share and lower end are 0 for a parameter that
chance could explain, or that decides less than a hundredth."""


def importance(
    experiment: Experiment,
    parameters: Parameters,
    finished: Iterable[tuple[ConfigurationRecord, Outcome]],
) -> Importance:
    """Return the share of each searched parameter in what makes values differ, with its uncertainty.

    Args:
        experiment: The experiment.
        parameters: Its search space in Optuna's terms.
        finished: Finished configurations with their outcomes. Those of pruned trials count as where the
            curves of the others say that they would have ended.

    Returns:
        Total effects as shares of their sum, the largest first; those that chance could explain, and those
        below a hundredth, count as 0. Empty where there are fewer than MIN_TRIALS trials with an end, several
        objectives, no parameter with two values, or values that are all alike.

    Source:
        Total effects: Jansen, Analysis of variance designs for model output, Computer Physics Communications
        117, 1999. Intervals by halves: Politis, Romano and Wolf, Subsampling, 1999; halves that are balanced:
        McCarthy, Pseudo-replication, Review of the International Statistical Institute 37, 1969.
    """
    ended = _ends(experiment, finished) if len(experiment.objectives) == 1 else []
    if len(ended) < MIN_TRIALS:
        return {}
    values = np.array([value for _, value in ended])
    encoding = Encoding(parameters)
    if not encoding.distributions or np.ptp(values) == 0:
        return {}
    located = encoding.locate([parameters.to_optuna(params) for params, _ in ended])
    features, volumes = encoding.features(*located), _volumes(*located)
    values = without_outliers(values, _weighted_median(values, volumes))

    from workbench.study.proposals import ON_ONE_THREAD  # light installations lack SciPy

    rng, judge = np.random.default_rng(0), _Judge.of(encoding)
    with ON_ONE_THREAD():
        seen, effects = judge.evidence(features, values), judge.effects(features, values)
        by_chance = [judge.evidence(features, rng.permutation(values)).max() for _ in range(_NUM_SHUFFLES)]
        halves = [_half(volumes, rng) for _ in range(_NUM_HALVES)]
        of_halves = [judge.effects(features[half], values[half]) for half in halves]
    return _shares([*encoding.distributions], seen > np.quantile(by_chance, _CHANCE), effects, of_halves)


def negligible(found: Importance) -> list[str]:
    """Return the parameters that decide nothing that matters, as far as the trials show.

    A parameter with few trials is not among them: chance alone could then hide much of what it decides.

    Args:
        found: What `importance` returned.
    """
    return [name for name, (share, _, high) in found.items() if share == 0 and high <= MAX_NEGLIGIBLE]


def _ends(
    experiment: Experiment, finished: Iterable[tuple[ConfigurationRecord, Outcome]]
) -> list[tuple[Params, float]]:
    """Return configurations with what their trainings reached, larger is better, or would have reached.

    Values after different numbers of epochs are never compared: a curve that was cut counts as its forecast
    from the curves of the others, which knows no parameters, or not at all where none of them goes so far.
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
    found: list[tuple[Params, float]] = []
    for index, (record, outcome) in enumerate(known):
        if outcome.state == "complete":
            found.append((record.params, reading.sign * outcome.values[metric]))
        elif reading.full_rung is None and (curve := curves[index]) is not None:
            others = [one for at, one in enumerate(curves) if at != index and one is not None]
            expected = forecast(curve, record.trials[0].num_epochs or longest, others)
            found += [] if expected is None else [(record.params, expected.mean)]
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


def _half(volumes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one of every two trials that stand for about as much: each half covers the space as all do."""
    order = np.argsort(volumes, kind="stable")
    return np.array([rng.choice(order[first : first + 2]) for first in range(0, len(order), 2)])


@dataclass(frozen=True)
class _Judge:
    """Judges parameters by processes that are fitted to values.

    Attributes:
        groups: Parameter of each feature, shape [features].
        first: Features of points that cover the space, shape [points, features].
        moved: For each parameter, features of the same points with other values of it.
    """

    groups: np.ndarray
    first: np.ndarray
    moved: Sequence[np.ndarray]

    @classmethod
    def of(cls, encoding: Encoding) -> _Judge:
        """Place the points."""
        num_columns = len(encoding.distributions)
        points = spread_points(_NUM_POINTS, 2 * num_columns)
        first, others = points[:, :num_columns], points[:, num_columns:]
        moved: list[np.ndarray] = []
        for column in range(num_columns):
            point = first.copy()
            point[:, column] = others[:, column]
            moved.append(encoding.features(*encoding.snap(point)))
        return cls(encoding.groups, encoding.features(*encoding.snap(first)), moved)

    def effects(self, features: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the part of the variance over the space in which each parameter has a share."""
        if np.ptp(values) == 0:
            return np.zeros(len(self.moved))
        standard, kernel = self._fitted(features, values)
        process = self._process(kernel, features, standard)
        expected = process.predict(self.first)[0]
        return np.array([((expected - process.predict(one)[0]) ** 2).mean() / 2 for one in self.moved])

    def evidence(self, features: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return by how much the logarithm of the probability of values falls without each parameter."""
        standard, kernel = self._fitted(features, values)
        whole = self._process(kernel, features, standard).log_evidence
        lost: list[float] = []
        for column in range(len(self.moved)):
            lengths = kernel.log_lengths.copy()
            lengths[column] = _WITHOUT
            without = (
                dataclasses.replace(kernel, log_lengths=lengths, log_noise=noise)
                for noise in (kernel.log_noise, *_NOISES)
            )
            lost.append(whole - max(self._process(one, features, standard).log_evidence for one in without))
        return np.array(lost)

    def _fitted(self, features: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, Kernel]:
        """Return the standardised values, and the hyper-parameters that fit them."""
        from workbench.study.gaussian_process import fit  # light installations lack SciPy

        standard = (values - values.mean()) / values.std()
        return standard, fit(features, self.groups, standard)

    def _process(self, kernel: Kernel, features: np.ndarray, standard: np.ndarray) -> GaussianProcess:
        from workbench.study.gaussian_process import GaussianProcess

        return GaussianProcess(kernel, self.groups, features, standard)


def _shares(
    names: Sequence[str], is_kept: np.ndarray, effects: np.ndarray, of_halves: Sequence[np.ndarray]
) -> Importance:
    """Return the share of each parameter with its interval; 0 for what chance explains."""
    whole = float(effects.sum())
    known = [half / total for half in of_halves if (total := half.sum()) > 0]
    if not known or whole <= 0:
        return dict.fromkeys(names, (0.0, 0.0, 1.0))
    lows, highs = np.quantile(known, _INTERVAL, axis=0)
    is_kept = is_kept & (effects > _MIN_SHARE * whole)
    found: Importance = {}
    for index in sorted(range(len(names)), key=lambda index: (not is_kept[index], -effects[index])):
        share = float(effects[index]) / whole
        low, high = min(float(lows[index]), share), max(float(highs[index]), share)
        found[names[index]] = (share, low, high) if is_kept[index] else (0.0, 0.0, high)
    return found

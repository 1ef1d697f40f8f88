"""Propose configurations by a Gaussian process: the sampler behind `auto` where it is the better choice.

Each proposal is a function of the results so far, the proposals that are still running, and a seed. It
costs some milliseconds: hyper-parameters are fitted again only when there are 15 % more results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from scipy.special import log_ndtr
from threadpoolctl import ThreadpoolController

from workbench.study.design import DesignSampler
from workbench.study.front import is_on_front
from workbench.study.gaussian_process import GaussianProcess, Kernel, fit
from workbench.study.knowledge import MIN_PROCESS_RESULTS, Knowledge, Result
from workbench.study.limits import keeps_limits
from workbench.study.parameters import Parameters
from workbench.study.partial_results import Reading, is_cut, observe, of_objective

# Threads cost small matrices more than they save; the libraries are looked up once.
ON_ONE_THREAD = partial(ThreadpoolController().limit, limits=1, user_api="blas")
# How many standard deviations above the mean a configuration is valued. Chosen by `bench-search`.
_OPTIMISM = 2.0
# The weight of what a person believes, before it is divided by the square of the number of results.
_PRIOR_WEIGHT = 10.0
_GROWTH = 1.15
# How far behind the ends of the front the reference point lies, as a share of its extent.
_BEYOND_FRONT = 0.1
# Observations of curves that hyper-parameters are fitted to at most.
_MAX_FITTED = 160
# Candidates: drawn anywhere and around the best results, then varied in rounds.
_NUM_RANDOM = 512
_NUM_LOCAL = 255
_NUM_STARTS = 5
_NUM_ROUNDS = 4
_NUM_KEPT = 16
_SPREADS = (0.03, 0.1, 0.25)
_CHANGED_SHARES = (0.15, 0.4, 1.0)
_KEPT = -1.0  # the violation of a limit that a result does not name

_Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Values points, given which parameters exist in them, and their features."""

_Worth = Callable[[Sequence[np.ndarray]], np.ndarray]
"""Makes one number of the standardised values of all objectives."""


class ProcessSampler(DesignSampler):
    """Proposes where a Gaussian process expects the best, or knows too little.

    Running configurations count as if they had given what is expected of them: none is proposed twice.
    """

    def __init__(
        self, parameters: Parameters, seed: int, knowledge: Knowledge, readings: Sequence[Reading]
    ) -> None:
        """Prepare one proposal.

        Args:
            parameters: The searched parameters.
            seed: Seed of this proposal.
            knowledge: The results so far, some of them with a value; what is fitted to them is added.
            readings: How the curves of each objective are read.
        """
        super().__init__(parameters, seed)
        self._random = np.random.default_rng(seed)
        self._results = knowledge.results
        self._kernels = knowledge.kernels
        self._readings = readings

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose a configuration."""
        running = [
            other for other in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if other.number != trial.number
        ]  # fmt: skip
        with ON_ONE_THREAD():
            return self.encoding.params(*self._choose(running))

    def _choose(self, running: Sequence[FrozenTrial]) -> tuple[np.ndarray, np.ndarray]:
        ended = [result.trial for result in self._results]
        located = [self.encoding.locate(trial.params) for trial in (*ended, *running)]
        tried, exists = np.array([point for point, _ in located]), np.array([found for _, found in located])
        features = self.encoding.features(tried, exists)
        num_fitted = _num_fitted(len(ended))
        goals = [
            self._goal(index, ended, running, features, num_fitted) for index in range(len(self._readings))
        ]
        limits = [
            self._model(name, features, violations, num_fitted)
            for name, violations in violations_of(self._results).items()
        ]

        worth = self._scalarization(goals, [*map(keeps_limits, ended)])
        prior_weight = _PRIOR_WEIGHT / len(ended) ** 2

        def score(points: np.ndarray, exists: np.ndarray, features: np.ndarray) -> np.ndarray:
            scores = worth([goal.optimistic(features) for goal in goals])
            scores = scores + prior_weight * self.encoding.log_prior(points, exists)
            for limit in limits:
                scores += limit.log_chance_at_most(0.0, features)
            return scores

        first = slice(len(ended))
        best = np.argsort(-score(tried[first], exists[first], features[first]), kind="stable")[:_NUM_STARTS]
        return self._climb(score, tried[best], {row.tobytes() for row in features})

    def _goal(
        self,
        index: int,
        ended: Sequence[FrozenTrial],
        running: Sequence[FrozenTrial],
        features: np.ndarray,
        num_fitted: int,
    ) -> _Model:
        """Model one objective."""
        if len(self._readings) > 1:
            ended = [of_objective(trial, index) for trial in ended]
            running = [of_objective(trial, index) for trial in running]
        if not any(is_cut(trial) for trial in ended):
            values = result_values(ended, self._readings[index].sign)
            return self._model(f"goal {index}", features, values, num_fitted)
        kernel, forecasts = self._forecast(index, [*ended, *running], features, num_fitted)
        values = result_values(ended, self._readings[index].sign, forecasts)
        return self._model(f"goal {index}", features, values, num_fitted, kernel, forecasts[len(ended) :])

    def _scalarization(self, goals: Sequence[_Model], kept: Sequence[bool]) -> _Worth:
        """Return what one number makes of all objectives: of one itself, of several by drawn weights.

        The mean over all weights is the hypervolume, so that proposals spread over the front.
        Source: Zhang and Golovin, Random hypervolume scalarizations, ICML 2020.
        """
        if len(goals) == 1:
            return lambda values: values[0]
        results = np.column_stack([goal.values for goal in goals])
        results = results[np.array(kept)] if any(kept) else results
        front = results[is_on_front(results)]
        size = np.ptp(front, axis=0)
        size = np.where(size > 1e-9, size, 1.0)
        low = front.min(0) - _BEYOND_FRONT * size
        weights = np.abs(self._random.standard_normal(len(goals)))
        scale = size * weights / np.linalg.norm(weights)
        return lambda values: ((np.column_stack(values) - low) / scale).min(1)

    def _forecast(
        self, index: int, trials: Sequence[FrozenTrial], features: np.ndarray, num_fitted: int
    ) -> tuple[Kernel, np.ndarray]:
        """Forecast where all trainings end, or would have ended, from what they and the others reported."""
        key, reading = (f"curves {index}", num_fitted), self._readings[index]
        if key not in self._kernels:
            # From these results alone, as they were when they were the only ones.
            seen = observe(trials[:num_fitted], reading)
            few = np.flatnonzero(seen.rows % math.ceil(len(seen.rows) / _MAX_FITTED) == 0)
            standard = _Scale.of(seen.values).standardize(seen.values)
            self._kernels[key] = fit(
                features[seen.rows[few]], self.encoding.groups, standard[few], seen.ahead[few]
            )
        kernel = self._kernels[key]
        seen = observe(trials, reading)
        scale = _Scale.of(seen.values)
        standard = scale.standardize(seen.values)
        process = GaussianProcess(kernel, self.encoding.groups, features[seen.rows], standard, seen.ahead)
        return kernel, scale.restore(process.predict(features)[0])

    def _model(
        self,
        name: str,
        features: np.ndarray,
        values: np.ndarray,
        num_fitted: int,
        kernel: Kernel | None = None,
        expected: np.ndarray | None = None,
    ) -> _Model:
        """Model one quantity at the end of trainings.

        Args:
            name: Name of the quantity.
            features: Of the configurations that have ended, and of those that are running.
            values: Of those that have ended.
            num_fitted: How many of them the hyper-parameters are fitted to.
            kernel: The hyper-parameters; None if they are to be fitted.
            expected: What is expected of those that are running; None if it follows from the values.
        """
        scale, key = _Scale.of(values), (name, num_fitted)
        if kernel is None:
            if key not in self._kernels:
                fitted = values[:num_fitted]
                standard = _Scale.of(fitted).standardize(fitted)
                self._kernels[key] = fit(features[:num_fitted], self.encoding.groups, standard)
            kernel = self._kernels[key]
        known, standard = features[: len(values)], scale.standardize(values)
        if len(features) > len(values):
            if expected is None:
                process = GaussianProcess(kernel, self.encoding.groups, known, standard)
                liar = process.predict(features[len(values) :])[0]
            else:
                liar = scale.standardize(expected)
            known, standard = features, np.concatenate([standard, liar])
        process = GaussianProcess(kernel, self.encoding.groups, known, standard)
        return _Model(process, scale, standard[: len(values)])

    def _climb(self, score: _Score, starts: np.ndarray, tried: set[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the configuration of the highest score that was found; a new one if there is any."""
        random, columns = self._random, starts.shape[1]
        near = np.repeat(starts, math.ceil(_NUM_LOCAL / len(starts)), axis=0)
        spread = random.choice(_SPREADS, size=(len(near), 1))
        share = random.choice(_CHANGED_SHARES, size=(len(near), 1))
        units = np.vstack([random.random((_NUM_RANDOM, columns)), self._vary(near, spread, share)])
        best = self._judge(score, units, tried)
        for part in range(_NUM_ROUNDS):
            spread = np.array([[_SPREADS[1] / 2**part]])
            units = self._vary(np.repeat(best.points, _NUM_KEPT, axis=0), spread, np.array([[0.5]]))
            best = self._judge(score, units, tried, best)
        return best.points[0], best.exists[0]

    def _judge(
        self,
        score: _Score,
        units: np.ndarray,
        tried: set[bytes],
        before: _Candidates | None = None,
    ) -> _Candidates:
        """Return the candidates of the highest scores, best first, among new points and those before."""
        points, exists = self.encoding.snap(units)
        features = self.encoding.features(points, exists)
        scores = score(points, exists, features)
        scores[[row.tobytes() in tried for row in features]] = -np.inf
        if before is not None:
            points = np.concatenate([before.points, points])
            exists = np.concatenate([before.exists, exists])
            scores = np.concatenate([before.scores, scores])
        best = np.argsort(-scores, kind="stable")[:_NUM_KEPT]
        return _Candidates(points[best], exists[best], scores[best])

    def _vary(self, units: np.ndarray, spread: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Change a share of the columns of each point, at least one: ranges by a step, choices by a draw."""
        random = self._random
        changes = random.random(units.shape) < share
        changes[np.arange(len(units)), random.integers(0, units.shape[1], len(units))] = True
        moved = np.clip(units + spread * random.standard_normal(units.shape), 0.0, 1.0)
        moved = np.where(self.encoding.is_choice, random.random(units.shape), moved)
        return np.where(changes, moved, units)


@dataclass(frozen=True)
class _Candidates:
    points: np.ndarray
    exists: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class _Scale:
    """How values are brought to mean 0 and standard deviation 1."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: np.ndarray) -> _Scale:
        return cls(float(values.mean()), max(float(values.std()), 1e-12))

    def standardize(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.deviation

    def restore(self, standard: np.ndarray) -> np.ndarray:
        return self.mean + self.deviation * standard


@dataclass(frozen=True)
class _Model:
    process: GaussianProcess
    scale: _Scale
    values: np.ndarray
    """The standardised values of what has ended."""

    def optimistic(self, features: np.ndarray) -> np.ndarray:
        """Return how good the quantity may be, standardised."""
        mean, deviation = self.process.predict(features)
        return mean + _OPTIMISM * deviation

    def log_chance_at_most(self, bound: float, features: np.ndarray) -> np.ndarray:
        """Return the logarithm of the probability that the quantity is at most `bound`."""
        mean, deviation = self.process.predict(features)
        return log_ndtr((self.scale.standardize(np.array(bound)) - mean) / deviation)


def _num_fitted(num_results: int) -> int:
    """Return how many results the hyper-parameters are fitted to; few numbers, so that few fits suffice."""
    fitted = following = MIN_PROCESS_RESULTS
    while following <= num_results:
        fitted, following = following, max(following + 2, int(following * _GROWTH))
    return fitted


def result_values(
    trials: Sequence[FrozenTrial], sign: float, forecasts: np.ndarray | None = None
) -> np.ndarray:
    """Return what each trial is worth, larger is better.

    A pruned trial counts as its forecast. One that could not be trained (out of memory, diverged) counts as
    the worst, and one that failed as the median, because another cause than its configuration is possible.

    Args:
        trials: Trials with a result.
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
    failed = np.array([trial.state == TrialState.FAIL for trial in trials])
    return np.where(np.isnan(values), np.where(failed, np.median(known), known.min()), values)


def violations_of(results: Sequence[Result]) -> dict[str, np.ndarray]:
    """Return by how much each limit is broken in each result; a limit that it does not name is kept."""
    names = sorted({name for result in results for name in result.violations})
    return {name: np.array([result.violations.get(name, _KEPT) for result in results]) for name in names}

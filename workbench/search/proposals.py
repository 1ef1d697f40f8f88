"""Proposes configurations by Gaussian processes. `auto` uses this sampler where it is the best.

Each quantity of the search, such as an objective or a limit, is standardised and has its own
process. A proposal is a function of the results so far, the running proposals, and a seed. It takes
a few milliseconds, because hyper-parameters are only fitted again when there are 15 % more results.
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

from workbench.search.acquisition_search import (
    Climber,
    log_expected_improvement,
    log_possible_improvement,
)
from workbench.search.cost_limit import CostLimit
from workbench.search.design import DesignSampler
from workbench.search.front import ExpectedGain
from workbench.search.gaussian_process import GaussianProcess, Kernel, fit
from workbench.search.knowledge import MIN_PROCESS_RESULTS, Knowledge, violations_of
from workbench.search.limits import keeps_limits
from workbench.search.parameters import Parameters
from workbench.search.partial_results import Reading, is_cut, observe, of_objective, result_values
from workbench.search.resource_models import Cost, full_seconds
from workbench.search.transfer import Related, Relation, Source, relate

# A possible value is this many standard deviations above the mean. Chosen by `make bench
# WHAT=search`.
_OPTIMISM = 2.0
# For small matrices, threads take longer than they save. Looking up the libraries is slow, so it is
# done once.
ON_ONE_THREAD = partial(ThreadpoolController().limit, limits=1, user_api="blas")
# The weight of priors. It is divided by the square of the number of results.
_PRIOR_WEIGHT = 10.0
# Hyper-parameters are fitted again when there are this many times as many results.
_GROWTH = 1.15
# Hyper-parameters are fitted to at most this many observations of curves.
_MAX_FITTED = 160
# From this many results on, the results of this run decide whether an earlier run is related to it.
_MIN_RELATED = 2
_Worth = Callable[[np.ndarray], np.ndarray]
"""Scores configurations, given their features."""


@dataclass(frozen=True)
class Scale:
    """Transforms values to mean 0 and standard deviation 1, and back."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: np.ndarray) -> Scale:
        """Return the scale of these values."""
        return cls(float(values.mean()), max(float(values.std()), 1e-12))

    def standardize(self, values: np.ndarray) -> np.ndarray:
        """Return values on the standard scale."""
        return (values - self.mean) / self.deviation

    def restore(self, standard: np.ndarray) -> np.ndarray:
        """Return standardised values in their original units."""
        return self.mean + self.deviation * standard


@dataclass(frozen=True)
class Quantity:
    """A quantity of the search: its process, and the values that it was conditioned on."""

    process: GaussianProcess
    scale: Scale
    values: np.ndarray
    """The standardised values of configurations that have ended."""
    is_informed: bool = False
    """Whether the process also contains results of earlier runs."""

    def optimistic(self, features: np.ndarray) -> np.ndarray:
        """Return the possible values of the quantity, standardised."""
        mean, deviation = self.process.predict(features)
        return mean + _OPTIMISM * deviation

    def log_improvement(self, features: np.ndarray) -> np.ndarray:
        """Return the logarithm of the expected improvement on the best value."""
        return log_expected_improvement(*self.process.predict(features), float(self.values.max()))

    def log_chance_at_most(self, bound: float, features: np.ndarray) -> np.ndarray:
        """Return the logarithm of the probability that the quantity is at most `bound`."""
        mean, deviation = self.process.predict(features)
        return log_ndtr((self.scale.standardize(np.array(bound)) - mean) / deviation)


class ProcessSampler(DesignSampler):
    """Proposes configurations that a Gaussian process expects to be good or knows little about.

    Running configurations count as if they had their expected results, so none is proposed twice.
    """

    def __init__(
        self,
        parameters: Parameters,
        seed: int,
        knowledge: Knowledge,
        readings: Sequence[Reading],
        cost_limit: CostLimit | None = None,
        *,
        is_first: bool = False,
    ) -> None:
        """Prepare one proposal.

        Args:
            parameters: The searched parameters.
            seed: Seed of this proposal.
            knowledge: The results so far, some of them with a value. Fitted hyper-parameters are
                added to its cache.
            readings: How to read the curves of each objective.
            cost_limit: The budget's limit on the cost of all trainings, or None if there is none.
            is_first: Whether it is the first configuration that is chosen. Running ones, which
                users enqueued, do not count then.
        """
        super().__init__(parameters, seed, knowledge, is_first=is_first)
        self._random = np.random.default_rng(seed)
        self._knowledge, self._results = knowledge, knowledge.results
        self._kernels = knowledge.kernels
        self._readings, self._cost_limit = readings, cost_limit
        complete = {
            run_id: [
                result.trial for result in results if result.trial.state == TrialState.COMPLETE
            ]
            for run_id, results in knowledge.earlier.items()
        }
        self._earlier = {
            run_id: trials
            for run_id, trials in complete.items()
            if len(trials) >= MIN_PROCESS_RESULTS
        }
        self._earlier_results = [
            result for results in knowledge.earlier.values() for result in results
        ]

    @property
    def has_related_run(self) -> bool:
        """Whether an earlier run is related to this one, by the results of this one.

        For the first configuration, any earlier run counts as related.
        """
        ended = [result.trial for result in self._results]
        if not self._earlier or len(ended) < _MIN_RELATED:
            return self.is_first and bool(self._earlier)
        if any(map(is_cut, ended)) or all(trial.state != TrialState.COMPLETE for trial in ended):
            return False
        features = self._features(ended)
        with ON_ONE_THREAD():
            return any(
                self._related(index, features, self._values(index, ended)) is not None
                for index in range(len(self._readings))
            )

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose a configuration."""
        running = [
            other
            for other in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if other.number != trial.number and not self.is_first
        ]
        with ON_ONE_THREAD():
            return self.encoding.params(*self._choose(running, trial.number))

    def _choose(self, running: Sequence[FrozenTrial], number: int) -> tuple[np.ndarray, np.ndarray]:
        ended = [result.trial for result in self._results]
        earlier = [trial for trials in self._earlier.values() for trial in trials]
        own, others = self._locate_results(), self._locate([*running, *earlier])
        tried, exists = map(np.concatenate, zip(own, others, strict=True))
        features = self.encoding.features(tried, exists)
        num_own = len(ended) + len(running)
        num_fitted = _num_fitted(len(ended))
        goals = [
            self._goal(index, ended, running, features[:num_own], num_fitted)
            for index in range(len(self._readings))
        ]
        limits = self._limits(features[:num_own])
        valued = ended if len(goals[0].values) == len(ended) else earlier
        kept = np.array([keeps_limits(trial) for trial in valued])
        cost = self._cost(features[: len(ended)], len(running) + 1, num_fitted)
        # While other trials are running, every other proposal is bold. Expected improvement alone
        # would always stay near the best configuration.
        is_turn = bool(running) and number % 2 == 0
        is_bold = is_turn or bool(limits or self.memory) or any(map(is_cut, ended))
        worth = self._worth(goals, kept, cost, is_bold=is_bold)
        prior_weight = _PRIOR_WEIGHT / max(len(ended), 1) ** 2

        # All terms are logarithms: the worth of a configuration times the probabilities that it
        # keeps each limit and fits into memory.
        def score(points: np.ndarray, exists: np.ndarray, features: np.ndarray) -> np.ndarray:
            scores = worth(features) + prior_weight * self.encoding.log_prior(points, exists)
            for limit in limits:
                scores += limit.log_chance_at_most(0.0, features)
            if self.memory is not None:
                scores += self.memory.log_chance(features)
            return scores

        if any(goal.is_informed for goal in goals):
            first = np.delete(np.arange(len(tried)), np.arange(len(ended), num_own))
        else:
            first = np.arange(len(ended))
        order = np.argsort(-score(tried[first], exists[first], features[first]), kind="stable")
        climber = Climber(self.encoding, self._random)
        return climber.climb(
            score, tried[first[order]], {row.tobytes() for row in features[:num_own]}
        )

    def _locate_results(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the points of the results. Earlier proposals have cached all but the last."""
        located = self._knowledge.located
        num = 0 if located is None else len(located[0])
        if located is None or num < len(self._results):
            points, exists = self._locate([result.trial for result in self._results[num:]])
            if located is not None:
                points = np.concatenate([located[0], points])
                exists = np.concatenate([located[1], exists])
            self._knowledge.located = located = points, exists
        return located

    def _locate(self, trials: Sequence[FrozenTrial]) -> tuple[np.ndarray, np.ndarray]:
        return self.encoding.locate([trial.params for trial in trials])

    def _features(self, trials: Sequence[FrozenTrial]) -> np.ndarray:
        return self.encoding.features(*self._locate(trials))

    def _values(self, index: int, trials: Sequence[FrozenTrial]) -> np.ndarray:
        """Return the values of trials by one objective. None may have been stopped early."""
        if len(self._readings) > 1:
            trials = [of_objective(trial, index) for trial in trials]
        return result_values(trials, self._readings[index].sign)

    def _limits(self, features: np.ndarray) -> list[Quantity]:
        """Model by how much each limit is broken.

        Results of earlier runs count like results of this run. Whether a configuration fits into
        memory, for example, does not depend on the run.
        """
        results = [*self._earlier_results, *self._results]
        if self._earlier_results:
            before = self._features([result.trial for result in self._earlier_results])
            features = np.concatenate([before, features])
        return [
            self._model(name, features, violations, _num_fitted(len(results)))
            for name, violations in violations_of(results).items()
        ]

    def _related(self, index: int, features: np.ndarray, values: np.ndarray) -> Related | None:
        """Return the results of earlier runs that are related to this one by one objective."""
        related: list[tuple[Relation, Source, Kernel]] = []
        for run_id, trials in self._earlier.items():
            source = Source(self._features(trials), self._values(index, trials))
            key = (f"goal {index} of {run_id}", len(trials))
            if key not in self._kernels:
                self._kernels[key] = fit(source.features, self.encoding.groups, source.standard)
            relation = relate(self._kernels[key], self.encoding.groups, source, features, values)
            if relation is not None:
                related.append((relation, source, self._kernels[key]))
        return Related.of(related) if related else None

    def _goal(
        self,
        index: int,
        ended: Sequence[FrozenTrial],
        running: Sequence[FrozenTrial],
        features: np.ndarray,
        num_fitted: int,
    ) -> Quantity:
        """Model one objective."""
        if len(self._readings) > 1:
            ended = [of_objective(trial, index) for trial in ended]
            running = [of_objective(trial, index) for trial in running]
        if not any(is_cut(trial) for trial in ended):
            sign = self._readings[index].sign
            values = result_values(ended, sign)
            if len(values) < _MIN_RELATED:  # one result shows no scale
                features, values = features[len(values) :], values[:0]
            related = self._related(index, features[: len(values)], values)
            return self._model(
                f"goal {index}",
                features,
                values,
                num_fitted,
                related=related,
                # Values of failed trials depend on all results. A replay must fit to the same
                # values, so only the first results count.
                first=lambda: result_values(ended[:num_fitted], sign),
            )
        kernel, forecasts = self._forecast(index, [*ended, *running], features, num_fitted)
        values = result_values(ended, self._readings[index].sign, forecasts)
        related = self._related(index, features[: len(ended)], values)
        expected = forecasts[len(ended) :]
        return self._model(
            f"goal {index}",
            features,
            values,
            num_fitted,
            kernel=kernel,
            expected=expected,
            related=related,
        )

    def _worth(
        self, goals: Sequence[Quantity], kept: np.ndarray, cost: Cost | None, *, is_bold: bool
    ) -> _Worth:
        """Return the function that scores configurations by one objective or by a front.

        A bold proposal uses the possible value, which is often largest at the ends of ranges and
        needs many trials. Expected improvement finds better configurations in runs with one trial
        at a time and without limits. With several trials at a time, the two alternate.
        """
        if cost is not None:
            return self._worth_for_cost(goals[0], kept, cost)
        if len(goals) == 1:
            return goals[0].optimistic if is_bold else goals[0].log_improvement
        results = np.column_stack([goal.values for goal in goals])
        gain = ExpectedGain(results[kept] if any(kept) else results)

        def worth(features: np.ndarray) -> np.ndarray:
            predicted = [goal.process.predict(features) for goal in goals]
            means, deviations = map(np.column_stack, zip(*predicted, strict=True))
            return gain.log_of(means, deviations)

        return worth

    def _cost(self, features: np.ndarray, num_at_once: int, num_fitted: int) -> Cost | None:
        """Model the cost of trainings. Returns None if cost does not limit the search."""
        if self._cost_limit is None or not self._results:
            return None
        seconds = full_seconds(self._results, self._readings[0])
        known = seconds[seconds > 0]
        if not len(known) or not self._cost_limit.ends_first(float(known.mean()), num_at_once):
            return None
        return Cost.of(
            seconds,
            features,
            self.encoding.groups,
            kernels=self._kernels,
            num_fitted=num_fitted,
        )

    def _worth_for_cost(self, goal: Quantity, kept: np.ndarray, cost: Cost) -> _Worth:
        """Return the function that scores configurations by their improvement per cost.

        If trials are stopped early, a disappointing trial is cheap, so the possible improvement is
        used. Otherwise the expected improvement is used, which risks less of the budget on a trial.

        Source: Snoek, Larochelle and Adams, Practical Bayesian optimization, NIPS 2012, section
        3.2.
        """
        best = float(goal.values[kept if any(kept) else slice(None)].max())
        if any(is_cut(result.trial) for result in self._results):
            return lambda features: (
                log_possible_improvement(goal.optimistic(features), best)
                - cost.log_factor(features)
            )
        return lambda features: (
            log_expected_improvement(*goal.process.predict(features), best)
            - cost.log_factor(features)
        )

    def _forecast(
        self, index: int, trials: Sequence[FrozenTrial], features: np.ndarray, num_fitted: int
    ) -> tuple[Kernel, np.ndarray]:
        """Forecast the final values of all trainings, as if none were stopped, from all reports."""
        key, reading = (f"curves {index}", num_fitted), self._readings[index]
        if key not in self._kernels:
            # Only from the first results, so that a replay fits to the same observations.
            seen = observe(trials[:num_fitted], reading)
            few = np.flatnonzero(seen.rows % math.ceil(len(seen.rows) / _MAX_FITTED) == 0)
            standard = Scale.of(seen.values).standardize(seen.values)
            self._kernels[key] = fit(
                features[seen.rows[few]], self.encoding.groups, standard[few], seen.ahead[few]
            )
        kernel = self._kernels[key]
        seen = observe(trials, reading)
        scale = Scale.of(seen.values)
        standard = scale.standardize(seen.values)
        process = GaussianProcess(
            kernel, self.encoding.groups, features[seen.rows], standard, ahead=seen.ahead
        )
        return kernel, scale.restore(process.predict(features)[0])

    def _model(
        self,
        name: str,
        features: np.ndarray,
        values: np.ndarray,
        num_fitted: int,
        *,
        kernel: Kernel | None = None,
        expected: np.ndarray | None = None,
        related: Related | None = None,
        first: Callable[[], np.ndarray] | None = None,
    ) -> Quantity:
        """Model one quantity at the end of trainings.

        Args:
            name: Name of the quantity.
            features: Features of the ended configurations, then of the running ones.
            values: Values of the ended configurations.
            num_fitted: The number of values to which the hyper-parameters are fitted.
            kernel: The hyper-parameters, or None to fit them.
            expected: Expected values of the running configurations, or None to predict them.
            related: Results of related earlier runs, or None.
            first: Returns the values to which the hyper-parameters are fitted. None for the first
                of `values`.
        """
        key = (name, num_fitted)
        scale = Scale.of(values) if related is None else Scale(related.mean, related.deviation)
        if related is not None and len(related.values) >= len(values):
            kernel = related.kernel
        if kernel is None:
            if key not in self._kernels:
                fitted = values[:num_fitted] if first is None else first()
                standard = Scale.of(fitted).standardize(fitted)
                self._kernels[key] = fit(features[:num_fitted], self.encoding.groups, standard)
            kernel = self._kernels[key]
        standard, running = scale.standardize(values), features[len(values) :]
        if len(running) and expected is not None:
            observed = np.concatenate([standard, scale.standardize(expected)])
            process = self._process(kernel, features, observed, related)
        else:
            process = self._process(kernel, features[: len(values)], standard, related)
            if len(running):
                process = process.as_if_expected(running)
        own = standard if len(values) or related is None else related.values
        return Quantity(process, scale, own, is_informed=related is not None)

    def _process(
        self, kernel: Kernel, features: np.ndarray, values: np.ndarray, related: Related | None
    ) -> GaussianProcess:
        """Return the process conditioned on standardised values of this run and related runs."""
        if related is None:
            return GaussianProcess(kernel, self.encoding.groups, features, values)
        return GaussianProcess(
            kernel,
            self.encoding.groups,
            np.concatenate([related.features, features]),
            np.concatenate([related.values, values]),
            agreement=related.agreement(len(values)),
        )


def _num_fitted(num_results: int) -> int:
    """Return the number of results to which the hyper-parameters are fitted.

    It only takes a few values: 4, 6, 8 and so on, then steps of 15 %. So few fits are needed.
    """
    fitted = following = MIN_PROCESS_RESULTS
    while following <= num_results:
        fitted, following = following, max(following + 2, int(following * _GROWTH))
    return fitted

"""Proposes configurations by Gaussian processes. `auto` uses this sampler where it is the best.

Each quantity of the search, such as an objective or a limit, is standardised and has its own
process. A proposal is a function of the results so far, the running proposals, and a seed. It takes
a few milliseconds, because hyper-parameters are only fitted again when there are 15 % more results.

Evidence decides whether an earlier run is related to this one, and how its values compare. The
functions of two runs are modelled as correlated samples of a Gaussian process. The values of this
run have their own units. An earlier run is dropped if it does not make the results of this run more
probable, or if its results do not even predict each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr
from threadpoolctl import ThreadpoolController

from workbench.search.acquisition_search import (
    Climber,
    log_expected_improvement,
    log_possible_improvement,
)
from workbench.search.first_configurations import DesignSampler
from workbench.search.front_growth import ExpectedGain
from workbench.search.gaussian_process import GaussianProcess, Kernel, correlation, factorize, fit
from workbench.search.optuna_space import Parameters
from workbench.search.optuna_versions import keeps_limits
from workbench.search.partial_results import (
    Reading,
    is_cut,
    observe,
    of_objective,
    result_values,
    without_outliers,
)
from workbench.search.resource_models import Cost, full_seconds
from workbench.search.study_records import (
    MIN_PROCESS_RESULTS,
    CostLimit,
    Expected,
    Knowledge,
    violations_of,
)

# The correlations that are compared, and the prior probability that there is none.
_CORRELATIONS = (0.5, 0.8, 0.95, 0.995)
_UNRELATED = 0.8
# The assumed correlation before this run has results.
_EXPECTED = 0.9
# The units of this run's values that are compared, as multiples of the spread of either run.
_UNITS = tuple(2.0**power for power in range(-3, 4))
_LEAST = 1e-12
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
class Source:
    """The results of an earlier run.

    Attributes:
        features: Features of its configurations, shape [n, features].
        values: Their values, shape [n]. Larger is better.
    """

    features: np.ndarray
    values: np.ndarray

    @property
    def mean(self) -> float:
        """The mean of its values."""
        return float(self.values.mean())

    @property
    def deviation(self) -> float:
        """The standard deviation of its values."""
        return max(float(self.values.std()), _LEAST)

    @property
    def standard(self) -> np.ndarray:
        """Its values with mean 0 and standard deviation 1, shape [n]."""
        return (self.values - self.mean) / self.deviation


@dataclass(frozen=True)
class Relation:
    """The relation of this run to an earlier one.

    Attributes:
        correlation: The correlation of the functions that both search, in (0, 1).
        mean: The value of this run that is as good as the mean of the earlier one.
        deviation: One standard deviation of the earlier run, in units of this one.
        evidence: The log likelihood ratio of this run's results with and without the earlier run.
    """

    correlation: float
    mean: float
    deviation: float
    evidence: float = 0.0


@dataclass(frozen=True)
class Related:
    """The results of related runs, and the units of the run that explains this one best.

    Attributes:
        kernel: Hyper-parameters of the run that explains this one best.
        features: Features of all configurations, shape [n, features].
        values: Their values, shape [n]. Those of each run have mean 0 and standard deviation 1.
        correlations: For each configuration, the correlation of its run with this one, shape [n].
        runs: For each configuration, the number of its run, shape [n].
        mean: See `Relation`.
        deviation: See `Relation`.
    """

    kernel: Kernel
    features: np.ndarray
    values: np.ndarray
    correlations: np.ndarray
    runs: np.ndarray
    mean: float
    deviation: float

    @classmethod
    def of(cls, runs: Sequence[tuple[Relation, Source, Kernel]]) -> Related:
        """Combine one or more related runs."""
        best, _, kernel = max(runs, key=lambda run: run[0].evidence)
        sizes = [len(source.values) for _, source, _ in runs]
        return cls(
            kernel=kernel,
            features=np.concatenate([source.features for _, source, _ in runs]),
            values=np.concatenate([source.standard for _, source, _ in runs]),
            correlations=np.repeat([relation.correlation for relation, _, _ in runs], sizes),
            runs=np.repeat(np.arange(len(runs)), sizes),
            mean=best.mean,
            deviation=best.deviation,
        )

    def agreement(self, num: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the correlations of the runs of all results, with each other and with this run.

        Two other runs are only correlated through this run, so their correlation is the product.

        Args:
            num: The number of results of this run, which come last.

        Returns:
            Shapes [results, results] and [results].
        """
        with_this = np.append(self.correlations, np.ones(num))
        runs = np.append(self.runs, np.full(num, -1))
        same = runs[:, None] == runs[None, :]
        return np.where(same, 1.0, np.outer(with_this, with_this)), with_this


def relate(
    kernel: Kernel, groups: np.ndarray, source: Source, features: np.ndarray, values: np.ndarray
) -> Relation | None:
    """Return the relation of this run to an earlier one, or None if they are unrelated.

    Source: Bonilla, Chai and Williams, Multi-task Gaussian process prediction, NIPS 2007, for two
    tasks. The correlation and the units have the highest posterior probability, with Schwarz's
    penalty for fitted units.

    Args:
        kernel: Hyper-parameters of the earlier run.
        groups: Group of each feature, shape [features].
        source: The earlier run.
        features: Features of this run's results, shape [n, features].
        values: The results, shape [n]. Larger is better.
    """
    if not len(values):
        return Relation(_EXPECTED, source.mean, source.deviation)
    process = GaussianProcess(kernel, groups, source.features, source.standard)
    predictability = process.predictability()
    # A run that cannot predict its own results cannot predict this run's either, so the prior
    # probability of a relation is scaled by its predictability.
    related_before = (1 - _UNRELATED) * (1.0 if predictability is None else predictability)
    if related_before <= 0:
        return None
    factor = factorize(
        _noisy(kernel, correlation(kernel, groups, source.features, source.features))
    )
    cross = solve_triangular(
        factor,
        correlation(kernel, groups, source.features, features),
        lower=True,
        check_finite=False,
    )
    whitened = solve_triangular(factor, source.standard, lower=True, check_finite=False)
    scale = max(float(whitened @ whitened) / len(whitened), _LEAST)
    own = _noisy(kernel, correlation(kernel, groups, features, features))
    mean, explained = cross.T @ whitened, cross.T @ cross
    unrelated = _fits(source, np.zeros(len(values)), scale * own, values)
    alone = max((likelihood for likelihood, _, _ in unrelated), default=-math.inf)
    relations: list[Relation] = []
    for share in _CORRELATIONS:
        covariance = scale * (own - share**2 * explained)
        likelihood, centre, deviation = max(_fits(source, share * mean, covariance, values))
        relations.append(Relation(share, centre, deviation, likelihood - alone))
    best = max(relations, key=lambda relation: relation.evidence)
    peak = best.evidence
    evidence = [math.exp(relation.evidence - peak) for relation in relations]
    # The log of the mean likelihood ratio, with the peak taken out so that nothing overflows.
    related = math.log(sum(evidence) / len(evidence)) + peak
    if related + math.log(related_before / (1 - related_before)) <= 0:
        return None
    return best


def _fits(
    source: Source, mean: np.ndarray, covariance: np.ndarray, values: np.ndarray
) -> Iterator[tuple[float, float, float]]:
    """Yield the log likelihood of different units, with their mean and deviation."""
    num = len(values)
    factor = factorize(covariance)
    root = solve_triangular(
        factor, np.column_stack([np.ones(num), mean, values]), lower=True, check_finite=False
    )
    ones, expected, seen = root.T
    volume = float(np.log(np.diag(factor)).sum())

    def likelihood(centre: float, deviation: float) -> float:
        off = (seen - centre * ones) / deviation - expected
        return -0.5 * float(off @ off) - volume - num * math.log(deviation)

    yield likelihood(source.mean, source.deviation), source.mean, source.deviation
    # Schwarz's penalty of half the logarithm for each of the two fitted numbers.
    penalty = math.log(num + 1)
    spread = float(values.std())
    for deviation in {
        unit * of for unit in _UNITS for of in (source.deviation, spread) if of > _LEAST
    }:
        centre = float(ones @ (seen - deviation * expected)) / float(ones @ ones)
        yield likelihood(centre, deviation) - penalty, centre, deviation


def _noisy(kernel: Kernel, covariance: np.ndarray) -> np.ndarray:
    noisy = covariance.copy()
    noisy[np.diag_indices_from(noisy)] += math.exp(kernel.log_noise) + 1e-6
    return noisy


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

    def expect(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the standard deviation of the quantity, in its own unit."""
        mean, deviation = self.process.predict(features)
        return self.scale.restore(mean), self.scale.deviation * deviation

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

    def expect(self, configurations: Sequence[Mapping[str, Any]]) -> list[Expected]:
        """Return what the results so far let expect of configurations.

        Args:
            configurations: Configurations in Optuna's terms. There is one objective.
        """
        ended = [result.trial for result in self._results]
        features = self._features(ended)
        asked = self.encoding.features(*self.encoding.locate(configurations))
        with ON_ONE_THREAD():
            goal = self._goal(0, ended, [], features, _num_fitted(len(ended)))
            log_chance = np.zeros(len(asked))
            for limit in self._limits(features):
                log_chance += limit.log_chance_at_most(0.0, asked)
            if self.memory is not None:
                log_chance += self.memory.log_chance(asked)
            mean, deviation = goal.expect(asked)
        sign = self._readings[0].sign
        return [
            Expected(sign * float(centre), float(spread), math.exp(chance))
            for centre, spread, chance in zip(mean, deviation, log_chance, strict=True)
        ]

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
        is_within_limits = np.array([keeps_limits(trial) for trial in valued])
        cost = self._cost(features[: len(ended)], len(running) + 1, num_fitted)
        # While other trials are running, every other proposal is bold. Expected improvement alone
        # would always stay near the best configuration.
        is_turn = bool(running) and number % 2 == 0
        is_bold = is_turn or bool(limits or self.memory) or any(map(is_cut, ended))
        worth = self._worth(goals, is_within_limits, cost, is_bold=is_bold)
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
                values if related else without_outliers(values),
                num_fitted,
                related=related,
                # Values of failed trials depend on all results. A replay must fit to the same
                # values, so only the first results count.
                first=lambda: without_outliers(result_values(ended[:num_fitted], sign)),
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
        self,
        goals: Sequence[Quantity],
        is_within_limits: np.ndarray,
        cost: Cost | None,
        *,
        is_bold: bool,
    ) -> _Worth:
        """Return the function that scores configurations by one objective or by a front.

        A bold proposal uses the possible value, which is often largest at the ends of ranges and
        needs many trials. Expected improvement finds better configurations in runs with one trial
        at a time and without limits. With several trials at a time, the two alternate.
        """
        if cost is not None:
            return self._worth_for_cost(goals[0], is_within_limits, cost)
        if len(goals) == 1:
            return goals[0].optimistic if is_bold else goals[0].log_improvement
        results = np.column_stack([goal.values for goal in goals])
        gain = ExpectedGain(results[is_within_limits] if any(is_within_limits) else results)

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
        measured_s = seconds[seconds > 0]
        if not len(measured_s) or not self._cost_limit.ends_first(
            float(measured_s.mean()), num_at_once
        ):
            return None
        return Cost.of(
            seconds,
            features,
            self.encoding.groups,
            kernels=self._kernels,
            num_fitted=num_fitted,
        )

    def _worth_for_cost(self, goal: Quantity, is_within_limits: np.ndarray, cost: Cost) -> _Worth:
        """Return the function that scores configurations by their improvement per cost.

        If trials are stopped early, a disappointing trial is cheap, so the possible improvement is
        used. Otherwise the expected improvement is used, which risks less of the budget on a trial.

        Source: Snoek, Larochelle and Adams, Practical Bayesian optimization, NIPS 2012, section
        3.2.
        """
        best = float(goal.values[is_within_limits if any(is_within_limits) else slice(None)].max())
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
            observations = observe(trials[:num_fitted], reading)
            few = np.flatnonzero(
                observations.rows % math.ceil(len(observations.rows) / _MAX_FITTED) == 0
            )
            standard = Scale.of(observations.values).standardize(observations.values)
            self._kernels[key] = fit(
                features[observations.rows[few]],
                self.encoding.groups,
                standard[few],
                observations.ahead[few],
            )
        kernel = self._kernels[key]
        observations = observe(trials, reading)
        scale = Scale.of(observations.values)
        standard = scale.standardize(observations.values)
        process = GaussianProcess(
            kernel,
            self.encoding.groups,
            features[observations.rows],
            standard,
            ahead=observations.ahead,
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

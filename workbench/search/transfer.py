"""Decides by evidence whether an earlier run is related to this one, and how its values compare.

The functions of two runs are modelled as correlated samples of a Gaussian process. The values of
this run have their own units. An earlier run is dropped if it does not make the results of this run
more probable, or if its results do not even predict each other. `proposals` uses the related runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from workbench.search.gaussian_process import GaussianProcess, Kernel, correlation, factorize

# The correlations that are compared, and the prior probability that there is none.
_CORRELATIONS = (0.5, 0.8, 0.95, 0.995)
_UNRELATED = 0.8
# The assumed correlation before this run has results.
_EXPECTED = 0.9
# The units of this run's values that are compared, as multiples of the spread of either run.
_UNITS = tuple(2.0**power for power in range(-3, 4))
_LEAST = 1e-12


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

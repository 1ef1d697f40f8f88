"""Whether an earlier run is related to this one, and how its values compare: a matter of evidence.

The functions that two runs search are taken for samples of Gaussian processes with a correlation,
and values of this run for such a sample in units of its own. An earlier run in which this run's
results would be no less surprising than without it is forgotten, and so is one whose results do not
even predict each other. Which results there are, and what to propose, is left to `proposals`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from workbench.search.gaussian_process import GaussianProcess, Kernel, correlation, factorize

# Correlations that are considered, and how probable it is beforehand that there is none.
_CORRELATIONS = (0.5, 0.8, 0.95, 0.995)
_UNRELATED = 0.8
# What a run is expected to be to this one while nothing speaks for or against it.
_EXPECTED = 0.9
# Units of this run's values that are considered: multiples of the spread of either run.
_UNITS = tuple(2.0**power for power in range(-3, 4))
_LEAST = 1e-12


@dataclass(frozen=True)
class Source:
    """What an earlier run has found.

    Attributes:
        features: Of its configurations, shape [n, features].
        values: Their values, larger is better, shape [n].
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
    """How this run relates to an earlier one.

    Attributes:
        correlation: Of the functions that both search, in (0, 1).
        mean: The value of this run that is as good as the mean of the earlier one.
        deviation: What one standard deviation of the earlier run is in this one.
        evidence: Logarithm of how much more probable this run's results are with it than without.
    """

    correlation: float
    mean: float
    deviation: float
    evidence: float = 0.0


@dataclass(frozen=True)
class Related:
    """What related runs have found, in the units of the one that explains this run best.

    Attributes:
        kernel: Hyper-parameters of that run.
        features: Of all their configurations, shape [n, features].
        values: Their values, each run's with mean 0 and standard deviation 1, shape [n].
        correlations: For each configuration, that of its run with this one, shape [n].
        runs: For each configuration, the number of its run, shape [n].
        mean: As of `Relation`.
        deviation: As of `Relation`.
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
        """Join related runs, at least one."""
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
        """Return the correlation of runs between all results, and with what this run will find.

        Args:
            num: Results of this run, which come last.

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
    """Return how this run relates to an earlier one, or None if it is as well explained without it.

    Source: Bonilla, Chai and Williams, Multi-task Gaussian process prediction, NIPS 2007, for two
    tasks. The correlation and the units have the highest posterior probability, with Schwarz's
    penalty for fitted units.

    Args:
        kernel: Hyper-parameters of the earlier run.
        groups: Group of each feature, shape [features].
        source: The earlier run.
        features: Of this run's results, shape [n, features].
        values: The results, larger is better, shape [n].
    """
    if not len(values):
        return Relation(_EXPECTED, source.mean, source.deviation)
    process = GaussianProcess(kernel, groups, source.features, source.standard)
    predictability = process.predictability()
    # As far as a run predicts not even its own results, it predicts none of this run.
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
    related = math.log(sum(evidence) / len(evidence)) + peak
    if related + math.log(related_before / (1 - related_before)) <= 0:
        return None
    return best


def _fits(
    source: Source, mean: np.ndarray, covariance: np.ndarray, values: np.ndarray
) -> Iterator[tuple[float, float, float]]:
    """Yield the log likelihood of some units, with the mean and the deviation of these units."""
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
    penalty = math.log(num + 1)  # two fitted numbers, half of the logarithm each
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

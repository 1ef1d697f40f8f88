"""Shares of parameters in the variance of a function over a space, from noisy values.

The function is modelled as a sum of functions of one and two parameters. They are orthogonal over
the declared space, so a total share is a sum of squared coefficients. It does not depend on where
the trials are.

Which of these functions matter is unknown, so the shares are drawn from their posterior
distribution. With few trials, many models fit, and the interval is wide. `importance` makes the
observations and interprets the shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.linalg import solve_triangular

from workbench.search.encoding import Encoding
from workbench.search.first_configurations import spread_points

_MAX_DEGREE = 10
_MAX_PAIR_DEGREE = 6
"""The largest product of the degrees of two parameters."""
_MAX_PAIR_COLUMNS = 800
_NUM_GRID, _NUM_POINTS = 2048, 2048
# Prior probabilities. A parameter has a main effect with probability `_ACTS`. Two parameters
# interact with a probability that depends on how many of them have a main effect: 0, 1 or 2.
_ACTS = 0.5
_PAIR_ACTS = np.array([0.01, 0.06, 0.25])
# The prior variance of a group of functions, relative to the variance of the values. Within a
# group, it falls off with a power of the degree. Both are drawn from these lists. The smoothest and
# the roughest functions are less probable.
_SIZES = np.logspace(-4.5, 1, 12)
_DECAYS, _DECAY_WEIGHTS = (1.5, 3.0, 5.0), (0.3, 0.4, 0.3)
# The value of a cut training is modelled as a linear function of its final value, with this prior
# of the slope.
_SLOPE_MEAN, _SLOPE_SD = 1.0, 0.5
_FLAT = 100.0
"""The prior variance of the intercept, relative to the variance of the values."""
_NOISE, _NOISE_SD = 0.02, 3.0
"""The prior of the noise's variance, relative to the variance of the values.

It is log-normal with this median, and this standard deviation of the logarithm.
"""
_MIN_NOISE = 1e-6
# Each round of the sampler starts at a high temperature, at which the data count less. This makes
# its samples independent of the round before.
_TEMPERATURES = (8.0, 3.0, 1.0, 1.0, 1.0, 1.0)
_NUM_KEPT = 3
"""How many of the last steps of each round are kept."""
_NUM_ROUNDS, _NUM_FUNCTIONS = 10, 4
_MAX_VISITS = 60
"""How many pairs without an interaction in the last step are visited in the next."""
_NUM_NOISE_STEPS = 12
_LEAST = 1e-12
_MIN_SIGNAL = 0.9
"""The share of the draws that must have any effect. Otherwise chance explains the values."""


@dataclass(frozen=True)
class Observed:
    """Observed values of a function.

    A training that was cut only shows the function indirectly. The trainings that were not cut show
    how values at its rung depend on final values. The result is not biased by cutting, because
    trainings were cut because of the same values that are observed here.

    Attributes:
        units: Points of configurations, shape [n, parameters].
        exists: Which parameters exist there, same shape.
        values: The values, shape [n].
        kinds: 0 for final values, and a number from 1 for each rung of cut trainings, shape [n].
        pairs: For each kind from 1 on, the values at its rung and at the end of trainings that have
            both, shape [m, 2].
    """

    units: np.ndarray
    exists: np.ndarray
    values: np.ndarray
    kinds: np.ndarray
    pairs: Sequence[np.ndarray] = ()


@dataclass(frozen=True)
class Group:
    """The functions of the same parameters.

    Attributes:
        parameters: The columns of the parameters, one or two.
        at: The positions of the group among all functions.
        sizes: The relative prior variances within the group for each decay, shape [decays,
            functions].
    """

    parameters: tuple[int, ...]
    at: slice
    sizes: np.ndarray


class Basis:
    """Functions of the parameters of a space. They are orthogonal if no parameter is conditional.

    Attributes:
        groups: The functions, grouped by their parameters. Single parameters come first.
        owners: For each function, which parameters it depends on, shape [functions, parameters].
    """

    def __init__(self, encoding: Encoding) -> None:
        """Choose the functions.

        Args:
            encoding: The encoding of the space.
        """
        self._encoding, num = encoding, len(encoding.distributions)
        grid = np.repeat(((np.arange(_NUM_GRID) + 0.5) / _NUM_GRID)[:, None], num, axis=1)
        rounded = encoding.rounded(grid)
        self._mixes = [self._mix(column, rounded[:, column]) for column in range(num)]
        # Polynomials become rougher with their degree. Functions of a choice have no order, so all
        # have the same degree.
        degrees = [
            np.ones(mix.shape[1]) if is_choice else np.arange(1.0, mix.shape[1] + 1)
            for mix, is_choice in zip(self._mixes, encoding.is_choice, strict=True)
        ]
        products = {
            pair: np.outer(degrees[pair[0]], degrees[pair[1]])
            for pair in combinations(range(num), 2)
        }
        most = _MAX_PAIR_DEGREE
        while most > 1 and _num_at_most(most, products.values()) > _MAX_PAIR_COLUMNS:
            most -= 1
        self._terms: list[tuple[tuple[int, int], ...]] = []
        self.groups: list[Group] = []
        for column, degree in enumerate(degrees):
            self._add([((column, at),) for at in range(len(degree))], degree)
        for (first, second), product in products.items():
            kept = np.argwhere(product <= most)
            pairs = [((first, int(row)), (second, int(column))) for row, column in kept]
            self._add(pairs, product[product <= most])
        self.owners = np.zeros((len(self._terms), num), dtype=bool)
        for row, term in enumerate(self._terms):
            self.owners[row, [column for column, _ in term]] = True

    def _add(self, terms: list[tuple[tuple[int, int], ...]], degrees: np.ndarray) -> None:
        sizes = np.array([degrees**-decay for decay in _DECAYS])
        at = slice(len(self._terms), len(self._terms) + len(terms))
        parameters = tuple(column for column, _ in terms[0])
        self.groups.append(Group(parameters, at, sizes / sizes.sum(1, keepdims=True)))
        self._terms += terms

    def _mix(self, column: int, rounded: np.ndarray) -> np.ndarray:
        """Return the matrix that makes the raw functions of a column orthonormal.

        The first raw function is constant. It is dropped, because the intercept represents it.
        """
        raw = self._raw(column, rounded)
        num_kept = min(raw.shape[1], len(np.unique(rounded.round(12))))
        _, upper = np.linalg.qr(raw[:, :num_kept] / math.sqrt(len(raw)))
        return np.vstack(
            [np.linalg.inv(upper)[:, 1:], np.zeros((raw.shape[1] - num_kept, num_kept - 1))]
        )

    def _raw(self, column: int, units: np.ndarray) -> np.ndarray:
        if not self._encoding.is_choice[column]:
            return np.polynomial.legendre.legvander(2 * units - 1, _MAX_DEGREE)
        size = self._encoding.num_choices(column)
        chosen = np.minimum((units * size).astype(int), size - 1)
        return np.column_stack([np.ones(len(units)), chosen[:, None] == np.arange(1, size)])

    def at(
        self, units: np.ndarray, exists: np.ndarray, which: Sequence[int] | None = None
    ) -> np.ndarray:
        """Return functions at points of configurations, shape [points, functions].

        Args:
            units: The points, shape [points, parameters].
            exists: Which parameters exist there, same shape.
            which: The functions, or None for all.
        """
        parts = [
            (self._raw(column, units[:, column]) @ mix) * exists[:, column, None]
            for column, mix in enumerate(self._mixes)
        ]
        terms = self._terms if which is None else [self._terms[at] for at in which]
        values = np.ones((len(terms), len(units)))
        for row, term in enumerate(terms):
            for column, at in term:
                values[row] *= parts[column][:, at]
        return values.T

    def shares(self, draws: np.ndarray) -> np.ndarray:
        """Return the total shares of the parameters in the variance over the space.

        Args:
            draws: Coefficients of functions, shape [draws, functions].

        Returns:
            Shape [draws, parameters].

        Source: Sudret, Global sensitivity analysis using polynomial chaos expansions, 2008. With
            conditional parameters Jansen, Analysis of variance designs for model output, 1999.
        """
        if not self._encoding.is_conditional.any():
            squares = draws**2
            return (squares @ self.owners) / np.maximum(squares.sum(1), _LEAST)[:, None]
        num = len(self._mixes)
        points = spread_points(_NUM_POINTS, 2 * num)
        first = points[:, :num]
        used = np.flatnonzero(draws.any(0))
        coefficients = draws[:, used].T
        here = self.at(*self._encoding.snap(first.copy()), used.tolist()) @ coefficients
        total = np.maximum(here.var(0), _LEAST)
        effects: list[np.ndarray] = []
        for column in range(num):
            moved = first.copy()
            moved[:, column] = points[:, num + column]
            there = self.at(*self._encoding.snap(moved), used.tolist()) @ coefficients
            effects.append(((here - there) ** 2).mean(0) / 2 / total)
        return np.minimum(np.array(effects).T, 1.0)


def _num_at_most(most: int, products: Iterable[np.ndarray]) -> int:
    """Return how many products of degrees are at most a limit."""
    return sum(int((product <= most).sum()) for product in products)


def draw_shares(encoding: Encoding, observed: Observed, seed: int = 0) -> np.ndarray | None:
    """Draw total shares from their posterior distribution.

    Args:
        encoding: The encoding of the space.
        observed: The observations. The values of a kind must not all be equal.
        seed: The seed of the draws.

    Returns:
        Shape [draws, parameters], or None if chance alone explains the values about as well.

    Source:
        Selection of groups of functions: George and McCulloch, Approaches for Bayesian variable
        selection, Statistica Sinica 1997. Pairs that depend on their parameters: Chipman, Bayesian
        variable selection with related predictors, 1996. Values that are missing because of
        observed values: Rubin, Inference and missing data, Biometrika 1976.
    """
    basis, rng = Basis(encoding), np.random.default_rng(seed)
    chain = _Chain(basis, _Likelihood.of(basis, observed), rng)
    draws: list[np.ndarray] = []
    for _ in range(_NUM_ROUNDS):
        for step, temperature in enumerate(_TEMPERATURES):
            functions = chain.step(temperature)
            if step >= len(_TEMPERATURES) - _NUM_KEPT:
                draws += functions
    coefficients = np.array(draws)
    has_signal = coefficients.any(1)
    if has_signal.mean() < _MIN_SIGNAL:
        return None
    return basis.shares(coefficients[has_signal])


class _Likelihood:
    """The likelihood of the coefficients, given the noise and the readings of cut trainings.

    The columns are the functions, the intercept, and an offset for each kind but the first. A value
    of kind k is `offset_k + slope_k (intercept + functions)`. It contains the noise of the final
    value, and additional noise.

    Attributes:
        num_functions: The number of functions. The intercept is the next column.
        design: The functions and the intercept at the observations, shape [n, functions + 1].
        precision: The precision of all columns by the observations, shape [columns, columns].
        target: The product of the precision and the most likely coefficients, shape [columns].
        prior: The prior variances of the intercept and the offsets.
    """

    def __init__(
        self,
        design: np.ndarray,
        values: np.ndarray,
        rows: list[np.ndarray],
        pairs: list[np.ndarray],
    ) -> None:
        self.design, self._values, self._rows, self._pairs = design, values, rows, pairs
        self.num_functions = design.shape[1] - 1
        num = len(rows)
        self._grams = np.array([design[mine].T @ design[mine] for mine in rows])
        self._sums = np.array([design[mine].sum(0) for mine in rows])
        self._products = np.array([design[mine].T @ values[mine] for mine in rows])
        self._counts = np.array([mine.sum() for mine in rows])
        self._pair_counts = np.array([len(pair) for pair in pairs])
        self._noise, self._more_noise = _NOISE, np.append(0.0, np.full(num - 1, _NOISE))
        self._slopes = np.ones(num)
        self.prior = np.append(_FLAT, np.ones(num - 1))
        columns = self.num_functions + num
        self.precision, self.target = np.zeros((columns, columns)), np.zeros(columns)
        self._sum_up()

    @classmethod
    def of(cls, basis: Basis, observed: Observed) -> _Likelihood:
        """Standardise the values, and shift those of each kind near the final values."""
        values = observed.values.astype(float)
        rows = [observed.kinds == kind for kind in range(int(observed.kinds.max()) + 1)]
        pairs = [np.empty((0, 2)), *(pair.astype(float) for pair in observed.pairs)]
        for mine, pair in zip(rows[1:], pairs[1:], strict=True):
            gap = values[mine].mean() - values[rows[0]].mean()
            if len(pair):
                # Differences within a trial are more exact, as they contain no differences between
                # trials.
                gap = (pair[:, 0] - pair[:, 1]).mean()
            values[mine] -= gap
            pair[:, 0] -= gap
        middle, spread = values.mean(), max(float(values.std()), _LEAST)
        design = np.column_stack([basis.at(observed.units, observed.exists), np.ones(len(values))])
        return cls(
            design, (values - middle) / spread, rows, [(pair - middle) / spread for pair in pairs]
        )

    def _variances(self) -> np.ndarray:
        return self._slopes**2 * self._noise + self._more_noise

    def _sum_up(self) -> None:
        num = self.num_functions + 1
        weights = 1 / self._variances()
        scaled = weights * self._slopes
        self.precision[:num, :num] = np.tensordot(scaled * self._slopes, self._grams, 1)
        self.target[:num] = scaled @ self._products
        for kind in range(1, len(self._rows)):
            at, pair = self.num_functions + kind, self._pairs[kind]
            self.precision[:num, at] = self.precision[at, :num] = scaled[kind] * self._sums[kind]
            more = 1 / self._more_noise[kind]
            self.precision[at, at] = weights[kind] * self._counts[kind] + more * len(pair)
            unexplained = float((pair[:, 0] - self._slopes[kind] * pair[:, 1]).sum())
            self.target[at] = (
                weights[kind] * self._values[self._rows[kind]].sum() + more * unexplained
            )

    def learn(self, coefficients: np.ndarray, rng: np.random.Generator) -> None:
        """Draw slopes and noise, given the coefficients of all columns."""
        signal = self.design @ coefficients[: self.num_functions + 1]
        offsets = np.append(0.0, coefficients[self.num_functions + 1 :])
        variances = self._variances()
        left, pair_left = np.zeros(len(offsets)), np.zeros(len(offsets))
        kinds = enumerate(zip(self._rows, self._pairs, offsets, strict=True))
        for kind, (mine, pair, offset) in kinds:
            here, there = signal[mine], self._values[mine] - offset
            if kind:
                at_rung, at_end = pair[:, 0] - offset, pair[:, 1]
                more = self._more_noise[kind]
                precision = here @ here / variances[kind] + at_end @ at_end / more + _SLOPE_SD**-2
                mean = (
                    here @ there / variances[kind]
                    + at_end @ at_rung / more
                    + _SLOPE_MEAN * _SLOPE_SD**-2
                )
                self._slopes[kind] = mean / precision + rng.standard_normal() / math.sqrt(precision)
                pair_left[kind] = ((at_rung - self._slopes[kind] * at_end) ** 2).sum()
            left[kind] = ((there - self._slopes[kind] * here) ** 2).sum()
        self._learn_noise(left, pair_left, rng)
        self._sum_up()

    def _learn_noise(
        self, left: np.ndarray, pair_left: np.ndarray, rng: np.random.Generator
    ) -> None:
        """Draw the variances of the noise by Metropolis steps, from sums of squared residuals."""

        def log_density(logs: np.ndarray) -> float:
            parts = np.exp(logs)
            variances = self._slopes**2 * parts[0] + np.append(0.0, parts[1:])
            seen = (self._counts * np.log(variances) + left / variances).sum()
            of_pairs = (self._pair_counts[1:] * logs[1:] + pair_left[1:] / parts[1:]).sum()
            return -0.5 * float(
                seen + of_pairs + (((logs - math.log(_NOISE)) / _NOISE_SD) ** 2).sum()
            )

        logs = np.log(np.append(self._noise, self._more_noise[1:]))
        now = log_density(logs)
        for _ in range(_NUM_NOISE_STEPS):
            moved = logs.copy()
            moved[rng.integers(len(logs))] += 0.25 * rng.standard_normal()
            then = log_density(moved)
            if math.log(rng.random()) < then - now:
                logs, now = moved, then
        parts = np.maximum(np.exp(logs), _MIN_NOISE)
        self._noise, self._more_noise = float(parts[0]), np.append(0.0, parts[1:])


class _Chain:
    """A Gibbs sampler of the groups of functions that matter, and of their coefficients."""

    def __init__(self, basis: Basis, likelihood: _Likelihood, rng: np.random.Generator) -> None:
        self._groups, self._likelihood, self._rng = basis.groups, likelihood, rng
        num = basis.owners.shape[1]
        self._singles = range(num)
        self._pairs = np.arange(num, len(basis.groups))
        self._acts = np.zeros(num, dtype=bool)
        self._act_together = np.zeros((num, num), dtype=bool)
        self._prior = np.append(np.zeros(likelihood.num_functions), likelihood.prior)
        self._log_choices = np.log(np.outer(_DECAY_WEIGHTS, np.full(len(_SIZES), 1 / len(_SIZES))))

    def step(self, temperature: float) -> list[np.ndarray]:
        """Draw the next selection of groups, and return coefficients for it.

        Args:
            temperature: The observations are weighted by its inverse.
        """
        rng, likelihood = self._rng, self._likelihood
        precision, target = likelihood.precision / temperature, likelihood.target / temperature
        is_in = np.array([self._prior[group.at].any() for group in self._groups])
        pairs = rng.permutation(self._pairs[~is_in[self._pairs]])[:_MAX_VISITS]
        visits = [
            *rng.permutation(len(self._singles)),
            *rng.permutation([*pairs, *self._pairs[is_in[self._pairs]]]),
        ]
        # The factorization of the other columns only changes when a group enters or leaves, so it
        # is reused while visited groups stay out.
        rest: _Rest | None = None
        for visit in visits:
            group = self._groups[int(visit)]
            was_in = self._prior[group.at].any()
            if was_in:
                self._prior[group.at] = 0.0
            if was_in or rest is None:
                rest = _Rest.of(precision, target, self._prior)
            chosen = self._choose(group, *rest.condition(precision, target, group.at))
            is_now_in = chosen is not None
            if chosen is not None:
                self._prior[group.at] = chosen
                rest = None
            self._note(group.parameters, is_now_in)
        draws = self._draw(_Rest.of(precision, target, self._prior))
        likelihood.learn(draws[-1], rng)
        return [draw[: likelihood.num_functions] for draw in draws]

    def _note(self, parameters: tuple[int, ...], acts: bool) -> None:
        if len(parameters) == 1:
            self._acts[parameters[0]] = acts
        else:
            first, second = parameters
            self._act_together[first, second] = self._act_together[second, first] = acts

    def _choose(self, group: Group, precision: np.ndarray, target: np.ndarray) -> np.ndarray | None:
        """Draw the prior variances of a group's coefficients, given all other groups.

        Args:
            group: The group.
            precision: The precision of its coefficients, shape [functions, functions].
            target: The product of the precision and their most likely values, shape [functions].

        Returns:
            Variances, shape [functions], or None if the group does not matter.
        """
        # The coefficients are integrated out. After an eigendecomposition, the log marginal
        # likelihood of every size is a sum over eigenvalues.
        roots = np.sqrt(group.sizes)
        values, vectors = np.linalg.eigh(roots[:, :, None] * precision * roots[:, None, :])
        values = np.maximum(values, 0.0)[:, None, :]
        squares = np.einsum("dij,di->dj", vectors, roots * target)[:, None, :] ** 2
        sizes = _SIZES[:, None]
        gains = 0.5 * (sizes * squares / (1 + sizes * values) - np.log1p(sizes * values)).sum(-1)
        logs = np.append(
            0.0, (gains + self._log_choices + self._log_odds(group.parameters)).ravel()
        )
        chances = np.exp(logs - logs.max())
        chosen = int(self._rng.choice(len(chances), p=chances / chances.sum()))
        if not chosen:
            return None
        decay, size = divmod(chosen - 1, len(_SIZES))
        return _SIZES[size] * group.sizes[decay]

    def _log_odds(self, parameters: tuple[int, ...]) -> float:
        """Return the log of the prior odds that a group matters, given all other groups.

        The odds of a main effect include how it changes the probabilities of all its pairs.
        """
        if len(parameters) == 2:
            chance = _PAIR_ACTS[self._acts[list(parameters)].sum()]
            return math.log(chance / (1 - chance))
        (column,) = parameters
        others = np.arange(len(self._acts)) != column
        together, known = self._act_together[column, others], self._acts[others].astype(int)
        without, with_it = _PAIR_ACTS[known], _PAIR_ACTS[known + 1]
        change = np.where(
            together, np.log(with_it / without), np.log((1 - with_it) / (1 - without))
        )
        return math.log(_ACTS / (1 - _ACTS)) + float(change.sum())

    def _draw(self, rest: _Rest) -> list[np.ndarray]:
        draws: list[np.ndarray] = []
        for _ in range(_NUM_FUNCTIONS):
            noise = self._rng.standard_normal(len(rest.columns))
            draw = np.zeros(len(self._prior))
            draw[rest.columns] = solve_triangular(
                rest.factor, rest.target + noise, lower=True, trans=1, check_finite=False
            )
            draws.append(draw)
        return draws


@dataclass(frozen=True)
class _Rest:
    """The columns of all groups that matter, without the visited group.

    Attributes:
        columns: The positions of the columns.
        factor: The Cholesky factor of the posterior precision of their coefficients.
        target: The product of the factor's transpose and the coefficients' means.
    """

    columns: np.ndarray
    factor: np.ndarray
    target: np.ndarray

    @classmethod
    def of(cls, precision: np.ndarray, target: np.ndarray, prior: np.ndarray) -> _Rest:
        columns = np.flatnonzero(prior)
        own = precision[columns[:, None], columns]
        own[np.diag_indices_from(own)] += 1 / prior[columns]
        factor = np.linalg.cholesky(own)
        return cls(
            columns,
            factor,
            solve_triangular(factor, target[columns], lower=True, check_finite=False),
        )

    def condition(
        self, precision: np.ndarray, target: np.ndarray, at: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the precision and the target of a group, conditioned on these columns."""
        shared = solve_triangular(
            self.factor, precision[self.columns, at], lower=True, check_finite=False
        )
        return precision[at, at] - shared.T @ shared, target[at] - shared.T @ self.target

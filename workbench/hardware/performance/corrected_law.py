"""A law that is fitted to logarithms of measurements and corrected by a Gaussian process.

The law describes a known mechanism, so it predicts plans that differ from the measured ones. Its
parameters have prior beliefs. The process models the residuals, and corrects plans that are close
to measured ones in some columns. Both are fitted to the same rows, and held-out rows show how wide
intervals must be. Callers choose the law, the columns and the beliefs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from workbench.hardware.performance.least_squares import jacobian, minimise

Array = NDArray[np.float64]
Columns = Mapping[str, Array]
"""Arrays of the same length by name: the input of laws and parts."""

NORMAL_90 = 1.6449
# Half of all normally distributed values are within this many deviations.
_MEDIAN_OF_NORMAL = 0.6745
on_one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""Run a function on one thread: with small matrices, threads only wait for each other."""

_ROWS_TO_FIT = 400
_ROWS_TO_ADAPT = 250
# The smallest standard deviation of a prediction: no plan is timed or weighed more exactly.
_MIN_DEVIATION = 0.008
# The deviation of the residuals of a law if nothing is known about it.
_PLAIN = 0.05
_ROUNDS = 2
_FACTORS = (2.0, 1.5)
# The prior of the sizes of parts: the standard deviation of their logarithms.
_DOUBT = 0.7
_MIN_GAIN = 1e-3
# A row that is more than this many deviations off is taken for noisier: its noise is multiplied by
# twice that number of deviations.
OUTLYING = 3.0
DISCOUNT = 2.0
# From this many held-out rows on, their spread counts more than the predicted one.
_ROWS_OF_TRUST = 20
_MAX_TRUST = 2.0


@dataclass(frozen=True)
class Part:
    """One part of a law's residuals, which is similar for rows that are close in some columns.

    Attributes:
        deviation: The standard deviation of the logarithm, before it is adapted.
        reaches: For each column, the distance between rows at which their correlation is 0.6. With
            0, only rows with equal values are correlated.
        where: A column of factors, which are 0 for rows without this part. None if all rows have
            it.
    """

    deviation: float
    reaches: Mapping[str, float]
    where: str | None = None

    def correlation(self, rows: Columns, columns: Columns) -> Array:
        """Return how similar rows are, from 0 to 1, [rows, columns]."""
        alike = np.ones((_length(rows), _length(columns)))
        for name, reach in self.reaches.items():
            apart = rows[name][:, None] - columns[name][None, :]
            alike *= np.exp(-0.5 * (apart / reach) ** 2) if reach else apart == 0.0
        if self.where is not None:
            alike *= rows[self.where][:, None] * columns[self.where][None, :]
        return alike

    def share(self, rows: Columns) -> Array:
        """Return the share of the part's variance that each row has, [rows]."""
        if self.where is None:
            return np.ones(_length(rows))
        return rows[self.where] ** 2


@dataclass(frozen=True)
class Belief:
    """The prior of a law's parameters: means, standard deviations, and the starts of a fit."""

    means: Array
    deviations: Array
    starts: Sequence[Array]


class CorrectedLaw:
    """A fitted law with its correction. The order of the rows does not matter.

    Attributes:
        parameters: The fitted parameters of the law.
    """

    @on_one_thread
    def __init__(
        self,
        law: Callable[[Array, Columns], Array],
        belief: Belief,
        parts: Sequence[Part],
        *,
        noise: float,
        measured: Columns,
        logs: Array,
        groups: Sequence[object],
        settles: bool = True,
    ) -> None:
        """Fit.

        Args:
            law: Parameters and columns -> logarithms, [n].
            belief: The prior of the parameters.
            parts: The parts of the residuals.
            noise: Standard deviation between measurements of one plan, before it is adapted.
            measured: The columns of the measured rows, one row or more.
            logs: Logarithms of the measurements, [n].
            groups: The group of each row, [n]. Rows of a group are held out together, to see how
                wide intervals must be.
            settles: Whether the fit of the law accounts for the parts. This is better for plans
                like the measured ones. For other plans, the law is better fitted to the times
                themselves, without outliers.
        """
        self._law, self._belief, self._parts = law, belief, tuple(parts)
        self._measured, self._logs = measured, logs
        self._alike = [part.correlation(measured, measured) for part in parts]
        self._usual = np.array([*(part.deviation for part in parts), noise])
        self._sizes = self._usual
        self._noise_factors = np.ones(len(logs))
        self._chosen = spread_over(len(logs), _ROWS_TO_FIT)
        self.parameters = self._fit(belief.starts, with_parts=settles)
        for _ in range(_ROUNDS):
            self._condition(groups, settles=settles)
            off = np.abs(self._held_out) if settles else self._off_the_law()
            self._noise_factors = np.where(off > OUTLYING, DISCOUNT * off, 1.0)
            self._adapt()
            self.parameters = self._fit([self.parameters], with_parts=settles)
        self._condition(groups, settles=settles)

    @on_one_thread
    def predict(self, columns: Columns) -> tuple[Array, Array]:
        """Predict logarithms and their standard deviations, [n] each."""
        logs, slopes = jacobian(lambda at: self._law(at, columns), self.parameters)
        shared = np.zeros((len(logs), len(self._logs)))
        for part, size in zip(self._parts, self._sizes, strict=False):
            shared += size**2 * part.correlation(columns, self._measured)
        known = shared @ self._precision
        unexplained = slopes - known @ self._slopes
        own = sum(
            size**2 * part.share(columns)
            for part, size in zip(self._parts, self._sizes, strict=False)
        )
        of_misfit = own + self._sizes[-1] ** 2 - np.sum(known * shared, axis=1)
        of_parameters = np.sum((unexplained @ self._parameter_covariance) * unexplained, axis=1)
        variance = np.maximum(of_misfit, self._sizes[-1] ** 2) + of_parameters
        deviations = np.sqrt(variance) * self._trust
        return logs + shared @ self._weights, np.maximum(deviations, _MIN_DEVIATION)

    def _covariance(self, sizes: Array, rows: NDArray[np.int_]) -> Array:
        covariance = np.diag((sizes[-1] * self._noise_factors[rows]) ** 2)
        for size, alike in zip(sizes, self._alike, strict=False):
            covariance += size**2 * alike[np.ix_(rows, rows)]
        return covariance

    def _fit(self, starts: Sequence[Array], *, with_parts: bool = True) -> Array:
        rows = self._chosen
        columns = {name: values[rows] for name, values in self._measured.items()}
        logs = self._logs[rows]
        plain = np.diag((_PLAIN * self._noise_factors[rows]) ** 2)
        covariance = plain
        if with_parts:
            covariance = self._covariance(self._sizes, rows)
        whiten = np.linalg.inv(np.linalg.cholesky(covariance))
        return minimise(
            lambda at: (self._law(at, columns) - logs) @ whiten.T,
            self._belief.means,
            self._belief.deviations,
            starts,
        )

    def _off_the_law(self) -> Array:
        """Return by how many usual deviations each row differs from the law itself.

        Rows that are odd in the same way predict each other, so holding some of them out does not
        show that they are odd.
        """
        off = np.abs(self._law(self.parameters, self._measured) - self._logs)
        return off / max(_PLAIN, float(np.median(off)) / _MEDIAN_OF_NORMAL)

    def _adapt(self) -> None:
        """Choose the sizes of the parts that make the residuals most probable, one at a time."""
        rows = spread_over(len(self._logs), _ROWS_TO_ADAPT)
        columns = {name: values[rows] for name, values in self._measured.items()}
        logs, slopes = jacobian(lambda at: self._law(at, columns), self.parameters)
        left = self._logs[rows] - logs + slopes @ (self.parameters - self._belief.means)
        of_parameters = (slopes * self._belief.deviations**2) @ slopes.T

        # Minus the logarithm of the posterior, less a constant: the likelihood of the residuals, in
        # which the law's parameters are integrated out, and the prior of the sizes.
        def surprise_of(sizes: Array) -> float:
            factor = np.linalg.cholesky(self._covariance(sizes, rows) + of_parameters)
            whitened = np.linalg.solve(factor, left)
            from_usual = np.log(sizes / self._usual) / _DOUBT
            return float(
                0.5 * whitened @ whitened
                + np.sum(np.log(np.diag(factor)))
                + 0.5 * from_usual @ from_usual
            )

        best = surprise_of(self._sizes)
        for factor in _FACTORS:
            for index in range(len(self._sizes)):
                for change in (factor, 1.0 / factor):
                    while True:
                        tried = self._sizes.copy()
                        tried[index] *= change
                        surprise = surprise_of(tried)
                        if surprise >= best - _MIN_GAIN:
                            break
                        self._sizes, best = tried, surprise

    def _condition(self, groups: Sequence[object], *, settles: bool) -> None:
        """Compute the terms that all predictions need, and the errors of held-out rows.

        For a Gaussian process, these errors have a closed form, so nothing is fitted again.

        Source: Rasmussen & Williams, Gaussian Processes for Machine Learning, equation 5.12.
        """
        logs, slopes = jacobian(lambda at: self._law(at, self._measured), self.parameters)
        everything = np.arange(len(self._logs))
        precision = np.linalg.inv(self._covariance(self._sizes, everything))
        believed = np.diag(self._belief.deviations**-2)
        self._slopes, self._precision = slopes, precision
        self._parameter_covariance = np.linalg.inv(slopes.T @ precision @ slopes + believed)
        left = self._logs - logs
        self._weights = precision @ left
        across = precision @ slopes
        of_rows = precision - across @ self._parameter_covariance @ across.T
        self._held_out = _held_out(of_rows, left, groups)
        # Plans far from the measured rows are not like the held-out ones.
        self._trust = trust_of(self._held_out) if settles else 1.0


def order_of(columns: Columns, logs: Array, most: int) -> NDArray[np.int_]:
    """Return at most `most` rows, in an order that depends only on their contents."""
    names = sorted(columns)
    order = np.lexsort([logs, *(columns[name] for name in names)])
    return order[spread_over(len(order), most)]


def _held_out(precision: Array, left: Array, groups: Sequence[object]) -> Array:
    """Return by how many predicted deviations each row is off if its group is held out."""
    weights = precision @ left
    members: dict[object, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    standardised = np.empty(len(left))
    for rows in members.values():
        covariance = np.linalg.inv(precision[np.ix_(rows, rows)])
        standardised[rows] = covariance @ weights[rows] / np.sqrt(np.diag(covariance))
    return standardised


def trust_of(standardised: Array, lowest: float = 0.6) -> float:
    """Return the factor by which errors of held-out rows exceed the predicted ones.

    It is close to 1 if there are few rows.

    Args:
        standardised: By how many predicted deviations each row is off.
        lowest: The least factor.
    """
    observed = float(np.quantile(np.abs(standardised), 0.9)) / NORMAL_90
    num_rows = len(standardised)
    factor = (num_rows * observed + _ROWS_OF_TRUST) / (num_rows + _ROWS_OF_TRUST)
    return float(np.clip(factor, lowest, _MAX_TRUST))


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def spread_over(num_rows: int, most: int) -> NDArray[np.int_]:
    """Return at most `most` random rows, for steps in which all rows would take too long."""
    if num_rows <= most:
        return np.arange(num_rows)
    return np.sort(np.random.default_rng(0).permutation(num_rows)[:most])

"""A Gaussian process over configurations, with one length scale for each parameter.

It is fitted in milliseconds. Values may have been observed before a training ended. Each value then
has its distance from the end in doublings, so it is never treated as a final value.

This module only knows arrays. `encoding` turns configurations into features, `partial_results`
turns reports into observations, and `proposals` chooses configurations.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy.linalg import get_lapack_funcs
from scipy.optimize import minimize
from scipy.special import expit

# Bounds and normal priors of the logarithms of length scales. Features are in the unit cube. The
# prior is for a space with one parameter.
_LENGTH_BOUNDS = (math.log(0.05), math.log(30.0))
_LENGTH_MEAN, _LENGTH_SD = -0.3, 1.0
# Bounds and normal prior of the logarithm of the noise's variance, relative to the signal's.
_NOISE_BOUNDS = (math.log(1e-6), math.log(1.0))
_NOISE_MEAN, _NOISE_SD = math.log(1e-5), 4.0
# For values before the end: bounds and normal prior of the logit of the share of the signal that
# stays the same until the end.
_SHARE_BOUNDS, _SHARE_MEAN, _SHARE_SD = (-4.0, 4.0), 0.0, 1.0
# Bounds and normal prior of the logarithm of the doublings over which the rest of the signal
# changes.
_DOUBLINGS_BOUNDS = (math.log(0.3), math.log(30.0))
_DOUBLINGS_MEAN, _DOUBLINGS_SD = math.log(3.0), 0.7
# All trainings improve over time. This trend changes over so many doublings, and has the same
# variance as the signal.
_TREND_DOUBLINGS = 3.0
_MAX_STEPS = 60
# The process is only judged if there are this many more observations than length scales.
_MIN_FREE = 2
_JITTER = 1e-8
_ROOT5 = math.sqrt(5.0)
_factorize, _invert, _solve, _solve_half = get_lapack_funcs(("potrf", "potri", "potrs", "trtrs"))


@dataclass(frozen=True)
class Kernel:
    """Hyper-parameters of a process whose signal has variance 1.

    Attributes:
        log_lengths: Logarithm of the length scale of each group of features, shape [groups].
        log_noise: Logarithm of the noise's variance, relative to the signal's.
    """

    log_lengths: np.ndarray
    log_noise: float
    lasting_logit: float = 0.0
    """Logit of the share of the signal that is the same at every distance from the end."""
    log_doublings: float = _DOUBLINGS_MEAN
    """Logarithm of the doublings over which the rest of the signal changes."""

    def agreement(self, doublings: np.ndarray) -> np.ndarray:
        """Return the correlation of a configuration's values at two distances from the end.

        Args:
            doublings: The difference of the distances, in doublings.
        """
        lasting = expit(self.lasting_logit)
        return lasting + (1 - lasting) * np.exp(-doublings * math.exp(-self.log_doublings))


class GaussianProcess:
    """The process after observations.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1,
    with the Matérn 5/2 kernel.
    """

    def __init__(
        self,
        kernel: Kernel,
        groups: np.ndarray,
        features: np.ndarray,
        values: np.ndarray,
        *,
        ahead: np.ndarray | None = None,
        agreement: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Condition the process on observations.

        Args:
            kernel: Hyper-parameters.
            groups: Group of each feature, shape [features].
            features: Shape [n, features].
            values: Standardised values, shape [n].
            ahead: Doublings between each observation and the end of its training, shape [n]. None
                if all trainings had ended.
            agreement: Factors of the correlations between observations, shape [n, n], and of their
                correlations with predictions, shape [n]. None if all observations are from one run.
        """
        self._weights = np.exp(-kernel.log_lengths)[groups]
        self._scaled = features * self._weights
        covariance = _matern(_squared_distances(self._scaled, self._scaled))
        self._agreement = np.ones(1)
        if ahead is not None:
            apart = np.abs(ahead[:, None] - ahead[None, :])
            covariance = covariance * kernel.agreement(apart) + _trend(apart)
            self._agreement = kernel.agreement(ahead)
        if agreement is not None:
            covariance = covariance * agreement[0]
            self._agreement = self._agreement * agreement[1]
        covariance[np.diag_indices_from(covariance)] += math.exp(kernel.log_noise) + _JITTER
        self._kernel, self._values = kernel, values
        self._factor = factorize(covariance)
        self._whitened = _solve_half(self._factor, values, lower=1)[0]
        # The posterior mean of the trend at the end of trainings, which is the same for all.
        self._gained = 0.0
        if ahead is not None:
            projected = _solve_half(self._factor, _trend(ahead), lower=1)[0]
            self._gained = float(projected @ self._whitened)
        self.scale = self._likeliest_scale()

    def predict(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the noiseless function at the end of trainings.

        The common trend is only part of the mean. Its uncertainty does not matter when
        configurations are compared.

        Args:
            features: Shape [m, features].

        Returns:
            Two arrays of shape [m].
        """
        cross = _matern(_squared_distances(features * self._weights, self._scaled))
        cross *= self._agreement
        # The transpose has the column-major layout of LAPACK, so nothing is copied.
        projected = _solve_half(self._factor, cross.T, lower=1, overwrite_b=1)[0].T
        mean = projected @ self._whitened + self._gained
        variance = 1.0 - np.einsum("ij,ij->i", projected, projected)
        return mean, self.scale * np.sqrt(np.maximum(variance, 1e-10))

    def as_if_expected(self, features: np.ndarray) -> GaussianProcess:
        """Return the process as if it had observed its own predictions at some places.

        The predictions stay the same, but the uncertainty near these places shrinks. The Cholesky
        factor is extended by the rows of the places instead of being computed again.

        Args:
            features: The places, shape [m, features]. All trainings must have ended.
        """
        places = features * self._weights
        cross = _matern(_squared_distances(places, self._scaled)) * self._agreement
        projected = _solve_half(self._factor, cross.T, lower=1)[0]
        covariance = _matern(_squared_distances(places, places))
        covariance[np.diag_indices_from(covariance)] += math.exp(self._kernel.log_noise) + _JITTER
        num, num_new, new = len(self._factor), len(places), copy(self)
        new._factor = np.zeros((num + num_new, num + num_new), order="F")
        new._factor[:num, :num], new._factor[num:, :num] = self._factor, projected.T
        new._factor[num:, num:] = factorize(covariance - projected.T @ projected)
        new._scaled = np.concatenate([self._scaled, places])
        if len(self._agreement) > 1:
            new._agreement = np.append(self._agreement, np.ones(num_new))
        new._values = np.append(self._values, projected.T @ self._whitened)
        # An expected value has no residual, so its whitened value is 0.
        new._whitened = np.append(self._whitened, np.zeros(num_new))
        new.scale = new._likeliest_scale()
        return new

    def _likeliest_scale(self) -> float:
        return math.sqrt(max(float(self._whitened @ self._whitened) / len(self._whitened), 1e-12))

    def left_out_errors(self) -> np.ndarray:
        """Return the difference of each observation from the others' prediction, shape [n].

        Source: Rasmussen and Williams, equation 5.12.
        """
        inverse = _invert(self._factor, lower=1)[0]
        solved = _solve_half(self._factor, self._whitened, lower=1, trans=1)[0]
        return solved / np.diag(inverse)

    def predictability(self) -> float | None:
        """Return the share of the variance that is predictable from other observations.

        It is in (-inf, 1]. Length scales that are fitted to few observations also explain noise.
        The share is therefore adjusted like the coefficient of determination of a regression with
        one coefficient per length scale. It is None if there are too few observations for that.

        Source: Ezekiel, Methods of correlation analysis, 1930 (the adjusted coefficient of
        determination).
        """
        errors, num = self.left_out_errors(), len(self._values)
        num_free = num - 1 - len(self._kernel.log_lengths)
        if num_free < _MIN_FREE:
            return None
        # The errors of the simplest prediction, the mean of the others.
        alone = (self._values - self._values.mean()) * num / (num - 1)
        unexplained = float(errors @ errors) / max(float(alone @ alone), 1e-12)
        return 1.0 - unexplained * (num - 1) / num_free


def fit(
    features: np.ndarray, groups: np.ndarray, values: np.ndarray, ahead: np.ndarray | None = None
) -> Kernel:
    """Return the hyper-parameters with the largest posterior probability.

    Args:
        features: Shape [n, features].
        groups: Group of each feature, shape [features].
        values: Standardised values, shape [n].
        ahead: As in `GaussianProcess`.

    Returns:
        The hyper-parameters.
    """
    num_groups = int(groups.max()) + 1
    # With more parameters, the function is expected to be smoother in each of them.
    length_mean = _LENGTH_MEAN + math.log(num_groups) / 2
    means = np.append(np.full(num_groups, length_mean), _NOISE_MEAN)
    sds = np.append(np.full(num_groups, _LENGTH_SD), _NOISE_SD)
    bounds = [_LENGTH_BOUNDS] * num_groups + [_NOISE_BOUNDS]
    if ahead is not None:
        means = np.append(means, [_SHARE_MEAN, _DOUBLINGS_MEAN])
        sds = np.append(sds, [_SHARE_SD, _DOUBLINGS_SD])
        bounds += [_SHARE_BOUNDS, _DOUBLINGS_BOUNDS]
    fitted = minimize(
        _loss,
        means,
        args=(_Pairs.of(features, groups, ahead), values, means, sds),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": _MAX_STEPS, "ftol": 1e-4},
    )
    return Kernel(fitted.x[:num_groups], *map(float, fitted.x[num_groups:]))


@dataclass(frozen=True)
class _Pairs:
    """Quantities of pairs of observations that do not depend on the hyper-parameters.

    They are computed once, and used in each step of the optimisation.

    Attributes:
        rows: The later observation of each pair, shape [pairs].
        columns: The earlier observation of each pair, shape [pairs].
        distances: Squared distances in each group of features, shape [groups, pairs].
        apart: The difference of the distances from the end in doublings, shape [pairs], or None if
            all trainings had ended.
        trend: The covariance of the common trend, shape [pairs] or 0.
    """

    rows: np.ndarray
    columns: np.ndarray
    distances: np.ndarray
    apart: np.ndarray | None
    trend: np.ndarray | float

    @classmethod
    def of(cls, features: np.ndarray, groups: np.ndarray, ahead: np.ndarray | None) -> _Pairs:
        rows, columns = np.tril_indices(len(features), -1)
        squares = (features[rows] - features[columns]) ** 2
        distances = np.stack(
            [squares[:, groups == group].sum(1) for group in range(int(groups.max()) + 1)]
        )
        if ahead is None:
            return cls(rows, columns, distances, None, 0.0)
        apart = np.abs(ahead[rows] - ahead[columns])
        return cls(rows, columns, distances, apart, _trend(apart))


def _loss(
    theta: np.ndarray, pairs: _Pairs, values: np.ndarray, means: np.ndarray, sds: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the negative log posterior and its gradient.

    The variance of the signal is not a parameter. Its most likely value has a closed form.
    """
    n, num_groups = len(values), len(pairs.distances)
    inverse_squares, noise = np.exp(-2 * theta[:num_groups]), math.exp(theta[num_groups])
    squared = inverse_squares @ pairs.distances
    root = _ROOT5 * np.sqrt(squared)
    decay = np.exp(-root)
    signal = (1 + root + squared * (5 / 3)) * decay
    agreement = fading = np.ones(1)
    lasting, rate = 1.0, 0.0
    if pairs.apart is not None:
        lasting, rate = float(expit(theta[-2])), math.exp(-theta[-1])
        fading = np.exp(-pairs.apart * rate)
        agreement = lasting + (1 - lasting) * fading
    covariance = np.zeros((n, n), order="F")  # LAPACK only reads the lower half
    covariance[pairs.rows, pairs.columns] = signal * agreement + pairs.trend
    covariance[np.diag_indices(n)] = 1.0 + (pairs.apart is not None) + noise + _JITTER
    factor = factorize(covariance)
    inverse, solved = _invert(factor, lower=1)[0], _solve(factor, values, lower=1)[0]
    variance = max(float(values @ solved) / n, 1e-12)
    loss = 0.5 * n * math.log(variance) + float(np.log(np.diag(factor)).sum())
    outer = (
        inverse[pairs.rows, pairs.columns] - solved[pairs.rows] * solved[pairs.columns] / variance
    )
    weighted = outer * signal
    gradient = np.empty_like(theta)
    # Each pair appears twice in the symmetric matrix, which cancels the factor 1/2 of the log
    # likelihood.
    slopes = outer * ((5 / 3) * (1 + root) * decay) * agreement
    gradient[:num_groups] = inverse_squares * (pairs.distances @ slopes)
    gradient[num_groups] = 0.5 * noise * float((np.diag(inverse) - solved**2 / variance).sum())
    if pairs.apart is not None:
        gradient[-2] = lasting * (1 - lasting) * float((weighted * (1 - fading)).sum())
        gradient[-1] = (1 - lasting) * rate * float((weighted * fading * pairs.apart).sum())
    off = (theta - means) / sds
    return loss + 0.5 * float(off @ off), gradient + off / sds


def _trend(doublings: np.ndarray) -> np.ndarray:
    """Return the covariance of the common trend at some doublings apart."""
    return np.exp(-0.5 * (doublings / _TREND_DOUBLINGS) ** 2)


def _squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    squares = first @ second.T
    squares *= -2.0
    squares += (first**2).sum(1)[:, None]
    squares += (second**2).sum(1)
    return np.maximum(squares, 0.0, out=squares)


def _matern(squared: np.ndarray) -> np.ndarray:
    """Return the Matérn 5/2 correlation at squared distances.

    It is computed in place, because allocating new arrays takes longer than the arithmetic.
    """
    root = np.sqrt(squared)
    root *= _ROOT5
    squared *= 5 / 3
    squared += root
    squared += 1.0
    np.negative(root, out=root)
    squared *= np.exp(root, out=root)
    return squared


def correlation(
    kernel: Kernel, groups: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Return the correlation at features of shapes [n, features] and [m, features]."""
    weights = np.exp(-kernel.log_lengths)[groups]
    return _matern(_squared_distances(first * weights, second * weights))


def factorize(matrix: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor of a covariance. A nearly singular one gets more noise."""
    factor, failed = _factorize(matrix, lower=1, clean=1)
    if failed:
        factor = _factorize(matrix + 1e-5 * np.eye(len(matrix)), lower=1, clean=1)[0]
    return factor

"""A Gaussian process over configurations: fitted in milliseconds, with one length scale for each parameter.

It knows arrays only. What a configuration is as features, and which configuration to propose, is left to
`encoding` and `proposals`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import get_lapack_funcs, solve_triangular
from scipy.optimize import minimize

# Bounds of the logarithms of length scales (features lie in the unit cube) and of the noise's share.
_LENGTH_BOUNDS = (math.log(0.05), math.log(30.0))
_NOISE_BOUNDS = (math.log(1e-6), math.log(1.0))
# Priors of the same, normal: the length scale for one parameter, and the noise's share.
_LENGTH_MEAN, _LENGTH_SD = -0.3, 1.0
_NOISE_MEAN, _NOISE_SD = math.log(1e-5), 4.0
_MAX_STEPS = 60
_JITTER = 1e-8
_ROOT5 = math.sqrt(5.0)
_factorize, _invert = get_lapack_funcs(("potrf", "potri"))


@dataclass(frozen=True)
class Kernel:
    """Hyper-parameters of a process whose signal has variance 1.

    Attributes:
        log_lengths: Logarithm of the length scale of each group of features, shape [groups].
        log_noise: Logarithm of the noise's variance as a share of the signal's.
    """

    log_lengths: np.ndarray
    log_noise: float


class GaussianProcess:
    """The process after observations.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1; Matérn 5/2.
    """

    def __init__(self, kernel: Kernel, groups: np.ndarray, features: np.ndarray, values: np.ndarray) -> None:
        """Condition the process on observations.

        Args:
            kernel: Hyper-parameters.
            groups: Group of each feature, shape [features].
            features: Shape [n, features].
            values: Standardised values, shape [n].
        """
        self._weights = np.exp(-kernel.log_lengths)[groups]
        self._scaled = features * self._weights
        covariance = _matern(_squared_distances(self._scaled, self._scaled))
        covariance[np.diag_indices_from(covariance)] += math.exp(kernel.log_noise) + _JITTER
        self._factor = _cholesky(covariance)
        self._whitened = solve_triangular(self._factor, values, lower=True, check_finite=False)
        self.scale = math.sqrt(max(float(self._whitened @ self._whitened) / len(values), 1e-12))

    def predict(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the noiseless function at some places.

        Args:
            features: Shape [m, features].

        Returns:
            Two arrays of shape [m].
        """
        cross = _matern(_squared_distances(self._scaled, features * self._weights))
        projected = solve_triangular(self._factor, cross, lower=True, check_finite=False)
        mean = projected.T @ self._whitened
        variance = 1.0 - np.einsum("ij,ij->j", projected, projected)
        return mean, self.scale * np.sqrt(np.maximum(variance, 1e-10))


def fit(features: np.ndarray, groups: np.ndarray, values: np.ndarray) -> Kernel:
    """Choose the hyper-parameters of largest posterior probability.

    Args:
        features: Shape [n, features].
        groups: Group of each feature, shape [features].
        values: Standardised values, shape [n].

    Returns:
        The hyper-parameters.
    """
    num_groups = int(groups.max()) + 1
    distances = np.stack(
        [
            _squared_distances(features[:, groups == group], features[:, groups == group])
            for group in range(num_groups)
        ]
    ).reshape(num_groups, -1)
    # The more parameters, the smoother the function is expected to be in each.
    length_mean = _LENGTH_MEAN + math.log(num_groups) / 2
    begin = np.append(np.full(num_groups, length_mean), _NOISE_MEAN)
    found = minimize(
        _loss, begin, args=(distances, values, length_mean), jac=True, method="L-BFGS-B",
        bounds=[_LENGTH_BOUNDS] * num_groups + [_NOISE_BOUNDS], options={"maxiter": _MAX_STEPS, "ftol": 1e-4},
    )  # fmt: skip
    return Kernel(found.x[:-1], float(found.x[-1]))


def _loss(
    theta: np.ndarray, distances: np.ndarray, values: np.ndarray, length_mean: float
) -> tuple[float, np.ndarray]:
    """Return the negative log posterior and its gradient, for the signal's likeliest variance."""
    n = len(values)
    inverse_squares, noise = np.exp(-2 * theta[:-1]), math.exp(theta[-1])
    squared = (inverse_squares @ distances).reshape(n, n)
    root = _ROOT5 * np.sqrt(squared)
    decay = np.exp(-root)
    covariance = (1 + root + squared * (5 / 3)) * decay
    covariance[np.diag_indices(n)] += noise + _JITTER
    factor = _cholesky(covariance)
    inverse = _invert(factor, lower=1)[0]
    inverse = inverse + np.tril(inverse, -1).T
    solved = inverse @ values
    variance = max(float(values @ solved) / n, 1e-12)
    loss = 0.5 * n * math.log(variance) + float(np.log(np.diag(factor)).sum())
    outer = inverse - np.outer(solved, solved) / variance
    slopes = outer * ((5 / 3) * (1 + root) * decay)
    gradient = np.empty_like(theta)
    gradient[:-1] = 0.5 * inverse_squares * (distances @ slopes.ravel())
    gradient[-1] = 0.5 * noise * float(np.trace(outer))
    off_lengths = (theta[:-1] - length_mean) / _LENGTH_SD
    off_noise = (theta[-1] - _NOISE_MEAN) / _NOISE_SD
    loss += 0.5 * float(off_lengths @ off_lengths) + 0.5 * off_noise**2
    gradient[:-1] += off_lengths / _LENGTH_SD
    gradient[-1] += off_noise / _NOISE_SD
    return loss, gradient


def _squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    squares = (first**2).sum(1)[:, None] + (second**2).sum(1)[None, :] - 2 * first @ second.T
    return np.maximum(squares, 0.0)


def _matern(squared: np.ndarray) -> np.ndarray:
    root = _ROOT5 * np.sqrt(squared)
    return (1 + root + squared * (5 / 3)) * np.exp(-root)


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    factor, failed = _factorize(matrix, lower=1, clean=1)
    if failed:
        factor = _factorize(matrix + 1e-5 * np.eye(len(matrix)), lower=1, clean=1)[0]
    return factor

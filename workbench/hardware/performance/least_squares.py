"""Nonlinear least squares with beliefs about the parameters, by Levenberg and Marquardt's method.

It is implemented here because it is short, and because loading SciPy takes longer than most fits. A
function is called with the parameters, [parameters], and returns [n]. If it is called with several
sets of parameters, [parameters, sets, 1], it must return [sets, n]. Arithmetic with columns, [n],
does both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_NUDGE = 1e-5
_LONGEST_STEP = 2.0
_MAX_STEPS = 60
_MAX_TRIES = 12


def jacobian(function: Callable[[Array], Array], at: Array) -> tuple[Array, Array]:
    """Return the values of a function, [n], and its Jacobian, [n, parameters]."""
    nudges = _NUDGE * np.eye(len(at), len(at) + 1, 1)  # the first set is not nudged
    values, *nudged = function((at[:, None] + nudges)[:, :, None])
    return values, (np.array(nudged) - values).T / _NUDGE


def minimise(
    residuals: Callable[[Array], Array], means: Array, deviations: Array, starts: Iterable[Array]
) -> Array:
    """Find the parameters with the best fit under their priors: the lowest of several minima.

    Args:
        residuals: Parameters -> residuals, [n], each with a standard deviation of 1.
        means: The prior means of the parameters, [parameters].
        deviations: The prior standard deviations, > 0.
        starts: The starting points, which are all tried.

    Returns:
        The parameters with the least sum of squares over residuals and (parameter - mean) /
        deviation.
    """

    def cost_of(at: Array, left: Array) -> float:
        return float(left @ left + np.sum(((at - means) / deviations) ** 2))

    minima = [_descend(residuals, means, deviations, start, cost_of) for start in starts]
    return min(minima, key=lambda at: cost_of(at, residuals(at)))


def _descend(
    residuals: Callable[[Array], Array],
    means: Array,
    deviations: Array,
    at: Array,
    cost_of: Callable[[Array, Array], float],
) -> Array:
    left, derivatives = jacobian(residuals, at)
    cost, damping = cost_of(at, left), 1e-2
    for _ in range(_MAX_STEPS):
        curvature = derivatives.T @ derivatives + np.diag(deviations**-2)
        slope = derivatives.T @ left + (at - means) / deviations**2
        for _ in range(_MAX_TRIES):
            step = -np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), slope)
            tried = at + np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
            cost_there = cost_of(tried, residuals(tried))
            if cost_there < cost:
                break
            damping *= 4.0  # a shorter step, closer to the direction of the gradient
        else:
            return at  # no step lowers the cost any more
        has_settled = cost - cost_there < 1e-7 * cost
        at, cost, damping = tried, cost_there, max(damping / 5.0, 1e-9)
        if has_settled:
            return at
        left, derivatives = jacobian(residuals, at)
    return at

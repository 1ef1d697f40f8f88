"""How much configurations may improve on the best value, if their values are normally distributed.

`gaussian_process` predicts the values, and `proposals` chooses between the measures.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, ndtr

# The possible improvement fades out below the best value over this part of a standard deviation.
_GAIN_WIDTH = 0.1
# Below this, log(log(1 + exp(x))) is x up to rounding, and exp(x) would underflow.
_FAR_BELOW = -30.0


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return the expected improvement on the best value. It is 0 for means that are far worse.

    Source: Jones, Schonlau and Welch, Efficient global optimization, 1998.

    Args:
        mean: Predicted values.
        deviation: Their standard deviations.
        best: The best values so far. The shapes of all three must be broadcastable.
    """
    z = (mean - best) / deviation
    return deviation * (z * ndtr(z) + np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi))


def log_possible_improvement(possible: np.ndarray, best: float) -> np.ndarray:
    """Return the logarithm of the possible improvement, for runs that stop bad trials early.

    With equal costs, configurations are ranked by their possible values.

    Args:
        possible: Standardised possible values, shape [m].
        best: The best value so far, standardised.
    """
    gain = (possible - best) / _GAIN_WIDTH
    return np.where(
        gain < _FAR_BELOW, gain, np.log(np.logaddexp(0.0, np.maximum(gain, _FAR_BELOW)))
    )


def log_expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """Return the logarithm of the expected improvement on the best value.

    Source: Jones, Schonlau and Welch, Efficient global optimization, 1998. The logarithm is
    computed as in Ament et al., Unexpected improvements to expected improvement, NeurIPS 2023.

    Args:
        mean: Predicted values, shape [m].
        deviation: Their standard deviations, shape [m].
        best: The best value so far.
    """
    z = (mean - best) / deviation
    log_density = -0.5 * (z**2 + math.log(2 * math.pi))
    below = np.minimum(z, 0.0)
    # For z < 0, distribution and density both underflow, but their quotient does not. It is the
    # scaled complementary error function.
    left = 1.0 + math.sqrt(math.pi / 2) * below * erfcx(-below / math.sqrt(2))
    log_below = log_density + np.log(np.maximum(left, 1e-16))
    above = np.maximum(z, 0.0)
    log_above = np.log(np.exp(-0.5 * (above**2 + math.log(2 * math.pi))) + above * ndtr(above))
    return np.log(deviation) + np.where(z < 0, log_below, log_above)

"""By how much configurations may improve on what is known, if their values are normal.

What is predicted of them is left to `gaussian_process`, and which improvement decides to
`proposals`.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, ndtr

# Over which part of a standard deviation the possible improvement fades out below the best value.
_GAIN_WIDTH = 0.1
# From here down the logarithm is that of its exponential, which would underflow.
_FAR_BELOW = -30.0


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return the improvement on the best value that is to be expected; of far worse means it is 0.

    Source: Jones, Schonlau and Welch, Efficient global optimization, 1998.

    Args:
        mean: Predicted values.
        deviation: Their standard deviations.
        best: The best values so far. All three are of shapes that fit together.
    """
    z = (mean - best) / deviation
    return deviation * (z * ndtr(z) + np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi))


def log_possible_improvement(possible: np.ndarray, best: float) -> np.ndarray:
    """Return the log of how far configurations may improve, where stopping is cheap.

    With equal costs, the order of configurations is the order of their possible values.

    Args:
        possible: Standardised values that are possible, shape [m].
        best: The best value so far, standardised.
    """
    gain = (possible - best) / _GAIN_WIDTH
    return np.where(
        gain < _FAR_BELOW, gain, np.log(np.logaddexp(0.0, np.maximum(gain, _FAR_BELOW)))
    )


def log_expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """Return the logarithm of the improvement on the best value that is to be expected.

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
    # The scaled complementary error function is the quotient of distribution and density, without
    # underflow.
    left = 1.0 + math.sqrt(math.pi / 2) * below * erfcx(-below / math.sqrt(2))
    log_below = log_density + np.log(np.maximum(left, 1e-16))
    above = np.maximum(z, 0.0)
    log_above = np.log(np.exp(-0.5 * (above**2 + math.log(2 * math.pi))) + above * ndtr(above))
    return np.log(deviation) + np.where(z < 0, log_below, log_above)

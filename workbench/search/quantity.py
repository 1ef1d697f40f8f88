"""A quantity of a search, such as an objective, as a Gaussian process expects it: standardised.

Which values the process is fitted to, and what follows from what is expected, is left to
`proposals`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from workbench.search.gaussian_process import GaussianProcess
from workbench.search.improvement import log_expected_improvement

# How many standard deviations above the mean what is possible lies. Chosen by `make bench WHAT=search`.
_OPTIMISM = 2.0


@dataclass(frozen=True)
class Scale:
    """How values are brought to mean 0 and standard deviation 1."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: np.ndarray) -> Scale:
        """Return the scale by which these values have mean 0 and standard deviation 1."""
        return cls(float(values.mean()), max(float(values.std()), 1e-12))

    def standardize(self, values: np.ndarray) -> np.ndarray:
        """Return values without their units."""
        return (values - self.mean) / self.deviation

    def restore(self, standard: np.ndarray) -> np.ndarray:
        """Return standardised values in their units."""
        return self.mean + self.deviation * standard


@dataclass(frozen=True)
class Quantity:
    """A process and the values that it was fitted to."""

    process: GaussianProcess
    scale: Scale
    values: np.ndarray
    """The standardised values of what has ended."""
    is_informed: bool = False
    """Whether earlier runs are a part of it."""

    def optimistic(self, features: np.ndarray) -> np.ndarray:
        """Return how good the quantity may be, standardised."""
        mean, deviation = self.process.predict(features)
        return mean + _OPTIMISM * deviation

    def log_improvement(self, features: np.ndarray) -> np.ndarray:
        """Return the logarithm of the improvement on the best value that is to be expected."""
        return log_expected_improvement(*self.process.predict(features), float(self.values.max()))

    def log_chance_at_most(self, bound: float, features: np.ndarray) -> np.ndarray:
        """Return the logarithm of the probability that the quantity is at most `bound`."""
        mean, deviation = self.process.predict(features)
        return log_ndtr((self.scale.standardize(np.array(bound)) - mean) / deviation)

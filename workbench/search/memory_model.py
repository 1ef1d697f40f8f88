"""Which configurations fit into memory, by what was predicted of some before any was tried."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from workbench.search.encoding import Encoding
from workbench.search.gaussian_process import GaussianProcess, fit
from workbench.search.knowledge import Knowledge

_KEY = "predicted memory"


@dataclass(frozen=True)
class MemoryModel:
    """A model of the logarithm of the part of the memory that a configuration holds.

    Attributes:
        process: Predicts it, standardised.
        limit: Where the memory is full, standardised.
    """

    process: GaussianProcess
    limit: float

    @classmethod
    def of(cls, knowledge: Knowledge, encoding: Encoding) -> MemoryModel:
        """Fit the model to all predictions, which do not all agree.

        Args:
            knowledge: The predictions, and what was fitted before, to which this is added.
            encoding: The space.
        """
        features = encoding.features(*encoding.locate([params for params, _ in knowledge.memory]))
        logs = np.log([share for _, share in knowledge.memory])
        mean, deviation = float(logs.mean()), max(float(logs.std()), 1e-12)
        standard = (logs - mean) / deviation
        if (key := (_KEY, len(logs))) not in knowledge.kernels:
            knowledge.kernels[key] = fit(features, encoding.groups, standard)
        process = GaussianProcess(knowledge.kernels[key], encoding.groups, features, standard)
        return cls(process, -mean / deviation)

    def log_chance(self, features: np.ndarray) -> np.ndarray:
        """Return the logarithm of the probability that configurations fit.

        Args:
            features: Shape [m, features].
        """
        mean, deviation = self.process.predict(features)
        return log_ndtr((self.limit - mean) / deviation)

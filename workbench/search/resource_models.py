"""Models of the seconds and the memory of a training over the search space.

Energy and money are spent by the second, so the model of cost predicts seconds. It only counts as
far as it can predict trials that it has not seen. If costs do not vary, or vary without a pattern,
proposals ignore them. Memory was estimated for some configurations before any was tried.
`proposals` scores configurations, and `records.CostLimit` decides which budgets limit the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from optuna.trial import TrialState
from scipy.special import log_ndtr

from workbench.search.encoding import Encoding
from workbench.search.gaussian_process import GaussianProcess, Kernel, fit
from workbench.search.partial_results import Reading
from workbench.search.study_records import MIN_PROCESS_RESULTS, Knowledge, Result

_MIN_SPREAD = 1e-6
_MEMORY = "predicted memory"
"""The name of the memory's hyper-parameters in the cache."""


@dataclass(frozen=True)
class Cost:
    """A model of the logarithm of seconds.

    Attributes:
        process: The process of the standardised logarithms.
        deviation: Their standard deviation before they were standardised.
        predictability: The share of the variance that the model predicts for trials that it has not
            seen, in [0, 1].
    """

    process: GaussianProcess
    deviation: float
    predictability: float

    @classmethod
    def of(
        cls,
        seconds: np.ndarray,
        features: np.ndarray,
        groups: np.ndarray,
        *,
        kernels: dict[tuple[str, int], Kernel],
        num_fitted: int,
    ) -> Cost | None:
        """Model the costs of the trials so far. None if too few are known or all are equal.

        Args:
            seconds: Seconds of whole trainings, NaN if unknown. Shape [n].
            features: Features of their configurations, shape [n, features].
            groups: Group of each feature, shape [features].
            kernels: A cache of hyper-parameters. Those fitted here are added.
            num_fitted: The hyper-parameters are fitted to this many of the first trials.
        """
        measured = np.flatnonzero(seconds > 0)
        first = measured[measured < num_fitted]
        if len(first) < MIN_PROCESS_RESULTS:
            return None
        logs = np.log(seconds)
        deviation = float(logs[measured].std())
        if deviation < _MIN_SPREAD or float(logs[first].std()) < _MIN_SPREAD:
            return None
        if (key := ("cost", num_fitted)) not in kernels:
            fitted = (logs[first] - logs[first].mean()) / logs[first].std()
            kernels[key] = fit(features[first], groups, fitted)
        standard = (logs[measured] - logs[measured].mean()) / deviation
        process = GaussianProcess(kernels[key], groups, features[measured], standard)
        return cls(process, deviation, max(process.predictability() or 0.0, 0.0))

    def log_factor(self, features: np.ndarray) -> np.ndarray:
        """Return the log of the cost up to a constant, shrunk by how predictable costs are.

        Args:
            features: Shape [m, features].
        """
        return self.predictability * self.deviation * self.process.predict(features)[0]


def full_seconds(results: Sequence[Result], reading: Reading) -> np.ndarray:
    """Return the seconds of each training times its workers, as if none had been stopped early.

    Args:
        results: Configurations that have ended.
        reading: How to read their curves. It determines where a stopped training would have ended.

    Returns:
        Shape [n], with NaN for unknown values.
    """
    reached_rungs = [max(result.trial.intermediate_values, default=0) for result in results]
    longest = max(reached_rungs, default=0)
    seconds = np.full(len(results), math.nan)
    for row, (result, reached) in enumerate(zip(results, reached_rungs, strict=True)):
        workers = result.trial.params.get("workers", 1)
        held_s = result.seconds * (workers if isinstance(workers, int) else 1)
        if held_s > 0 and result.trial.state == TrialState.COMPLETE:
            seconds[row] = held_s
        elif held_s > 0 and reached > 0:
            seconds[row] = held_s * max(reading.end(result.trial, longest) / reached, 1.0)
    return seconds


@dataclass(frozen=True)
class MemoryModel:
    """A model of the logarithm of the part of the memory that a configuration needs.

    Attributes:
        process: The process of the standardised logarithms.
        limit: The standardised logarithm at which the memory is full.
    """

    process: GaussianProcess
    limit: float

    @classmethod
    def of(cls, knowledge: Knowledge, encoding: Encoding) -> MemoryModel:
        """Fit the model to all predictions, of which some fit and some do not.

        Args:
            knowledge: The predictions, and the cache to which the hyper-parameters are added.
            encoding: The space.
        """
        features = encoding.features(*encoding.locate([params for params, _ in knowledge.memory]))
        logs = np.log([share for _, share in knowledge.memory])
        mean, deviation = float(logs.mean()), max(float(logs.std()), 1e-12)
        standard = (logs - mean) / deviation
        if (key := (_MEMORY, len(logs))) not in knowledge.kernels:
            knowledge.kernels[key] = fit(features, encoding.groups, standard)
        process = GaussianProcess(knowledge.kernels[key], encoding.groups, features, standard)
        # The memory is full at a part of 1, whose logarithm is 0.
        return cls(process, -mean / deviation)

    def log_chance(self, features: np.ndarray) -> np.ndarray:
        """Return the logarithm of the probability that configurations fit.

        Args:
            features: Shape [m, features].
        """
        mean, deviation = self.process.predict(features)
        return log_ndtr((self.limit - mean) / deviation)

"""What a training of a configuration takes, seconds and memory, as models over the space.

Seconds are modelled, because energy and money are spent by the second. They count only as far as
those of trials that the model did not know could have been predicted: where costs do not vary, or
without a pattern, nothing is traded for them. Memory was predicted for some configurations before
any was tried. Which budgets limit cost is left to `cost_limit`, and what a configuration is worth
to `proposals`.
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
from workbench.search.knowledge import MIN_PROCESS_RESULTS, Knowledge, Result
from workbench.search.partial_results import Reading

_MIN_SPREAD = 1e-6
_MEMORY = "predicted memory"
"""What the kernel of predicted memory is kept as."""


@dataclass(frozen=True)
class Cost:
    """A model of the logarithm of seconds.

    Attributes:
        process: Predicts it, standardised.
        deviation: The unit of the standardised logarithms.
        predictability: Share of the variance that is predicted for trials which the model does not
            know, in [0, 1].
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
        """Model the costs of the trials so far, or None if too few are known or all are equal.

        Args:
            seconds: Of whole trainings; NaN where they are not known. Shape [n].
            features: Of their configurations, shape [n, features].
            groups: Group of each feature, shape [features].
            kernels: What was fitted before. What is fitted now is added.
            num_fitted: How many of the first trials the hyper-parameters are fitted to.
        """
        known = np.flatnonzero(seconds > 0)
        first = known[known < num_fitted]
        if len(first) < MIN_PROCESS_RESULTS:
            return None
        logs = np.log(seconds)
        deviation = float(logs[known].std())
        if deviation < _MIN_SPREAD or float(logs[first].std()) < _MIN_SPREAD:
            return None
        if (key := ("cost", num_fitted)) not in kernels:
            fitted = (logs[first] - logs[first].mean()) / logs[first].std()
            kernels[key] = fit(features[first], groups, fitted)
        standard = (logs[known] - logs[known].mean()) / deviation
        process = GaussianProcess(kernels[key], groups, features[known], standard)
        return cls(process, deviation, max(process.predictability() or 0.0, 0.0))

    def log_factor(self, features: np.ndarray) -> np.ndarray:
        """Return the log of the cost, as far as it can be predicted and up to a constant.

        Args:
            features: Shape [m, features].
        """
        return self.predictability * self.deviation * self.process.predict(features)[0]


def full_seconds(results: Sequence[Result], reading: Reading) -> np.ndarray:
    """Return how long each training takes if it is not stopped early, times its workers.

    Args:
        results: What has ended.
        reading: How their curves are read: it states where a stopped one would have ended.

    Returns:
        Shape [n]; NaN where it is not known.
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
        if (key := (_MEMORY, len(logs))) not in knowledge.kernels:
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

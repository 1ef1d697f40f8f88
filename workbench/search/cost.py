"""What a training of a configuration costs, as a model of what those before have cost.

Seconds are modelled, because energy and money are spent by the second. They count only as far as
those of trials that the model did not know could have been predicted: where costs do not vary, or
without a pattern, nothing is traded for them. Which budgets limit it is left to `cost_limit`, and
what a configuration is worth to `proposals`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from optuna.trial import TrialState

from workbench.search.gaussian_process import GaussianProcess, Kernel, fit
from workbench.search.knowledge import MIN_PROCESS_RESULTS, Result
from workbench.search.partial_results import Reading

_MIN_SPREAD = 1e-6


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
        kernels: dict[tuple[str, int], Kernel],
        num_fitted: int,
    ) -> Cost | None:
        """Model what the trials so far have cost; None if too few are known, or all cost the same.

        Args:
            seconds: Of whole trainings; NaN where they are not known. Shape [n].
            features: Of their configurations, shape [n, features].
            groups: Group of each feature, shape [features].
            kernels: What was fitted before; what is fitted now is added.
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
        """Return the logarithm of the cost to be expected, as far as it can be predicted, up to a
        constant.

        Args:
            features: Shape [m, features].
        """
        return self.predictability * self.deviation * self.process.predict(features)[0]


def full_seconds(results: Sequence[Result], reading: Reading) -> np.ndarray:
    """Return how long each training takes when it is not stopped early, times its workers.

    NaN if unknown.

    Args:
        results: What has ended.
        reading: How their curves are read: it states where a stopped one would have ended.
    """
    longest = max((max(each.trial.intermediate_values, default=0) for each in results), default=0)
    found = np.full(len(results), math.nan)
    for row, result in enumerate(results):
        workers = result.trial.params.get("workers", 1)
        held_s = result.seconds * (workers if isinstance(workers, int) else 1)
        reached = max(result.trial.intermediate_values, default=0)
        if held_s > 0 and result.trial.state == TrialState.COMPLETE:
            found[row] = held_s
        elif held_s > 0 and reached > 0:
            found[row] = held_s * max(reading.end(result.trial, longest) / reached, 1.0)
    return found

"""Predict the epochs to a target as a function of the batch, before and after full runs.

    epochs(B) = least (1 + B / critical + slow / B), times the residual

The middle term is the law of gradient noise (see `noise`). The last term makes small batches slow,
because their learning rate is scaled down. Beyond a limit on either side, a training never reaches
its target. The least number of epochs is known only from runs. The residuals of nearby batches are
similar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# The deviation of the residual at one batch, in logarithms, and the number of doublings of the
# batch over which residuals are similar.
_RESIDUAL_DEVIATION, _SIMILAR_DOUBLINGS = 0.15, 1.0
# The deviation between trainings with different seeds, in logarithms, with rounding to epochs.
SEED_DEVIATION = 0.1
_ROUNDING_EPOCHS = 1 / np.sqrt(12)
# Prior: in half of all searches no batch is too large, and in four of five none is too small.
_NO_UPPER_LIMIT, _NO_LOWER_LIMIT = 0.5, 0.8
# Prior: half of all trainings are not slow at small batches.
_NEVER_SLOW = 0.5
# The probability of a run that contradicts the limits.
_SURPRISE = 0.03
_NUM_CRITICAL, _NUM_SLOW = 24, 10


@dataclass(frozen=True)
class FullRun:
    """A training to its end.

    Attributes:
        global_batch: Samples per step.
        epochs: Epochs until it reached the target, or None if it never did.
    """

    global_batch: int
    epochs: float | None


@dataclass(frozen=True)
class EpochsBelief:
    """The belief about the epochs to the target, by batch.

    Attributes:
        log_epochs: [n] means of their logarithms. Until a run has reached the target, they are
            known only up to a constant.
        deviation: [n] standard deviations of the logarithms.
        chance: [n] probabilities that a run reaches the target.
    """

    log_epochs: Array
    deviation: Array
    chance: Array


class EpochsPrior:
    """The belief about the epochs to the target at some batches before any run."""

    def __init__(self, batches: Sequence[int]) -> None:
        """Create the laws that are possible.

        Args:
            batches: The batches to predict, each once, the smallest first.
        """
        self.batches = np.array(batches, float)
        smallest, largest = self.batches[0], self.batches[-1]
        critical = np.geomspace(smallest / 4, largest * 16, _NUM_CRITICAL)
        slow = np.concatenate([[0.0], np.geomspace(smallest / 8, largest / 8, _NUM_SLOW)])
        believed = np.array([_NEVER_SLOW, *[(1 - _NEVER_SLOW) / _NUM_SLOW] * _NUM_SLOW])
        laws = np.log(1 + self.batches / critical[:, None, None] + slow[:, None] / self.batches)
        self._laws = laws.reshape(-1, len(self.batches))
        self._log_weights = np.tile(np.log(believed / _NUM_CRITICAL), _NUM_CRITICAL)

    def given(self, runs: Sequence[FullRun]) -> EpochsBelief:
        """Return the belief after some runs.

        Args:
            runs: Runs at these batches. A batch may have several.
        """
        positions = [int(np.searchsorted(self.batches, run.global_batch)) for run in runs]
        chance = self._chance(
            [(at, run.epochs is not None) for at, run in zip(positions, runs, strict=True)]
        )
        reached = [
            (at, run.epochs)
            for at, run in zip(positions, runs, strict=True)
            if run.epochs is not None
        ]
        if not reached:
            weights = np.exp(self._log_weights)
            mean = weights @ self._laws
            return EpochsBelief(mean, np.sqrt(weights @ (self._laws - mean) ** 2), chance)
        at = np.array([position for position, _ in reached])
        return self._fit(at, np.array([epochs for _, epochs in reached], float), chance)

    def _fit(self, at: NDArray[np.int_], epochs: Array, chance: Array) -> EpochsBelief:
        """Weigh the laws by the runs, and add to each a Gaussian process of its residuals."""
        shared = self._alike(self.batches, self.batches[at])
        noise = SEED_DEVIATION**2 + (_ROUNDING_EPOCHS / epochs) ** 2
        precision = np.linalg.inv(shared[at] + np.diag(noise))
        left = np.log(epochs) - self._laws[:, at]
        scale_precision = float(precision.sum())
        scale = (left @ precision.sum(axis=0)) / scale_precision
        left = left - scale[:, None]
        log_weights = self._log_weights - 0.5 * np.sum((left @ precision) * left, axis=1)
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        curves = self._laws + scale[:, None] + left @ precision @ shared.T
        mean = weights @ curves
        known = shared @ precision
        unexplained = np.maximum(_RESIDUAL_DEVIATION**2 - np.sum(known * shared, axis=1), 0.0)
        of_scale = (1.0 - known.sum(axis=1)) ** 2 / scale_precision
        return EpochsBelief(
            mean, np.sqrt(weights @ (curves - mean) ** 2 + unexplained + of_scale), chance
        )

    def _alike(self, batches: Array, others: Array) -> Array:
        doublings = np.abs(np.log2(batches[:, None] / others[None, :]))
        return _RESIDUAL_DEVIATION**2 * np.exp(-doublings / _SIMILAR_DOUBLINGS)

    def _chance(self, runs: Sequence[tuple[int, bool]]) -> Array:
        """Return the probability by batch that a run reaches the target, between two limits."""
        num = len(self.batches)
        first, end = np.arange(num)[:, None], np.arange(1, num + 1)[None, :]
        weights = np.outer(
            [_NO_LOWER_LIMIT, *[(1 - _NO_LOWER_LIMIT) / max(num - 1, 1)] * (num - 1)],
            [*[(1 - _NO_UPPER_LIMIT) / max(num - 1, 1)] * (num - 1), _NO_UPPER_LIMIT],
        )
        weights[first >= end] = 0.0
        for at, reached in runs:
            inside = (first <= at) & (at < end)
            weights = weights * np.where(inside == reached, 1.0, _SURPRISE)
        weights /= weights.sum()
        index = np.arange(num)[:, None, None]
        return (weights * ((first <= index) & (index < end))).sum(axis=(1, 2)) * (1.0 - _SURPRISE)

"""Predict how much memory a plan needs, with a law from a few traced or measured steps.

The peak of a step grows with the micro batch, peak(b) = A b + C, and is at least what the parameter
update needs. `live_memory` and the training trace steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SCORES_AT_ONCE = 2**26
"""Scores of a language model in memory at a time: 256 MB in single precision."""
MARGIN = 0.1
"""Share of a device that stays free for workspaces and fragmentation, which traces do not show."""


@dataclass(frozen=True)
class StepMemory:
    """The memory of one worker in a step at one micro batch, in bytes.

    Attributes:
        micro_batch: Samples that the worker takes at once.
        parameters_bytes: Parameters and buffers.
        gradients_bytes: All gradients.
        optimizer_bytes: The optimizer's state between steps.
        compute_peak_bytes: The peak of everything during forward and backward.
        update_peak_bytes: The peak of everything during the update.
    """

    micro_batch: int
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    compute_peak_bytes: int
    update_peak_bytes: int


@dataclass(frozen=True)
class MemoryLaw:
    """The peak of a step as a function of the micro batch: max(A b + C, U).

    A b + C holds within 2 % for networks whose layers treat all samples in the same way. U is the
    peak of the update, which does not depend on samples.

    Attributes:
        per_sample_bytes: A.
        constant_bytes: C.
        update_bytes: U.
        optimizer_bytes: The part of C and of U that is the optimizer's state, or 0 if it is
            unknown.
    """

    per_sample_bytes: float
    constant_bytes: float
    update_bytes: float
    optimizer_bytes: float = 0.0

    def with_divided_state(self, num_workers: int) -> MemoryLaw:
        """Return the law of a worker that holds its share of the optimizer's state.

        Args:
            num_workers: Number of workers that share it.
        """
        saved_bytes = self.optimizer_bytes * (1.0 - 1.0 / num_workers)
        return MemoryLaw(
            self.per_sample_bytes,
            self.constant_bytes - saved_bytes,
            self.update_bytes - saved_bytes,
            self.optimizer_bytes - saved_bytes,
        )

    def peak_bytes(self, micro_batch: int) -> float:
        """Return the peak at a micro batch."""
        return max(self.per_sample_bytes * micro_batch + self.constant_bytes, self.update_bytes)

    def left_for_samples(self, limit_bytes: float, margin: float = MARGIN) -> float:
        """Return the bytes left for samples. See `largest_micro_batch` for the arguments."""
        return limit_bytes * (1.0 - margin) - self.constant_bytes

    def largest_micro_batch(self, limit_bytes: float, margin: float = MARGIN) -> int:
        """Return the largest micro batch whose peak fits, or 0 if not even one sample fits.

        Args:
            limit_bytes: Memory of the device, less the memory of other processes.
            margin: Share of the limit that must stay free, from 0 to 1.
        """
        room_bytes = limit_bytes * (1.0 - margin)
        if room_bytes < self.update_bytes or self.per_sample_bytes <= 0.0:
            return 0
        return max(0, math.floor((room_bytes - self.constant_bytes) / self.per_sample_bytes))


def fit_law(steps: Sequence[StepMemory]) -> MemoryLaw:
    """Return the law through steps at two or more micro batches, by least squares.

    Args:
        steps: Steps of one model, optimizer, precision and strategy at different micro batches.

    Raises:
        ValueError: If there are fewer than two micro batches.
    """
    if len({step.micro_batch for step in steps}) < 2:
        raise ValueError("a law needs steps at two micro batches")
    batches = [float(step.micro_batch) for step in steps]
    peaks = [float(step.compute_peak_bytes) for step in steps]
    mean_batch, mean_peak = math.fsum(batches) / len(steps), math.fsum(peaks) / len(steps)
    spread = math.fsum((batch - mean_batch) ** 2 for batch in batches)
    covered = math.fsum(
        (batch - mean_batch) * (peak - mean_peak)
        for batch, peak in zip(batches, peaks, strict=True)
    )
    per_sample = covered / spread
    return MemoryLaw(
        per_sample,
        mean_peak - per_sample * mean_batch,
        float(max(step.update_peak_bytes for step in steps)),
        float(max(step.optimizer_bytes for step in steps)),
    )

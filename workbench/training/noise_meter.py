"""Measures the gradient noise of a training as it runs.

A step is measured by its parts, the micro batches of its workers. If it has only one part, it is
cut into two micro batches, which only changes the rounding of its gradient. Norms stay on the
device until the loop reads its window. Computing norms is left to the strategies, and evaluating
them to `performance.noise`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from workbench.experiment.plan import Plan
from workbench.hardware.performance.noise import GradientMoments, NoiseSmoother
from workbench.training.strategies.strategy import MeasuredStep, Worker

INTERVAL = 31
"""Every this many steps, one is measured.

For small models, a measured step takes up to 0.6 times longer than others. So one in 31 costs about
2 %, and 3.6 % in the worst measurement. The number does not follow the clock, or trainings with the
same seed would differ. It is prime, so that measured steps move through the epoch, and through the
steps that the profiler times.
"""
CUT_INTERVAL = 97
"""The same if steps must be cut in two. For small models, such a step takes up to 1.5 times longer.
"""


class NoiseMeter:
    """Chooses the steps to measure, the same on every worker, and smooths their norms."""

    def __init__(self, worker: Worker, plan: Plan, *, enabled: bool, mixes_samples: bool) -> None:
        """Start before the first step.

        Args:
            worker: Which worker this is.
            plan: How an optimizer step is divided.
            enabled: Whether anything is measured.
            mixes_samples: Whether the model normalises by statistics of its batch, or the loss of a
                batch differs from the loss of its parts. Cutting such a batch would change its
                gradient, so a step with one part is not measured.
        """
        self._worker = worker
        self._global_batch = plan.global_batch
        num_parts = plan.accumulation * worker.num_replicas
        self._micro_batch = plan.micro_batch if num_parts > 1 else math.ceil(plan.global_batch / 2)
        self._interval = INTERVAL if num_parts > 1 else CUT_INTERVAL
        can_cut = plan.global_batch > 1 and not mixes_samples
        self.measures = enabled and (num_parts > 1 or can_cut)
        """Whether this training is measured."""
        self._next_step = self._interval - 1
        self._planned: deque[int] = deque()
        self._next_after_done = self._next_step
        self._smoother = NoiseSmoother()
        self._waiting: list[torch.Tensor] = []

    def micro_batch(self, step: int, num_samples: int) -> int | None:
        """Return the micro batch with which a step is measured, or None if it is not measured.

        It may be called for a step before earlier steps are made.

        Args:
            step: Number of the step, from 0, in ascending order.
            num_samples: Samples of the step over all workers. A smaller last step of an epoch is
                not measured.
        """
        if not self.measures or step < self._next_step or num_samples != self._global_batch:
            return None
        self._next_step = step + self._interval
        self._planned.append(self._next_step)
        return self._micro_batch

    def add(self, measured: MeasuredStep) -> None:
        """Keep the norms of a measured step until the next reading."""
        self._waiting.append(measured.sqr_norms)
        if self._planned:
            self._next_after_done = self._planned.popleft()

    def read(self) -> None:
        """Add the norms that are waiting. All workers must call it after the same step."""
        if not self._waiting:
            return
        totals = self._worker.group.total(torch.stack(self._waiting)).tolist()
        self._waiting = []
        small_batch = _harmonic_mean_part(self._global_batch, self._micro_batch)
        for part_sqr_norm, step_sqr_norm in totals:
            # With fp16, a step may overflow. Its update is skipped as well.
            if math.isfinite(part_sqr_norm) and math.isfinite(step_sqr_norm):
                self._smoother.add(
                    GradientMoments.of_two_batches(
                        part_sqr_norm,
                        step_sqr_norm,
                        small_batch=small_batch,
                        large_batch=self._global_batch,
                    )
                )

    def moments(self) -> GradientMoments | None:
        """Return signal and noise at the last reading, or None if they cannot be estimated yet."""
        return self._smoother.moments()

    def noise_scale(self) -> float | None:
        """Return the noise scale in samples at the last reading, or None if it is unknown."""
        return self._smoother.noise_scale()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, after a reading."""
        return {"next_step": self._next_after_done, "smoother": self._smoother.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned, even if steps were divided in another way."""
        self._next_step = self._next_after_done = int(state["next_step"])
        self._smoother.load_state_dict(state["smoother"])


def _harmonic_mean_part(global_batch: int, micro_batch: int) -> float:
    """Return the batch size whose squared gradient norm is the mean over the parts of a step.

    The squared norm is |G|^2 + tr(Sigma) / batch, so the mean is taken over 1 / batch.
    """
    sizes = [
        min(micro_batch, global_batch - first) for first in range(0, global_batch, micro_batch)
    ]
    return len(sizes) / sum(1.0 / size for size in sizes)

"""Collects loss, samples and time of the steps since the last report.

It never waits for the device. It also finds the slowest worker. A worker that waits for others
spends that time in its backward pass, or in the forward pass if the strategy gathers weights there.
So loading and the forward pass of replicas show which worker is late, not which one waits.

The gradient noise is measured in the same steps, by their parts, the micro batches of the workers.
If a step has only one part, it is cut into two micro batches, which only changes the rounding of
its gradient. Computing norms is left to the strategies, and evaluating them to `performance.noise`.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.experiment.plan import Plan
from workbench.hardware.performance.noise import GradientMoments, NoiseSmoother
from workbench.training.strategies.strategy import MeasuredStep, Worker

REPORT_INTERVAL_S = 0.5
_ALONE = ("data", "forward")
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


class Reading(NamedTuple):
    """The sums over the windows of all workers."""

    mean_loss: float
    """The mean over the samples of the window, or over whatever the loss counts in them."""
    is_due: bool
    """Whether the window is old enough for a report."""
    is_save_requested: bool
    """Whether rank 0 requested a checkpoint."""
    is_evaluation_requested: bool
    """Whether rank 0 requested an evaluation."""


class Window:
    """Steps since the last report.

    Workers read their windows at the same step, because a reading adds up their losses. Rank 0
    chooses the number of steps until the next reading, such that about `REPORT_INTERVAL_S` passes.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # One sum over the whole epoch, step by step. When readings happen depends on the clock. If
        # they cut the sum, rounding and so the mean of an epoch would depend on the clock as well.
        self._own_epoch_sum = 0.0
        self._unread: list[tuple[Tensor, int | Tensor]] = []
        self._epoch_count = 0.0
        self._seen_epoch_sum = self._seen_epoch_count = 0.0
        self._loss_sum = self._loss_count = 0.0
        self._num_samples = self._num_untimed = 0
        self._num_steps = 0
        self._steps_to_reading = 1
        self._started_s = perf_counter()

    def start_epoch(self, loss_sum: float = 0.0, count: float = 0.0) -> None:
        """Reset the mean over an epoch. The window continues. The last epoch must have been read.

        Args:
            loss_sum: The result of `epoch_so_far`, if the epoch continues after an interruption.
            count: Number of summands: samples, or whatever the loss counts.
        """
        # The stored sum is over all workers, so only one of them may start with it.
        self._own_epoch_sum = loss_sum if self._worker.rank == 0 else 0.0
        self._epoch_count = self._seen_epoch_count = count
        self._seen_epoch_sum = loss_sum

    def add(self, loss: Tensor, num_samples: int, count: Tensor | None = None) -> bool:
        """Add a step.

        Args:
            loss: This worker's share of the mean loss of the step.
            num_samples: Samples of the step over all workers.
            count: The count of the loss over all workers, or None if it counts samples.

        Returns:
            Whether a reading is due.
        """
        # Adding up now would take one kernel for each step.
        self._unread.append((loss, count if count is not None else num_samples))
        self._num_samples += num_samples
        self._num_steps += 1
        self._steps_to_reading -= 1
        return self._steps_to_reading <= 0

    def read(self, *, saves: bool = False, evaluates: bool = False) -> Reading:
        """Add up the windows of all workers. All of them must call it.

        Args:
            saves: Whether to request a checkpoint. Only rank 0's requests count.
            evaluates: Whether to request an evaluation.
        """
        # Only rank 0's clock counts: the others add 0. So one sum over the workers adds up the
        # losses, and also tells all of them what rank 0 has decided.
        elapsed_s = perf_counter() - self._started_s
        is_due = elapsed_s >= REPORT_INTERVAL_S
        missing_s = REPORT_INTERVAL_S if is_due else REPORT_INTERVAL_S - elapsed_s
        step_s = max(elapsed_s / max(self._num_steps, 1), 1e-6)
        decided = [missing_s / step_s, float(is_due), float(saves), float(evaluates)]
        own = [self._add_unread(), *(decided if self._worker.rank == 0 else [0.0] * len(decided))]
        shared = torch.tensor(own, dtype=torch.float64, device=self._worker.device)
        epoch_sum, steps_to_reading, *requests = self._worker.group.total(shared).tolist()
        self._loss_sum += epoch_sum - self._seen_epoch_sum
        self._loss_count += self._epoch_count - self._seen_epoch_count
        self._seen_epoch_sum, self._seen_epoch_count = epoch_sum, self._epoch_count
        self._steps_to_reading = max(1, round(steps_to_reading))
        mean_loss = self._loss_sum / (self._loss_count or 1.0)
        return Reading(mean_loss, *(request > 0 for request in requests))

    def _add_unread(self) -> float:
        """Return this worker's sum over the epoch. Losses are copied from the device at once."""
        if self._unread:
            losses = torch.stack([loss for loss, _ in self._unread]).reshape(-1).tolist()
            counts = _numbers([count for _, count in self._unread])
            for loss, count in zip(losses, counts, strict=True):
                self._own_epoch_sum += loss * count
                self._epoch_count += count
            self._unread.clear()
        return self._own_epoch_sum

    def exclude(self, elapsed_s: float, num_samples: int) -> None:
        """Exclude a step that was added, such as a warm-up step, from the speed."""
        # Moving the start of the window takes the time out of it.
        self._started_s += elapsed_s
        self._num_untimed += num_samples

    def epoch_mean(self) -> float:
        """Return the mean loss of the epoch at the last reading."""
        return self._seen_epoch_sum / (self._seen_epoch_count or 1.0)

    def epoch_so_far(self) -> tuple[float, float]:
        """Return the sum of the losses of the epoch and its count, at the last reading."""
        return self._seen_epoch_sum, self._seen_epoch_count

    def close(self) -> float | None:
        """Start a new window.

        Returns:
            Samples per second of the old window, over all workers, or None if no step was timed.
        """
        now_s = perf_counter()
        num_timed = self._num_samples - self._num_untimed
        samples_per_s = num_timed / max(now_s - self._started_s, 1e-9) if num_timed else None
        self._loss_sum = self._loss_count = 0.0
        self._num_samples, self._num_untimed, self._num_steps = 0, 0, 0
        self._started_s = now_s
        return samples_per_s

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside this context from the window."""
        paused_s = perf_counter()
        try:
            yield
        finally:
            self._started_s += perf_counter() - paused_s


def _numbers(counts: list[int | Tensor]) -> list[float]:
    """Return the counts of steps. Counts on the device are copied at once."""
    tensors = [count for count in counts if isinstance(count, Tensor)]
    if len(tensors) == len(counts):
        return torch.stack(tensors).double().tolist()
    return [float(count) for count in counts]


class SlowestRank(NamedTuple):
    """The slowest worker."""

    rank: int
    factor: float
    """Its time divided by the median time of the others, at least 1."""


class RankTimes:
    """The seconds of an attempt that each worker spends without waiting for others."""

    def __init__(self, worker: Worker) -> None:
        """Start without measurements of `worker`."""
        self._worker = worker
        self._num_windows = 0
        self._totals_s = torch.zeros(worker.num_workers, dtype=torch.float64, device=worker.device)

    def add(self, parts_s: Mapping[str, float]) -> SlowestRank | None:
        """Add a window of steps. Every worker must call it.

        The first window does not count, because first steps are slower.

        Args:
            parts_s: Mean seconds per step of this worker, by part.

        Returns:
            The slowest worker so far. None before the second window, for a single worker, and if
            workers hold parts of a model, because these compute different things.
        """
        if self._worker.num_workers == 1 or self._worker.workers_per_replica > 1:
            return None
        self._num_windows += 1
        if self._num_windows == 1:
            return None
        self._totals_s[self._worker.rank] += sum(parts_s.get(part, 0.0) for part in _ALONE)
        own_s = self._worker.group.total(self._totals_s).tolist()
        slowest = max(range(len(own_s)), key=own_s.__getitem__)
        others_s = statistics.median(own_s[:slowest] + own_s[slowest + 1 :])
        if others_s <= 0.0:
            return None
        return SlowestRank(slowest, own_s[slowest] / others_s)


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

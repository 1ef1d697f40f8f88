"""Measures the steps of one plan: with the other workers, alone, and in an evaluation.

All workers make the same steps in the same order, and rank 0 decides how many. Choosing the plans
and handling a lack of memory is left to `plan_probe`.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any

import numpy as np
import torch

from workbench.hardware.performance.profiler import StepTimes, summarise
from workbench.hardware.resources import resident_bytes
from workbench.models.metrics import BatchMetric
from workbench.training.assembly import Parts
from workbench.training.evaluation import measure_own
from workbench.training.strategies.strategy import Probeable, Worker
from workbench.training.tensor_source import Source, WorkerBatch

MIN_STEPS = 3
MIN_WARMUP_STEPS = 2
"""The first step has no optimizer state yet, and its gradients are exchanged in another order."""


class TimedSteps:
    """Steps of a plan on real data. If the data is short, they continue with another epoch."""

    def __init__(self, parts: Parts, peak: PeakMemory, seed: int) -> None:
        """Start with the first batch.

        Args:
            parts: The assembled plan, with a profiler that times every step.
            peak: Watches the memory. It is paused while steps are timed.
            seed: Seed of the order of the samples.
        """
        self._parts = parts
        self._peak = peak
        self.compile_s: float | None = None
        """Seconds of the first step."""
        self._batches = parts.train.ahead(self._coming_steps(seed))
        plan = parts.settings.plan
        self._has_loaders = plan.loaders > 0
        # In the first steps, loaders are still filling their queues. Later steps may wait for them.
        num_ahead = 0
        if parts.loaders is not None:
            num_ahead = parts.loaders.batches_ahead * plan.loaders
        self._num_settling = -(-num_ahead // plan.accumulation)

    @property
    def can_step_alone(self) -> bool:
        """Whether a worker can make a step without the others."""
        strategy = self._parts.strategy
        return strategy.capabilities.holds_whole_model and isinstance(strategy, Probeable)

    def try_alone(self) -> None:
        """Make a step without the other workers.

        If memory runs out, only one worker is affected. As in a step of several micro batches,
        there are whole gradients in addition to the gradients in the buckets of an exchange. With a
        single micro batch, that is one copy of the gradients more than later steps need.
        """
        with self._alone():
            self._step(next(self._batches), lr=0.0)  # with rate 0, replicas stay equal

    def warm_up(self, num_steps: int, longest_s: float, *, shortest_s: float = 0.0) -> None:
        """Make the steps that are not timed, and record their peak memory.

        Args:
            num_steps: Maximum number of steps, but at least two are made.
            longest_s: Seconds after which no further step starts.
            shortest_s: Minimum time in seconds, however many steps that takes.
        """
        self._peak.resume()
        num_done, has_time = 0, _clock(num_steps, longest_s, shortest_s)
        while self._continues(num_done, MIN_WARMUP_STEPS + self._num_settling, has_time(num_done)):
            self._step(next(self._batches))
            num_done += 1
        self._peak.pause()

    def time(
        self, num_steps: int, longest_s: float, *, compares: bool, shortest_s: float = 0.0
    ) -> StepTimes:
        """Make the steps that are timed.

        Args:
            num_steps: Maximum number of steps, but at least three are made.
            longest_s: Seconds after which no further step starts.
            shortest_s: Minimum time in seconds, however many steps that takes.
            compares: Whether each step is followed by one without an exchange, to time the
                exchange.

        Returns:
            The times of this worker.
        """
        steps: list[Mapping[str, float]] = []
        alone: list[Mapping[str, float]] = []
        waits_s: list[float] = []
        has_time = _clock(num_steps, longest_s, shortest_s)
        while self._continues(len(steps), MIN_STEPS + self._num_settling, has_time(len(steps))):
            steps.append(self._mean_step())
            if compares:
                with self._alone():
                    # In this step, nobody waits for the others. All start it together, so the wait
                    # at its end shows how much slower the slowest worker is.
                    _meet(self._parts.worker, 0.0)
                    alone.append(self._step(next(self._batches), updates=False))
                    began_s = perf_counter()
                    _meet(self._parts.worker, 0.0)
                    waits_s.append(perf_counter() - began_s)
        is_known = compares or self._parts.worker.num_workers == 1
        times = summarise(steps, alone if is_known else None, comes_in_bursts=self._has_loaders)
        return dataclasses.replace(
            times, straggling_s=statistics.median(waits_s) if waits_s else None
        )

    def make(self, longest_s: float) -> int:
        """Make steps for a while, at least three, without waiting for the device after each.

        Args:
            longest_s: Seconds after which no further step starts.

        Returns:
            Number of completed steps.
        """
        self._peak.resume()
        num_done, has_time = 0, _clock(sys.maxsize, longest_s, 0.0)
        while num_done < MIN_STEPS or has_time(num_done):
            self._step(next(self._batches))
            num_done += 1
        if self._parts.worker.device.type == "cuda":
            torch.cuda.synchronize()
        self._peak.pause()
        return num_done

    def evaluate(self) -> None:
        """Predict one micro batch on each worker, as an evaluation does."""
        parts = self._parts
        size = parts.settings.plan.micro_batch
        self._peak.resume()
        measure_own(
            parts.strategy,
            parts.validation,
            {
                name: metric
                for name, metric in parts.metrics.items()
                if isinstance(metric, BatchMetric)
            },
            parts.validation.all_indices[: size * parts.worker.num_replicas],
            batch=size,
            worker=parts.worker,
        )
        self._peak.pause()

    def _alone(self) -> AbstractContextManager[None]:
        strategy = self._parts.strategy
        assert isinstance(strategy, Probeable)
        return strategy.alone()

    def _coming_steps(self, seed: int) -> Iterator[WorkerBatch]:
        parts = self._parts
        for indices in _full_batches(parts.train, parts.settings.plan.global_batch, seed):
            yield WorkerBatch(
                parts.train,
                indices,
                micro_batch=parts.settings.plan.micro_batch,
                replica=parts.worker.replica,
                num_replicas=parts.worker.num_replicas,
            )

    def _mean_step(self) -> dict[str, float]:
        """Return the mean seconds of a step, over a whole period until replicas agree."""
        # Steps within a period differ: only the last one exchanges parameters.
        period = max(1, self._parts.settings.plan.exchange_period)
        made = [self._step(next(self._batches)) for _ in range(period)]
        return {part: sum(step[part] for step in made) / period for part in made[0]}

    def _step(
        self, batch: WorkerBatch, *, lr: float | None = None, updates: bool = True
    ) -> dict[str, float]:
        """Make a step, wait for the device, and return the seconds of its parts."""
        parts, began_s = self._parts, perf_counter()
        parts.profiler.start_step()
        parts.strategy.forward_backward(batch)
        if updates:
            parts.strategy.update(parts.settings.lr if lr is None else lr)
        times_s = parts.profiler.close_window()
        if self.compile_s is None:  # torch.compile works in the first step
            self.compile_s = perf_counter() - began_s
        return times_s

    def _continues(self, num_done: int, fewest: int, has_time: bool) -> bool:
        """Return whether to make one more step, and let all workers start it together."""
        return _meet(self._parts.worker, float(num_done < fewest or has_time))


def _clock(num_steps: int, longest_s: float, shortest_s: float) -> Callable[[int], bool]:
    """Return a function that takes the steps made so far and says if there is time for another."""
    began_s = perf_counter()

    def has_time(num_done: int) -> bool:
        elapsed_s = perf_counter() - began_s
        return elapsed_s < shortest_s or (elapsed_s < longest_s and num_done < num_steps)

    return has_time


def _meet(worker: Worker, wanted: float) -> bool:
    """Wait for the other workers, so that no step pays for earlier work.

    Returns:
        Whether rank 0 wants to continue.
    """
    if worker.num_workers == 1:
        return wanted > 0
    flag = torch.tensor(wanted if worker.rank == 0 else 0.0, device=worker.device)
    return worker.group.total(flag).item() > 0


def _full_batches(source: Source, global_batch: int, seed: int) -> Iterator[np.ndarray]:
    """Yield full batches forever. A smaller batch at the end of an epoch is skipped."""
    for epoch in itertools.count():
        for indices in source.batches(global_batch=global_batch, epoch=epoch, seed=seed):
            if len(indices) == global_batch:
                yield indices


class PeakMemory:
    """Watches the memory of this process from its start, except for pauses.

    On a GPU, this is exactly the memory that torch's allocator has handed out. On a CPU, it is the
    resident memory of the whole process when `sample` is called. That includes libraries, data and
    freed memory that the process keeps, but not memory that comes and goes between two samples. So
    it is coarse, and usually too high.
    """

    def __init__(self, device: torch.device) -> None:
        """Start to watch.

        Args:
            device: Where this worker computes.
        """
        self._on_gpu = device.type == "cuda"
        self._watches = False
        self._most_bytes = 0
        self.resume()

    @property
    def most_bytes(self) -> int:
        """The peak so far, in bytes."""
        self.sample()
        return self._most_bytes

    def sample(self) -> None:
        """Update the peak, unless paused."""
        if self._watches:
            held = torch.cuda.max_memory_allocated() if self._on_gpu else resident_bytes()
            self._most_bytes = max(self._most_bytes, held)

    def pause(self) -> None:
        """Ignore memory from here on."""
        self.sample()
        self._watches = False

    def resume(self) -> None:
        """Watch again."""
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self._watches = True


def num_bytes(state: Any) -> int:
    """Return the bytes of all tensors in a state of mappings and lists."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(num_bytes(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(num_bytes(value) for value in state)
    return 0

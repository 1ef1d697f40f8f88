"""The steps of one plan, made to be measured: with the others, alone, and an evaluation.

All workers make the same steps in the same order; how many, rank 0 decides. Which plans are measured, and
what it means when memory runs out, is left to `probe`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter

import numpy as np
import torch

from workbench.data.batches import global_batches
from workbench.performance.profiler import StepTimes, summarise
from workbench.strategies.strategy import Worker
from workbench.training.assembly import Parts
from workbench.training.evaluation import measure_own
from workbench.training.peak_memory import PeakMemory
from workbench.training.source import Source, WorkerBatch

FEWEST_STEPS = 3
FEWEST_WARMUP_STEPS = 2
"""The first step has no optimizer state yet, and exchanges in another order than all later ones."""


class TimedSteps:
    """Steps of a plan on real data, which go on into further epochs where the data is short."""

    def __init__(self, parts: Parts, peak: PeakMemory, seed: int) -> None:
        """Begin with the first batch.

        Args:
            parts: The plan, assembled, with a profiler that times every step.
            peak: What watches the memory; paused while steps are timed.
            seed: Of the order of the samples.
        """
        self._parts = parts
        self._peak = peak
        self._batches = _full_batches(parts.train, parts.settings.split.global_batch, seed)

    def try_alone(self) -> None:
        """Make a step that no other worker takes part in, so that running out of memory concerns one only.

        Whole gradients are held beside those that an exchange keeps in its buffers, as in a step of several
        micro batches: with one micro batch that is one copy of the gradients more than is needed later.
        """
        with self._parts.strategy.alone():
            self._step(next(self._batches), lr=0.0)

    def warm_up(self, num_steps: int, longest_s: float, *, shortest_s: float = 0.0) -> None:
        """Make the steps whose times say nothing yet, and see what they hold.

        Args:
            num_steps: How many at most, but no fewer than two.
            longest_s: Seconds after which no further step begins.
            shortest_s: Seconds that they take at least, however many steps that are.
        """
        self._peak.resume()
        num_done, has_time = 0, _clock(num_steps, longest_s, shortest_s)
        while self._goes_on(num_done, FEWEST_WARMUP_STEPS, has_time(num_done)):
            self._step(next(self._batches))
            num_done += 1
        self._peak.pause()

    def time(self, num_steps: int, longest_s: float, *, compares: bool, shortest_s: float = 0.0) -> StepTimes:
        """Make the steps that are timed.

        Args:
            num_steps: How many at most, but no fewer than three.
            longest_s: Seconds after which no further step begins.
            shortest_s: Seconds that they take at least, however many steps that are.
            compares: Whether each is followed by one that exchanges nothing, to tell what exchanging costs.

        Returns:
            What the steps of this worker come to.
        """
        steps: list[Mapping[str, float]] = []
        alone: list[Mapping[str, float]] = []
        has_time = _clock(num_steps, longest_s, shortest_s)
        while self._goes_on(len(steps), FEWEST_STEPS, has_time(len(steps))):
            steps.append(self._step(next(self._batches)))
            if compares:
                with self._parts.strategy.alone():
                    _meet(self._parts.worker, 0.0)
                    alone.append(self._step(next(self._batches), updates=False))
        is_known = compares or self._parts.worker.num_workers == 1
        return summarise(steps, alone if is_known else None)

    def evaluate(self) -> None:
        """Predict one micro batch on each worker, as an evaluation does."""
        parts = self._parts
        size = parts.settings.split.micro_batch
        self._peak.resume()
        measure_own(
            parts.strategy,
            parts.validation,
            parts.metrics,
            parts.validation.all_indices[: size * parts.worker.num_workers],
            batch=size,
            worker=parts.worker,
        )
        self._peak.pause()

    def _step(
        self, indices: np.ndarray, *, lr: float | None = None, updates: bool = True
    ) -> dict[str, float]:
        """Make a step, wait for the device, and return the seconds of its parts."""
        parts = self._parts
        parts.profiler.start_step()
        batch = WorkerBatch(
            parts.train,
            indices,
            micro_batch=parts.settings.split.micro_batch,
            rank=parts.worker.rank,
            num_workers=parts.worker.num_workers,
        )
        parts.strategy.forward_backward(batch)
        if updates:
            parts.strategy.update(parts.settings.lr if lr is None else lr)
        return parts.profiler.close_window()

    def _goes_on(self, num_done: int, fewest: int, has_time: bool) -> bool:
        """Say whether all workers make one more step, and let them begin it together."""
        return _meet(self._parts.worker, float(num_done < fewest or has_time))


def _clock(num_steps: int, longest_s: float, shortest_s: float) -> Callable[[int], bool]:
    """Return what says, from the number of steps that were made, whether there is time for one more."""
    began_s = perf_counter()

    def has_time(num_done: int) -> bool:
        elapsed_s = perf_counter() - began_s
        return elapsed_s < shortest_s or (elapsed_s < longest_s and num_done < num_steps)

    return has_time


def _meet(worker: Worker, wish: float) -> bool:
    """Wait for the other workers, so that no step pays for what came before; return rank 0's wish."""
    if worker.num_workers == 1:
        return wish > 0
    told = torch.tensor(wish if worker.rank == 0 else 0.0, device=worker.device)
    return worker.group.total(told).item() > 0


def _full_batches(source: Source, global_batch: int, seed: int) -> Iterator[np.ndarray]:
    """Yield batches for ever; the last one of an epoch is left out where it is smaller."""
    for epoch in itertools.count():
        for indices in global_batches(
            len(source), global_batch=global_batch, epoch=epoch, seed=seed, shuffle=True
        ):
            if len(indices) == global_batch:
                yield indices

"""A learning rate range test: rates rise from step to step, several times from the same weights.

The steps are the same as in training, with its global batch and all of its workers. Only the rate
differs, and nothing is kept. Evaluating the losses is left to `performance.rate_range`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, RatesTested
from workbench.hardware.performance.rate_range import LossCurve, RateRange, rising_rates
from workbench.training import checkpoint
from workbench.training.assembly import Parts, assemble
from workbench.training.device import join_trial
from workbench.training.outcome import Outcome
from workbench.training.probes.measurements import RateTest
from workbench.training.source import WorkerBatch
from workbench.training.task import TrialTask


def measure_rates(task: TrialTask, test: RateTest, report: Callable[[Event], bool]) -> Outcome:
    """Test a range of learning rates.

    It starts with new weights, or with the checkpoint of a resumed trial.

    Args:
        task: The order of this worker.
        test: The rates, and how often to try them.
        report: Receives one `RatesTested`. Called on rank 0 only.

    Returns:
        How it ended. It is complete even if every rate diverged.

    Raises:
        WorkbenchError: If the experiment cannot be trained with this configuration, or has no rate
            to test.
    """
    if not task.experiment.trains_model:
        raise ExperimentError(
            "a train function sets its own learning rate, so it cannot be tested",
            field="train",
            next_step="Use an experiment with model and data.",
        )
    worker = join_trial(task)
    try:
        parts = assemble(task, worker)
        try:
            rate_range = _test(task, test, parts)
        finally:
            parts.close()
    finally:
        worker.group.close()
    if task.rank == 0:
        report(
            RatesTested(
                setting=test.setting,
                global_batch=parts.settings.plan.global_batch,
                rates=list(rate_range.rates),
                losses=list(rate_range.losses),
                num_seeds=test.num_seeds,
                suggested=rate_range.suggested,
                highest_stable=rate_range.highest_stable,
            )
        )
    return Outcome("complete", len(rate_range.rates))


def _test(task: TrialTask, test: RateTest, parts: Parts) -> RateRange:
    worker, strategy = parts.worker, parts.strategy
    earlier = checkpoint.read_latest(task.checkpoints) if task.resume else None
    if earlier is not None:
        strategy.load(earlier["strategy"])
    random_states = checkpoint.random_states()
    # Only rank 0 is sure to hold the whole state. Its tensors may be in use, so they are copied.
    state = worker.group.broadcast(strategy.state() if worker.rank == 0 else _take_part(parts))
    start = copy.deepcopy(state)
    rates = rising_rates(test.lowest, test.highest, test.num_steps)
    strategy.train(True)
    curves: list[list[float]] = []
    for seed in range(task.seed + 1, task.seed + 1 + test.num_seeds):
        # Replicas must not drop the same units, but the parts of a replica must.
        torch.manual_seed(seed + worker.replica * test.num_seeds)
        curves.append(_run_through(parts, rates, seed))
        strategy.load(copy.deepcopy(start))
    checkpoint.set_random_states(random_states)
    return RateRange.of(rates, curves, optimizer=parts.settings.training.optimizer)


def _take_part(parts: Parts) -> None:
    """Help to gather the state on rank 0. All workers must call `state`."""
    parts.strategy.state()


def _run_through(parts: Parts, rates: list[float], seed: int) -> list[float]:
    """Make a step with each rate until the loss diverges.

    The loss is the sum over all workers, so all of them stop at the same step.
    """
    worker, curve = parts.worker, LossCurve()
    for rate, indices in zip(rates, _whole_batches(parts, seed), strict=False):
        batch = WorkerBatch(
            parts.train,
            indices,
            micro_batch=parts.settings.plan.micro_batch,
            replica=worker.replica,
            num_replicas=worker.num_replicas,
        )
        parts.profiler.start_step()
        loss = worker.group.total(parts.strategy.forward_backward(batch)).item()
        is_finite = curve.add(loss)
        parts.strategy.update(rate)
        if not is_finite:
            break
    return curve.smoothed


def _whole_batches(parts: Parts, seed: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the batches of one epoch after another. A smaller last batch is skipped."""
    size = parts.settings.plan.global_batch
    for epoch in itertools.count():
        for indices in parts.train.batches(global_batch=size, epoch=epoch, seed=seed):
            if len(indices) == size:
                yield indices

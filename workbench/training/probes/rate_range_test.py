"""A learning rate range test: rates rise from step to step, several times from the same weights.

The steps are the same as in training, with its global batch and all of its workers. Only the rate
differs, and nothing is kept. The losses then suggest a rate.

Source: Smith 2017, "Cyclical Learning Rates for Training Neural Networks" (arXiv:1506.01186),
section 3.3; Howard and Gugger 2020, "fastai: A Layered API for Deep Learning" (arXiv:2002.04688),
its `lr_find`.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, RatesTested
from workbench.training import checkpoint
from workbench.training.assembly import Parts, assemble
from workbench.training.device import join_trial
from workbench.training.outcome import Outcome
from workbench.training.probes.measurements import RateTest
from workbench.training.tensor_source import WorkerBatch
from workbench.training.worker_task import TrialTask

SMOOTHING = 0.8
"""fastai smooths by 0.98 over a hundred steps, which delays its curves by half of them.

Means over several seeds need less smoothing: 0.8 delays a curve by four steps.
"""
DIVERGED_TIMES = 4.0
"""fastai ends a test if the smoothed loss is this many times its best value."""
_BELOW_HIGHEST_STABLE = 2.0
"""The best rate for SGD is usually at least half of the highest that converges (Smith 2017)."""
_BELOW_LOWEST_LOSS = 10.0
"""A tenth of the rate of the lowest loss, where the loss is about to rise (fastai's `minimum`)."""
_MIN_FALL = 14.0
"""A curve of pure noise falls by less than this many of its usual bends (in 1500 such curves)."""
_UNSETTLED_PART = 0.1
"""The mean over the first losses is not yet smooth. fastai skips equally many."""


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


def rising_rates(lowest: float, highest: float, num_steps: int) -> list[float]:
    """Return rates that rise by the same factor from step to step.

    Args:
        lowest: The first rate, > 0.
        highest: The last rate, > `lowest`.
        num_steps: Number of rates, >= 2.
    """
    factor = (highest / lowest) ** (1.0 / (num_steps - 1))
    return [lowest * factor**step for step in range(num_steps - 1)] + [highest]


class LossCurve:
    """The smoothed losses of one run through the rates, until they diverge."""

    def __init__(self) -> None:
        """Start without any loss."""
        self.smoothed: list[float] = []
        self._mean = 0.0
        self._num_losses = 0

    def add(self, loss: float) -> bool:
        """Add the loss of a step to the exponential mean, which is corrected for its start at 0.

        Args:
            loss: The mean loss over the samples of the step, before its update.

        Returns:
            Whether to continue. If the loss diverges, it is False, and the loss is not added to the
            curve.
        """
        self._mean = SMOOTHING * self._mean + (1.0 - SMOOTHING) * loss
        self._num_losses += 1
        smoothed = self._mean / (1.0 - SMOOTHING**self._num_losses)
        if not math.isfinite(smoothed):
            return False
        best = min(self.smoothed, default=smoothed)
        if smoothed > best + (DIVERGED_TIMES - 1.0) * abs(best):
            return False
        self.smoothed.append(smoothed)
        return True


@dataclass(frozen=True)
class RateRange:
    """The result of all curves together.

    Attributes:
        rates: The rates at which no curve diverged.
        losses: The smoothed loss at each rate, as a mean over the curves.
        suggested: The rate to use, or None if no rate made the loss fall.
        highest_stable: The highest of the rates, or None if there is none.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggested: float | None
    highest_stable: float | None

    @classmethod
    def of(
        cls, rates: Sequence[float], curves: Sequence[Sequence[float]], *, optimizer: str
    ) -> RateRange:
        """Take the mean of several curves, up to the end of the shortest.

        Args:
            rates: Every rate of the test, rising.
            curves: Smoothed losses of each run, one per rate from the first on. At least one curve.
            optimizer: Name of a class of torch.optim, in any case.
        """
        length = min(len(curve) for curve in curves)
        stable = tuple(rates[:length])
        # The loss of a step is measured before its update, so it shows the effect of earlier rates.
        losses = tuple(
            float(loss) for loss in np.mean([curve[:length] for curve in curves], axis=0)
        )
        suggested = suggest_rate(stable, losses, optimizer=optimizer)
        return cls(stable, losses, suggested, stable[-1] if stable else None)


def suggest_rate(
    rates: Sequence[float], losses: Sequence[float], *, optimizer: str
) -> float | None:
    """Return the rate at which the loss falls most steeply, kept below unstable rates.

    Source: the steepest fall in the logarithm of the rate is fastai's `steep`. For SGD it is at
    most half of the highest stable rate (Smith 2017). For all other optimizers it is at most a
    tenth of the rate of the lowest loss (fastai's `minimum`), because their loss still falls at
    rates that diverge later.

    Args:
        rates: Rising rates > 0 at which the loss did not diverge.
        losses: The smoothed loss at each rate.
        optimizer: Name of a class of torch.optim, in any case.

    Returns:
        A rate, or None if the loss never fell by more than its noise.
    """
    if len(rates) < 3:
        return None
    curve, when = np.asarray(losses, dtype=float), np.log(np.asarray(rates, dtype=float))
    first = int(_UNSETTLED_PART * len(curve))
    lowest = first + int(np.argmin(curve[first:]))
    fall = float(np.max(curve[first : lowest + 1]) - curve[lowest])
    usual_bend = float(np.median(np.abs(np.diff(curve[first:], n=2))))
    # The second limit is for rounding: a constant loss is not constant to the last bit.
    if fall <= max(_MIN_FALL * usual_bend, 1e-9 * abs(curve[lowest])):
        return None
    slopes = [_slope(when, curve, index) for index in range(first, lowest + 1)]
    steepest = float(np.exp(when[first + int(np.argmin(slopes))]))
    if optimizer.lower() == "sgd":
        return min(steepest, rates[-1] / _BELOW_HIGHEST_STABLE)
    return min(steepest, rates[lowest] / _BELOW_LOWEST_LOSS)


def _slope(when: np.ndarray, curve: np.ndarray, index: int) -> float:
    """Return the slope of a straight line through the neighbourhood of one point."""
    reach = max(1, len(when) // 20)
    near = slice(max(0, index - reach), index + reach + 1)
    x = when[near] - np.mean(when[near])
    return float(x @ curve[near] / (x @ x))

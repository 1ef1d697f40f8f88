"""Measures copies of one training that share a device and make steps at the same time.

Each worker of the gang makes the steps of a whole training alone. Through the group, they only
start together and add up their speeds. So the measurement shows how fast the device is with several
trials at once, whatever limits it. How many should share a device is left to the advisor.
"""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event, PlanMeasured
from workbench.training.assembly import Parts, assemble
from workbench.training.device import choose_device, limit_memory
from workbench.training.outcome import Outcome
from workbench.training.probes.measurements import NeighbourProbe
from workbench.training.probes.plan_probe import attempt
from workbench.training.probes.timed_steps import PeakMemory, TimedSteps
from workbench.training.strategies.group import Group
from workbench.training.strategies.strategy import Worker
from workbench.training.task import TrialTask

_WARMUP_STEPS = 5


@dataclasses.dataclass
class _Copy:
    """The result of one worker."""

    plan: dict[str, Any] = dataclasses.field(default_factory=dict)
    num_steps: int = 0
    samples_per_s: float = 0.0
    peak_bytes: int = 0


def measure_neighbours(
    task: TrialTask, order: NeighbourProbe, report: Callable[[Event], bool]
) -> Outcome:
    """Make steps at the same time as the other workers of the gang.

    Args:
        task: The task of this worker.
        order: Which steps to make, and for how long.
        report: Receives one `PlanMeasured` with the plan of one copy, the samples per second of all
            copies, and the peak memory of the largest one. Called on rank 0 only.

    Returns:
        How the measurement ended.

    Raises:
        WorkbenchError: If the plan contradicts the experiment.
    """
    device = choose_device(task.experiment)
    # The group is on the CPU, because NCCL does not accept two workers on one GPU.
    group = Group(task.rank, task.num_workers, torch.device("cpu"), task.meeting)
    try:
        devices = group.gather((socket.gethostname(), os.environ.get("CUDA_VISIBLE_DEVICES")))
        copied = _Copy()
        # Copies on different GPUs would not slow each other down, so that would measure nothing.
        misfit = None
        if len(set(devices)) > 1:
            misfit = "the copies got different GPUs"
        misfit = misfit or _make_steps(task, order, device, group, copied)
        copies = group.gather(copied)
        if task.rank == 0:
            report(
                PlanMeasured(
                    setting=order.setting,
                    plan=copied.plan,
                    fits=misfit is None,
                    message=misfit,
                    num_steps=min(copy.num_steps for copy in copies),
                    samples_per_s=(
                        sum(copy.samples_per_s for copy in copies) if misfit is None else None
                    ),
                    peak_bytes=max(copy.peak_bytes for copy in copies),
                )
            )
        return Outcome("complete", 1)
    finally:
        group.close()


def _make_steps(
    task: TrialTask, order: NeighbourProbe, device: torch.device, group: Group, copied: _Copy
) -> str | None:
    """Fill in the result of this worker.

    After each phase, all workers tell each other whether it fitted. So none of them waits for one
    that ran out of memory, and the timed phase starts on all of them together.

    Returns:
        Why the copies do not fit together, or None if they do.
    """
    alone = Worker(0, 1, device, Group(0, 1, device, None))
    own = dataclasses.replace(
        task,
        rank=0,
        num_workers=1,
        meeting=None,
        plan=task.plan | order.plan | PartialPlan.of(workers=1),
    )
    limit_memory(own.experiment, device)
    copies: list[_Steps] = []
    phases: list[Callable[[], None]] = [
        lambda: copies.append(_Steps(assemble(own, alone), task.seed)),
        lambda: copies[0].warm_up(order.longest_s),
        lambda: copies[0].time(order.longest_s, copied),
    ]
    try:
        for phase in phases:
            misfits = group.gather(attempt(phase))
            if any(misfit is not None for misfit in misfits):
                return next(misfit for misfit in misfits if misfit is not None)
        return None
    finally:
        for steps in copies:
            steps.parts.close()
        alone.group.close()


class _Steps:
    """The steps of one copy."""

    def __init__(self, parts: Parts, seed: int) -> None:
        self.parts = parts
        self._peak = PeakMemory(parts.worker.device)
        self._steps = TimedSteps(parts, self._peak, seed)
        parts.strategy.train(True)

    def warm_up(self, longest_s: float) -> None:
        self._steps.warm_up(_WARMUP_STEPS, 0.5 * longest_s)

    def time(self, longest_s: float, copied: _Copy) -> None:
        began_s = perf_counter()
        copied.num_steps = self._steps.make(longest_s)
        plan = self.parts.settings.plan
        copied.samples_per_s = copied.num_steps * plan.global_batch / (perf_counter() - began_s)
        copied.plan, copied.peak_bytes = plan.to_json(), self._peak.most_bytes

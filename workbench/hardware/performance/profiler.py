"""Time the parts of a training step without making the device wait, and summarise timed steps.

On a CPU, every step is timed with the clock. On a GPU, calls return before the work is done, so
every tenth step records events on the stream. They are read when a window closes, because the loop
waits then anyway. A probe closes a window after each step, so it waits for the device once per
step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from workbench.foundation.events.trials import input_stall

PARTS: tuple[str, ...] = ("data", "forward", "backward", "update")
GPU_SAMPLING_INTERVAL = 10
COMPUTED: tuple[str, ...] = ("forward", "backward")
"""The parts in which workers may also exchange something."""


class StepProfiler:
    """Measures the mean seconds of each part of a step, over a window of steps."""

    def __init__(
        self, device_type: str, gpu_sampling_interval: int = GPU_SAMPLING_INTERVAL
    ) -> None:
        """Make a profiler.

        Args:
            device_type: With "cuda", work is timed on the GPU's stream, otherwise with the clock.
            gpu_sampling_interval: Every how many steps one is timed on a GPU, at least 1.
        """
        self._on_gpu = device_type == "cuda"
        self._gpu_sampling_interval = gpu_sampling_interval
        self._last_s = 0.0
        self._totals_s = dict.fromkeys(PARTS, 0.0)
        self._num_timed_steps = 0
        self._num_steps = 0
        self._timeline: list[tuple[str | None, Any]] = []
        self._sampling = False
        self.mark: Callable[[str], None] = self._mark_on_gpu if self._on_gpu else self._mark_on_cpu

    def start_step(self) -> None:
        """Start a step. The time until the first mark belongs to that mark's part."""
        if self._on_gpu:
            self._sampling = self._num_steps % self._gpu_sampling_interval == 0
            self._num_steps += 1
            if self._sampling:
                self._num_timed_steps += 1
                self._record(None)
        else:
            self._num_timed_steps += 1
            self._last_s = perf_counter()

    def _mark_on_cpu(self, part: str) -> None:
        now_s = perf_counter()
        self._totals_s[part] += now_s - self._last_s
        self._last_s = now_s

    def _mark_on_gpu(self, part: str) -> None:
        if self._sampling:
            self._record(part)

    def _record(self, part: str | None) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._timeline.append((part, event))

    def close_window(self) -> dict[str, float]:
        """Return the mean seconds of each part over the timed steps since the last call.

        Returns:
            Seconds per step by part, or nothing if no step was timed. For steps with several micro
            batches, the parts are sums over them.
        """
        if self._timeline:
            self._timeline[-1][1].synchronize()
            for (_, before), (part, event) in zip(self._timeline, self._timeline[1:], strict=False):
                if part is not None:
                    self._totals_s[part] += before.elapsed_time(event) / 1000.0
        num_timed_steps = self._num_timed_steps
        means_s = {
            part: total / num_timed_steps
            for part, total in self._totals_s.items()
            if num_timed_steps
        }
        self._totals_s = dict.fromkeys(PARTS, 0.0)
        self._timeline.clear()
        self._num_timed_steps = 0
        return means_s


@dataclass(frozen=True)
class StepTimes:
    """The summary of steps that were timed one by one.

    Attributes:
        num_steps: Number of timed steps.
        step_time_s: Their median.
        spread_s: Their interquartile range.
        parts_s: Median seconds of each part: data, forward, backward, communication, update.
            Communication is missing if it is not known.
        straggling_s: Median seconds that a worker waits for the slowest one after a step without an
            exchange. None if it is not known.
    """

    num_steps: int
    step_time_s: float
    spread_s: float
    parts_s: dict[str, float]
    straggling_s: float | None = None

    @property
    def input_stall(self) -> float:
        """The share of a step that waits for data, from 0 to 1."""
        return input_stall(self.parts_s)


def summarise(
    steps: Sequence[Mapping[str, float]],
    alone: Sequence[Mapping[str, float]] | None = None,
    *,
    comes_in_bursts: bool = False,
) -> StepTimes:
    """Summarise timed steps, with communication separated from computing.

    Communication is the time that forward and backward take longer than in a step without an
    exchange. It is a difference of medians, or 0 if that is negative, and does not include
    exchanges that are hidden behind computing. Forward and backward are the times of steps without
    an exchange, so that the parts still add up.

    Args:
        steps: Seconds of each part of each step, at least one step.
        alone: The same for steps without an exchange. None if communication is not known, and empty
            if there are no other workers.
        comes_in_bursts: Whether data arrives for several steps at once, so that only some steps
            wait. Then means are used, because a median would miss the waiting.
    """
    middle = mean if comes_in_bursts else median
    parts_s = {part: middle([step[part] for step in steps]) for part in PARTS}
    if alone is not None:
        computing_s = (
            {part: middle([step[part] for step in alone]) for part in COMPUTED} if alone else {}
        )
        beyond_s = math.fsum(parts_s[part] - computing_s[part] for part in computing_s)
        if beyond_s > 0.0:
            parts_s |= computing_s
        parts_s["communication"] = max(beyond_s, 0.0)
        parts_s["update"] = parts_s.pop("update")  # keeps the parts in the order of a step
    totals_s = [sum(step.values()) for step in steps]
    lower_s, upper_s = np.percentile(totals_s, (25, 75))
    return StepTimes(len(steps), middle(totals_s), float(upper_s - lower_s), parts_s)

"""The parts of a training step, timed without making the device wait.

On a CPU every step is timed with the clock. On a GPU, where calls return before the work is done, every
tenth step records events on the stream; they are read when a window closes, where the loop waits anyway.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch

PARTS: tuple[str, ...] = ("data", "forward", "backward", "update")
GPU_SAMPLING_INTERVAL = 10


class StepProfiler:
    """Mean seconds a step spends in each part, over a window of steps."""

    def __init__(self, device_type: str) -> None:
        """Make a profiler.

        Args:
            device_type: "cuda" to time work on the GPU's stream; anything else to read the clock.
        """
        self._on_gpu = device_type == "cuda"
        self._last_s = 0.0
        self._totals_s = dict.fromkeys(PARTS, 0.0)
        self._num_timed_steps = 0
        self._num_steps = 0
        self._timeline: list[tuple[str | None, Any]] = []
        self._sampling = False
        self.mark = self._mark_on_gpu if self._on_gpu else self._mark_on_cpu

    def start_step(self) -> None:
        """Begin a step: what follows until the first mark belongs to that mark's part."""
        if self._on_gpu:
            self._sampling = self._num_steps % GPU_SAMPLING_INTERVAL == 0
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
            Seconds a step, by part; empty where no step was timed. The parts of a step with several micro
            batches are sums over them.
        """
        if self._timeline:
            self._timeline[-1][1].synchronize()
            for (_, before), (part, event) in zip(self._timeline, self._timeline[1:], strict=False):
                if part is not None:
                    self._totals_s[part] += before.elapsed_time(event) / 1000.0
        num_timed_steps = self._num_timed_steps
        means_s = {part: total / num_timed_steps for part, total in self._totals_s.items() if num_timed_steps}
        self._totals_s = dict.fromkeys(PARTS, 0.0)
        self._timeline.clear()
        self._num_timed_steps = 0
        return means_s

"""The most that a worker holds while it makes some steps, on whichever device it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from workbench.hardware.resources import resident_bytes


class PeakMemory:
    """Watches what this process holds, from when it is made, but for pauses.

    On a GPU it is what torch's allocator handed out, exactly. On a CPU it is the resident memory of
    the whole process at the moments of `sample`: libraries, data and what was freed and kept count
    as well, and what comes and goes between two samples does not. That is coarse, and rather an
    overestimate.
    """

    def __init__(self, device: torch.device) -> None:
        """Begin to watch.

        Args:
            device: Where this worker computes.
        """
        self._on_gpu = device.type == "cuda"
        self._watches = False
        self._most_bytes = 0
        self.resume()

    @property
    def most_bytes(self) -> int:
        """The most that was held so far."""
        self.sample()
        return self._most_bytes

    def sample(self) -> None:
        """Update the peak, unless paused."""
        if self._watches:
            held = torch.cuda.max_memory_allocated() if self._on_gpu else resident_bytes()
            self._most_bytes = max(self._most_bytes, held)

    def pause(self) -> None:
        """Leave out what is held from here on."""
        self.sample()
        self._watches = False

    def resume(self) -> None:
        """Watch again."""
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self._watches = True


def num_bytes(state: Any) -> int:
    """Return what the tensors take that a state of mappings and lists holds."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(num_bytes(value) for value in state.values())
    return sum(num_bytes(value) for value in state) if isinstance(state, list | tuple) else 0

"""What this machine is doing right now: processors, memory, GPUs. What a GPU does not tell is None."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

from workbench.resources.inventory import Inventory, inventory
from workbench.resources.nvml import GpuUsage, gpu_usage


@dataclass(frozen=True)
class Usage:
    """A moment of a machine.

    Attributes:
        machine: What there is.
        time_unix_s: When it was looked at.
        cpu_utilisation: Part of the machine's processors that was busy since the last look, from 0 to 1;
            None at the first.
        memory_used_bytes: Memory that is in use.
        gpus: One a GPU, in the order of the inventory.
    """

    machine: Inventory
    time_unix_s: float
    cpu_utilisation: float | None
    memory_used_bytes: int
    gpus: tuple[GpuUsage, ...]


class UsageMeter:
    """Looks at this machine again and again; each look is against the one before."""

    def __init__(self) -> None:
        """Find out what there is."""
        self._machine = inventory()
        self._busy_s: tuple[float, float] | None = None

    def look(self) -> Usage:
        """Return what this machine is doing."""
        times = psutil.cpu_times()
        total_s = float(sum(times))
        idle_s = float(times.idle + getattr(times, "iowait", 0.0))
        before, self._busy_s = self._busy_s, (total_s, total_s - idle_s)
        part = None
        if before is not None and total_s > before[0]:
            part = min(1.0, max(0.0, (total_s - idle_s - before[1]) / (total_s - before[0])))
        memory = psutil.virtual_memory()
        return Usage(
            self._machine, time.time(), part, int(memory.total - memory.available),
            gpu_usage(self._machine.gpus),
        )  # fmt: skip

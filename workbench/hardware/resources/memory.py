"""The memory that this process holds or may hold, and how many processes were killed for it."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import psutil

_VIRTUAL_MEMORY = Path("/proc/vmstat")


def resident_bytes() -> int:
    """Return the host memory that this process holds."""
    return _this_process(os.getpid()).memory_info().rss


@functools.lru_cache(maxsize=1)
def _this_process(pid: int) -> psutil.Process:
    return psutil.Process(pid)  # creating it takes longer than reading it


def num_memory_kills(counters: Path = _VIRTUAL_MEMORY) -> int:
    """Return how many processes Linux has killed since its start because memory ran out.

    Args:
        counters: The kernel's file of memory counters.

    Returns:
        The number, or 0 if the system does not count them.
    """
    try:
        lines = counters.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


CONTEXT_BYTES = 2**30
"""GPU memory of the driver and its libraries per process, which allocators do not count."""


def allowed_bytes(total_bytes: float, share: float) -> float:
    """Return how much GPU memory one process may use.

    If several processes share the GPU, each also has a context of the driver.

    Args:
        total_bytes: Memory of the GPU.
        share: Its share of the GPU. 1 and above mean all of it.
    """
    if share >= 1.0:
        return total_bytes
    return max(share * total_bytes - CONTEXT_BYTES, 0.5 * share * total_bytes)

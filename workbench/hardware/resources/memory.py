"""What memory this process holds, and how many processes the system has killed for lack of it."""

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
    return psutil.Process(pid)  # which takes longer to make than to read


def num_memory_kills(counters: Path = _VIRTUAL_MEMORY) -> int:
    """Return how many processes Linux has ended since it started because memory ran out.

    Args:
        counters: The kernel's file of memory counters.

    Returns:
        The count; 0 where the system keeps none.
    """
    try:
        lines = counters.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

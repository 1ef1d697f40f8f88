"""Names the processes that hold the memory of a machine that has little left."""

from __future__ import annotations

import contextlib

import psutil

SHORTAGE_PERCENT = 80.0
_NUM_LISTED = 12
_COMMAND_LENGTH = 150


def describe_shortage() -> str | None:
    """Return the largest processes of this machine, one a line; None while there is memory left."""
    memory = psutil.virtual_memory()
    if memory.percent < SHORTAGE_PERCENT:
        return None
    shortages: list[tuple[int, str]] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline()) or process.name()
            shortages.append(
                (process.memory_info().rss, f"{process.pid} {command[:_COMMAND_LENGTH]}")
            )
    largest = sorted(shortages, reverse=True)[:_NUM_LISTED]
    lines = [f"{memory.percent:.0f} % in use, {memory.shared >> 20} MiB of it shared"]
    return "\n".join([*lines, *(f"{size >> 20:6d} MiB {words}" for size, words in largest)])

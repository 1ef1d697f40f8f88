"""The clock of a process: the time of day when it began, and what has passed since.

The clock of the machine may be set while a run is under way. Times of events are compared with each
other, so they follow this clock, which does not jump; where a run goes on in another process, it
goes on from what has happened. Leases and files, which other processes compare with theirs, are
left to the clock of the machine.
"""

from __future__ import annotations

import time


def _passed_s() -> float:
    """Return seconds since some moment, of which a suspended machine misses none where that can be
    known.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


_BEGAN_S = time.time() - _passed_s()
_ahead_s = 0.0


def process_unix_s() -> float:
    """Return the time in seconds since 1970, whatever has happened to the clock of the machine
    meanwhile.
    """
    return _BEGAN_S + _passed_s()


def steady_unix_s() -> float:
    """Return `process_unix_s`, as much later as events of this process must be that follow
    others.
    """
    return process_unix_s() + _ahead_s


def continue_from(unix_s: float) -> None:
    """Let no event of this process be before a time, such as that of the last event of a run.

    Args:
        unix_s: Seconds since 1970; one that has passed changes nothing.
    """
    global _ahead_s
    _ahead_s = max(0.0, unix_s - process_unix_s())

"""Shows every Python process that finds this first on its path a clock that can be set, by a file.

It imports nothing but the standard library, as it runs before everything else. What has passed
since some moment (`time.monotonic`) is not changed, as on a real machine.
"""

import os
import time
from pathlib import Path

VARIABLE = "FAULTS_CLOCK"
_real_time = time.time
_LOOKS_EVERY_S = 0.05
_seen: list[float] = [float("-inf"), 0.0]


def _ahead_s() -> float:
    now_s = time.monotonic()
    if now_s - _seen[0] > _LOOKS_EVERY_S:
        try:
            _seen[:] = now_s, float(Path(os.environ[VARIABLE]).read_text())
        except (OSError, ValueError, KeyError):
            _seen[0] = now_s
    return _seen[1]


def set_time() -> float:
    """Return the time as the file shows it."""
    return _real_time() + _ahead_s()


if VARIABLE in os.environ:
    time.time = set_time
    time.time_ns = lambda: int(set_time() * 1e9)

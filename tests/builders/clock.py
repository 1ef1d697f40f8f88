"""A clock for tests of code that reads one."""

from __future__ import annotations


class Clock:
    """Stands still between calls of `sleep`; called, it returns the time in seconds."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.num_readings = 0

    def __call__(self) -> float:
        self.num_readings += 1
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

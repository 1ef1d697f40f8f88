"""Time in which this process ran: one that was paused itself does not take the others for silent.

A process that is frozen, or waits for a processor, reads what others sent meanwhile only after it
goes on. By the time of the machine they would have been silent since the pause began.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_LONGEST_PERIODS = 1.5
"""A period that takes longer counts as this many."""


class OwnTime:
    """A clock that stands still while its event loop does.

    Example:
        >>> moments = iter([0.0, 0.1, 0.2, 5.2, 5.2, 5.2])
        >>> clock = OwnTime(0.1, clock=lambda: next(moments))
        >>> clock.tick()
        >>> clock.tick()
        >>> clock.tick()  # 5 s later
        >>> round(clock.now_s(), 2)
        0.35
    """

    def __init__(self, period_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start at 0.

        Args:
            period_s: How often it is read by itself; longer pauses are left out.
            clock: The time of the machine, in seconds.
        """
        self._period_s, self._clock = period_s, clock
        self._until_s, self._ticked_s = 0.0, clock()

    def now_s(self) -> float:
        """Return the seconds that count."""
        return self._until_s + min(
            self._clock() - self._ticked_s, _LONGEST_PERIODS * self._period_s
        )

    def tick(self) -> None:
        """Count the time since the last tick, or as much of it as counts."""
        self._until_s, self._ticked_s = self.now_s(), self._clock()

    async def run(self) -> None:
        """Tick once a period until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(self._period_s)

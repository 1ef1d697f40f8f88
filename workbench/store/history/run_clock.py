"""The run time: the clock of a run, used by curves, header, table, log and limits of time.

It starts with the first driver, or with the request for advice, which has no driver. It stops while
nobody drives the run: if you stop a run in the evening and resume it in the morning, the clock
continues where it stopped.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from typing_extensions import Self

from workbench.foundation.events import (
    AdviceRequested,
    AlertCleared,
    AlertDelivered,
    AlertRaised,
    DriverStarted,
    Event,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIGN_S = 6.0
"""How long a driver counts as alive after a heartbeat. Heartbeats come about every 3 s."""
NAME = "Run time"
"""The name of the clock in all views."""
_WITHOUT_DRIVER = (AlertRaised, AlertCleared, AlertDelivered)
"""Events that also come to a run that nobody drives."""


class RunClock:
    """Converts times of events, in seconds since 1970, to the run time, in seconds.

    Example:
        >>> from workbench.foundation.events import DriverStarted, RunStateChanged
        >>> from workbench.store.history.run_clock import RunClock
        >>> clock = RunClock()
        >>> clock.note(DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=100.0))
        >>> clock.note(RunStateChanged(state="stopped", time_unix_s=130.0))
        >>> clock.note(DriverStarted(pid=2, host="here", num_cpus=2, time_unix_s=5000.0))
        >>> clock.at(110.0), clock.at(4000.0), clock.at(5010.0)
        (10.0, 30.0, 40.0)
    """

    def __init__(self) -> None:
        """Start before the first event."""
        self.waited_s = 0.0
        """The part of the wait for the first driver that counts as time of the run, in seconds."""
        self._starts_unix_s: list[float] = []
        self._before_s: list[float] = []  # the run time at each of these starts
        self.last_unix_s = 0.0
        """The latest time of an event so far."""
        self._is_driven = False

    @classmethod
    def since(cls, start_unix_s: float) -> Self:
        """Return the clock of a run that has been driven since a time."""
        clock = cls()
        clock.note_time(start_unix_s)
        return clock

    def note(self, event: Event) -> None:
        """Note the next event."""
        time_unix_s = event.time_unix_s
        if isinstance(event, DriverStarted):
            self._begin(
                time_unix_s, is_first=not self._is_driven, before_unix_s=event.before_unix_s
            )
            self._is_driven = True
        elif (
            isinstance(event, AdviceRequested) and not self._is_driven
        ) or not self._starts_unix_s:
            self._begin(time_unix_s, is_first=True)
        if not isinstance(event, _WITHOUT_DRIVER):
            self.last_unix_s = max(self.last_unix_s, time_unix_s)

    def note_time(self, time_unix_s: float) -> None:
        """Note the time of events that are applied in bulk."""
        if not self._starts_unix_s:
            self._begin(time_unix_s, is_first=True)
        self.last_unix_s = max(self.last_unix_s, time_unix_s)

    def _begin(
        self, time_unix_s: float, *, is_first: bool, before_unix_s: float | None = None
    ) -> None:
        if is_first:  # the time before the first driver is preparation and does not count
            self._starts_unix_s, self._before_s = [time_unix_s], [0.0]
        else:
            time_unix_s = max(time_unix_s, self.last_unix_s)
            until_unix_s = self.last_unix_s
            if before_unix_s is not None:  # it was killed, maybe long after its last event
                until_unix_s = max(until_unix_s, min(before_unix_s, time_unix_s))
            counted_s = self._before_s[-1] + max(0.0, until_unix_s - self._starts_unix_s[-1])
            self._starts_unix_s.append(time_unix_s)
            self._before_s.append(counted_s)
        self.last_unix_s = time_unix_s

    def at(self, time_unix_s: float) -> float:
        """Return the run time at a time.

        Args:
            time_unix_s: The time, in seconds since 1970 by the clock of the run's events.

        Returns:
            The run time in seconds. It is 0 before the run starts, and constant between two
            drivers.
        """
        index = max(bisect.bisect_right(self._starts_unix_s, time_unix_s) - 1, 0)
        if not self._starts_unix_s:
            return self.waited_s
        counted_s = self._before_s[index] + max(0.0, time_unix_s - self._starts_unix_s[index])
        if index + 1 < len(self._before_s):
            counted_s = min(counted_s, self._before_s[index + 1])
        return self.waited_s + counted_s

    def at_all(self, times_unix_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the run time at many times, like `at`."""
        import numpy as np  # most commands read no columns and need no numpy

        if not self._starts_unix_s:
            return np.full(len(times_unix_s), self.waited_s)
        if len(self._starts_unix_s) == 1:  # nobody has resumed the run
            counted = self._before_s[0] + np.maximum(0.0, times_unix_s - self._starts_unix_s[0])
            return self.waited_s + counted
        starts, before = np.array(self._starts_unix_s), np.array(self._before_s)
        places = np.maximum(np.searchsorted(starts, times_unix_s, side="right") - 1, 0)
        counted = before[places] + np.maximum(0.0, times_unix_s - starts[places])
        return self.waited_s + np.minimum(counted, np.append(before[1:], np.inf)[places])

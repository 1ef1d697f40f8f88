"""The clock of a run is that of its driver's process.

It does not jump when the clock of a machine is set.

A driver after the first continues from the last event (`Ledger.replay`). What happened elsewhere
has times by other clocks. Those that cannot be right are replaced by the time at which the driver
received it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from workbench.foundation.events import Event, Noted, TrialReported, steady_unix_s
from workbench.foundation.formatting import format_duration
from workbench.sweeps.ledger import Ledger

TOLERATED_S = 60.0
"""How far clocks may be apart.

Reports wait for a moment, and clocks of machines differ a little.
"""


class RunClock:
    """Notices that the clock of the driver's machine was set, and records by how much."""

    def __init__(self, ledger: Ledger) -> None:
        """Record jumps in `ledger`."""
        self._ledger = ledger

    def tick(self) -> None:
        """Record by how much the clock of the machine is off, if that has changed."""
        ahead_s, known_s = time.time() - steady_unix_s(), self._ledger.history.clock_ahead_s
        if abs(ahead_s - known_s) <= TOLERATED_S:
            return
        way = "ahead" if ahead_s > known_s else "back"
        message = (
            f"the clock of this machine was set {way} by {format_duration(abs(ahead_s - known_s))}:"
            " the times of this run follow the clock as it was, and none of its limits is affected"
        )
        self._ledger.record(Noted(level="warning", message=message, clock_ahead_s=ahead_s))


def timely(events: Sequence[Event], since_unix_s: float) -> list[Event]:
    """Return events from elsewhere, with the time now where theirs cannot be right.

    Args:
        events: The events.
        since_unix_s: When the driver began; only reports that are repeated were made before.
    """
    now_unix_s = steady_unix_s()

    def is_right(event: Event) -> bool:
        is_repeated = isinstance(event, TrialReported) and event.told_again
        is_after = is_repeated or event.time_unix_s >= since_unix_s
        return is_after and abs(event.time_unix_s - now_unix_s) <= TOLERATED_S

    return [
        event if is_right(event) else event.model_copy(update={"time_unix_s": now_unix_s})
        for event in events
    ]

"""Report what keeps a run from its workers.

When it has none for a while, and when its place changes.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from workbench.cluster.workers.pool_client import Obstacle, obstacle
from workbench.cluster.workers.waiting_note import write_waiting_note
from workbench.foundation.events import Noted
from workbench.sweeps.ledger import Ledger

REPORT_AFTER_S = 10.0
"""How long a run waits before that is reported: as long as workers may take to start."""


class Waiting:
    """Watches the started trials of one run, and reports when none of them gets workers."""

    def __init__(self, ledger: Ledger) -> None:
        """Watch the run of `ledger`; notes are recorded there."""
        self._ledger = ledger
        self._report_s: float | None = None
        self._reported: Obstacle | None = None

    def tick(self, trials: Collection[int]) -> None:
        """Check whether the run waits, and report what for.

        Args:
            trials: Numbers of the trials that were started and have not ended.
        """
        known, now_s = self._ledger.history.trials, time.monotonic()
        if not trials or any(known[number].state != "waiting" for number in trials):
            self._report_s, self._reported = None, None
        elif self._report_s is None:
            self._report_s = now_s + REPORT_AFTER_S
        elif now_s >= self._report_s:
            self._report_s = now_s + REPORT_AFTER_S
            found = obstacle(self._ledger.run_id)
            if found is not None and not found.is_like(self._reported):
                self._reported = found
                self._ledger.record(
                    Noted(level="info", message=write_waiting_note("workers", str(found)))
                )

"""Who keeps a run from its workers: told once each time that a run has none and waits for them."""

from __future__ import annotations

import time
from collections.abc import Collection

from workbench.events import Noted
from workbench.sweeps.ledger import Ledger
from workbench.workers.requests import holders

TELL_AFTER_S = 10.0
"""How long a run waits without a word: as long as workers may take to start."""


class Waiting:
    """Watches the trials of one run that were started, and tells where none of them gets workers."""

    def __init__(self, ledger: Ledger) -> None:
        """Watch the run of `ledger`, and tell there."""
        self._ledger = ledger
        self._ask_s: float | None = None
        self._told = False

    def tick(self, trials: Collection[int]) -> None:
        """Look whether the run waits, and tell for whom.

        Args:
            trials: Numbers of the trials that were started and have not ended.
        """
        known, now_s = self._ledger.history.trials, time.monotonic()
        if not trials or any(known[number].state != "waiting" for number in trials):
            self._ask_s, self._told = None, False
        elif self._ask_s is None:
            self._ask_s = now_s + TELL_AFTER_S
        elif now_s >= self._ask_s and not self._told:
            self._ask_s = now_s + TELL_AFTER_S
            if found := holders(self._ledger.run_id):
                self._told = True
                self._ledger.record(Noted(level="info", message=f"waits for workers: {found}"))

"""What keeps a run from its workers: told when it has none, and when its place changes."""

from __future__ import annotations

import time
from collections.abc import Collection

from workbench.events import Noted
from workbench.sweeps.ledger import Ledger
from workbench.workers.requests import Obstacle, obstacle

TELL_AFTER_S = 10.0
"""How long a run waits without a word: as long as workers may take to start."""


class Waiting:
    """Watches the trials of one run that were started, and tells where none of them gets workers."""

    def __init__(self, ledger: Ledger) -> None:
        """Watch the run of `ledger`, and tell there."""
        self._ledger = ledger
        self._ask_s: float | None = None
        self._told: Obstacle | None = None

    def tick(self, trials: Collection[int]) -> None:
        """Look whether the run waits, and tell for whom.

        Args:
            trials: Numbers of the trials that were started and have not ended.
        """
        known, now_s = self._ledger.history.trials, time.monotonic()
        if not trials or any(known[number].state != "waiting" for number in trials):
            self._ask_s, self._told = None, None
        elif self._ask_s is None:
            self._ask_s = now_s + TELL_AFTER_S
        elif now_s >= self._ask_s:
            self._ask_s = now_s + TELL_AFTER_S
            found = obstacle(self._ledger.run_id)
            if found is not None and not _is_like(found, self._told):
                self._told = found
                self._ledger.record(Noted(level="info", message=f"waits for workers: {found}"))


def _is_like(found: Obstacle, told: Obstacle | None) -> bool:
    """Say whether it was told already; what others hold changes with each of their trials."""
    return told is not None and (found.place, found.missing) == (told.place, told.missing)

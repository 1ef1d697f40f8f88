"""Leases that were seen to be renewed, by a clock that nobody can set.

A heartbeat is a time of day, so a driver seems silent, or to come from the future, in the moment in
which the clock of a machine is set. A process that has watched it knows better.
"""

from __future__ import annotations

import time
from typing import Any


class Renewals:
    """When this process saw the heartbeat of each run change last."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen: dict[int, tuple[float | None, float | None]] = {}

    def saw(self, row: Any) -> bool:
        """Take the row of a run, and return whether its lease was renewed within its timeout.

        Args:
            row: The row, as it is now.
        """
        if row.lease_token is None:
            self._seen.pop(row.key, None)
            return False
        now_s = time.monotonic()
        beat_unix_s, changed_s = self._seen.get(row.key, (row.heartbeat_unix_s, None))
        if beat_unix_s != row.heartbeat_unix_s:
            changed_s = now_s
        self._seen[row.key] = row.heartbeat_unix_s, changed_s
        return changed_s is not None and now_s - changed_s <= row.lease_timeout_s

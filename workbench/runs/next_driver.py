"""The driver that Ray starts in place of one that was killed.

Until then, nobody gives the run up.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from workbench.cluster.head import local_head
from workbench.store.database import RunRow
from workbench.store.database.rows import Owner

AWAITED = "the driver's process has ended; Ray starts another one, which takes some seconds"
PATIENCE_S = 300.0
"""How long Ray may take to start it: seconds, and minutes on a busy machine."""


class NextDriver:
    """Whether somebody who waits for a run on this machine should go on waiting though its driver
    is gone.
    """

    def __init__(self) -> None:
        """Begin before the run was looked at."""
        self._owner: Owner | None = None
        self._head: dict[str, Any] | None = None  # that the process of the owner belongs to
        self._until_s: float | None = None

    def is_awaited(self, row: RunRow) -> bool:
        """Return whether Ray may still start another driver in place of one that was killed.

        Args:
            row: The run, as it is now; call this as often as you look at the run.
        """
        if row.owner != self._owner:
            self._owner = row.owner
            is_here = row.owner is not None and row.owner.host == socket.gethostname()
            self._head = (
                local_head.record_of_head_of(row.owner.pid) if row.owner and is_here else None
            )
        if row.state != "lost" or row.was_left or self._head is None:
            self._until_s = None
            return False
        if self._until_s is None:
            self._until_s = time.monotonic() + PATIENCE_S
        return time.monotonic() < self._until_s and local_head.is_intact(self._head)

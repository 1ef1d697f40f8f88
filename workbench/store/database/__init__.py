"""The store: runs, their events and commands, in SQLite by default, or in PostgreSQL.

One process writes the events of a run: the one that holds its lease, which ends when its heartbeat
does. At the same time any number of processes may read, and any process may write commands.
Everything that is shown was stored here first. Bytes too large for a row are in the run's folder,
of which this package knows only embedded objects.
"""

from __future__ import annotations

from workbench.store.database.notifications import Listener
from workbench.store.database.rows import Command, EventRow, Owner, RunRow, StoredEvent
from workbench.store.database.run_writer import RunWriter
from workbench.store.database.store import Store

__all__ = [
    "Command",
    "EventRow",
    "Listener",
    "Owner",
    "RunRow",
    "RunWriter",
    "Store",
    "StoredEvent",
]

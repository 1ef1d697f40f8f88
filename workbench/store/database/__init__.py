"""The store: runs, their events and commands, in SQLite or in PostgreSQL.

Only the process that holds the lease of a run writes its events. The lease ends when its heartbeat
stops. At the same time, any number of processes can read, and any process can write commands.
Everything is stored here before it is shown. Data that is too large for a row is in the run's
folder. This package reads only the embedded objects there.
"""

from __future__ import annotations

from workbench.store.database.notifications import Listener
from workbench.store.database.rows import Command, EventRow, Owner, RunRow, StoredEvent
from workbench.store.database.run_writer import RunWriter
from workbench.store.database.store import Store, acting_as

__all__ = [
    "Command",
    "EventRow",
    "Listener",
    "Owner",
    "RunRow",
    "RunWriter",
    "Store",
    "StoredEvent",
    "acting_as",
]

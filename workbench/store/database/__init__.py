"""The store: runs, their events and the commands to them, on SQLAlchemy.

SQLite by default, or PostgreSQL.

One process writes the events of a run: the one that holds its lease, which ends when its heartbeat
does. Any number of processes read by cursor meanwhile, and any process may write commands.
Everything shown anywhere was stored here first. What the events mean is left to those who write and
read them; bytes too large for a row lie in the run's folder, of which this package only knows
embedded objects.
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

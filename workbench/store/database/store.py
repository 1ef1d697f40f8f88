"""The store: which runs there are, and their events, commands and leases."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from workbench.foundation.events import FINISHED_RUN_STATES, from_json
from workbench.store.database.connection import translated
from workbench.store.database.notifications import Listener
from workbench.store.database.rows import Command, EventRow, StoredEvent
from workbench.store.database.run_catalogue import RunCatalogue
from workbench.store.database.run_writer import RunWriter, is_held, take_lease
from workbench.store.database.tables import commands, runs, select_events

LEASE_TIMEOUT_S = 15.0
_CHUNK_EVENTS = 20_000


class Store(RunCatalogue):
    """All runs with what happened in them; every method may be called from any thread."""

    def events(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        trial: int | None = None,
        types: Collection[str] | None = None,
    ) -> list[StoredEvent]:
        """Return the events of a run in their order.

        Args:
            run_id: The run.
            after: Only events with a greater number.
            limit: How many at most.
            trial: Only events of this trial.
            types: Only events of these types.

        Raises:
            RunNotFoundError: If there is no such run.
            StoreError: If this version does not know an event.
        """
        chunks = self.event_rows(run_id, after=after, limit=limit, trial=trial, types=types)
        return [StoredEvent(row[0], from_json(row[4])) for chunk in chunks for row in chunk]

    def event_rows(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        trial: int | None = None,
        types: Collection[str] | None = None,
        chunk_events: int = _CHUNK_EVENTS,
    ) -> Iterator[list[EventRow]]:
        """Read the events of a run as plain tuples, in chunks: for a million of them.

        Args:
            run_id: The run.
            after: Only events with a greater number.
            limit: How many at most.
            trial: Only events of this trial.
            types: Only events of these types.
            chunk_events: Events of a chunk at most; each chunk is one short read.

        Yields:
            Lists of (seq, type, trial, time in Unix seconds, payload as JSON text), none of them
            empty.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        query = select_events(self._find(run_id).key, trial, types)
        remaining = limit
        while remaining is None or remaining > 0:
            chunk = chunk_events if remaining is None else min(chunk_events, remaining)
            with translated(self._engine), self._engine.connect() as connection:
                cursor = connection.execute(query, {"after": after, "chunk": chunk}).cursor
                rows: list[EventRow] = list(cursor.fetchall()) if cursor else []
            if rows:
                yield rows
            if len(rows) < chunk:
                return
            after = rows[-1][0]
            remaining = None if remaining is None else remaining - len(rows)

    def follow(
        self,
        run_id: str,
        *,
        after: int = 0,
        poll_s: float = 0.2,
        until: Callable[[], bool] | None = None,
    ) -> Iterator[StoredEvent]:
        """Yield the events of a run as they come, until it is finished or lost.

        Args:
            run_id: The run.
            after: Only events with a greater number.
            poll_s: Seconds between polls; more while nothing happens, if the database sends
                notifications.
            until: Called whenever there is nothing new; stops following when it returns true.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        run_id = self._find(run_id).run_id
        with self.listen() as listener:
            while True:
                # The state first: what is finished then adds none but what became of its last
                # alerts.
                run = self.run(run_id)
                if run.last_seq > after:
                    for stored in self.events(run_id, after=after, limit=_CHUNK_EVENTS):
                        after = stored.seq
                        yield stored
                    continue
                if (
                    run.state in FINISHED_RUN_STATES
                    or run.state == "lost"
                    or (until is not None and until())
                ):
                    return
                listener.wait(poll_s)

    def listen(self) -> Listener:
        """Wait for new events of any run, with what this returns and until that is closed."""
        return self._notifications.listen()

    def command(self, run_id: str, kind: str, arguments: Mapping[str, Any]) -> int:
        """Leave a command for the driver of a run.

        Args:
            run_id: The run.
            kind: What to do.
            arguments: With what, as JSON values.

        Returns:
            Its number, counted from 1 in each run.

        Raises:
            RunNotFoundError: If there is no such run.
            StoreUnavailableError: If the store cannot be written just now.
        """
        key = self._find(run_id).key
        with translated(self._engine), self._engine.begin() as connection:
            connection.execute(
                runs.update().where(runs.c.key == key).values(last_command=runs.c.last_command + 1)
            )
            number = connection.execute(
                sa.select(runs.c.last_command).where(runs.c.key == key)
            ).scalar_one()
            row = {"run_key": key, "number": number, "time": time.time(), "kind": kind}
            connection.execute(commands.insert(), {**row, "arguments": json.dumps(dict(arguments))})
        return int(number)

    def commands(self, run_id: str, *, after: int = 0) -> list[Command]:
        """Return the commands to a run in their order.

        Args:
            run_id: The run.
            after: Only commands with a greater number.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        query = (
            sa.select(commands)
            .where(commands.c.run_key == self._find(run_id).key, commands.c.number > after)
            .order_by(commands.c.number)
        )
        return [
            Command(row.number, row.kind, json.loads(row.arguments), row.time)
            for row in self._fetch(query)
        ]

    def writer(
        self,
        run_id: str,
        *,
        owner_pid: int,
        owner_host: str,
        lease_timeout_s: float = LEASE_TIMEOUT_S,
    ) -> RunWriter:
        """Take the lease of a run and return its writer.

        Args:
            run_id: The run.
            owner_pid: The process that will write.
            owner_host: The name of its machine.
            lease_timeout_s: Seconds without a sign of life after which another may take over.

        Raises:
            RunNotFoundError: If there is no such run.
            LeaseError: If another process writes it.
        """
        return take_lease(
            self._database,
            self._find(run_id).run_id,
            owner_pid=owner_pid,
            owner_host=owner_host,
            lease_timeout_s=lease_timeout_s,
        )

    def is_driven(self, run_id: str) -> bool:
        """Return whether a live process holds the lease of a run, as far as can be known here.

        Args:
            run_id: The run.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        return is_held(self._find(run_id), self._database.now_unix_s())

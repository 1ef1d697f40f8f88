"""The writer of a run: takes its lease, keeps it alive, and appends events.

The lease is a token in the run's row. Every write checks the token. So a writer that was taken over
while it slept writes nothing more, however late it wakes up.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection
from typing_extensions import Self

from workbench.foundation.errors import LeaseError, StoreError
from workbench.foundation.events import Event, RunStateChanged, to_json
from workbench.foundation.formatting import format_duration
from workbench.store.database.connection import Database, translated
from workbench.store.database.owner_process import describe_process, is_known_dead
from workbench.store.database.tables import events, last_seq_of, runs

_HEARTBEATS_PER_TIMEOUT = 5
_WATCHED_BEATS = 1.5
"""For how many beats the owner of a lease that seems to have ended is watched before it is
replaced.
"""

_HELD = (runs.c.key == sa.bindparam("held_key")) & (
    runs.c.lease_token == sa.bindparam("held_token")
)
_CHANGE_STATE = (
    runs.update()
    .where(_HELD)
    .values(state=sa.bindparam("new_state"), changed_unix_s=sa.bindparam("now"))
)
_RENEW = runs.update().where(_HELD).values(heartbeat_unix_s=sa.bindparam("now"))
_RELEASE = runs.update().where(_HELD).values(lease_token=None, heartbeat_unix_s=sa.bindparam("now"))
_GIVE_UP = _RELEASE.values(lease_timeout_s=0.0)
_INSERT = events.insert()
# As text: SQLAlchemy would take as long to run these as SQLite itself.
_INSERT_SQLITE = (
    "INSERT INTO events (run_key, seq, time, type, trial, payload) SELECT ?1, ?2, ?3, ?4, ?5, ?6 "
    "WHERE EXISTS (SELECT 1 FROM runs WHERE key = ?1 AND lease_token = ?7)"
)
_CHANGE_STATE_SQLITE = str(_CHANGE_STATE.compile(dialect=sqlite.dialect(paramstyle="named")))
_Row = tuple[float, str, int | None, str]
"""time, type, trial and payload of an event that is to be stored."""
_Work = Callable[[Connection, int], None]


class Predecessor(NamedTuple):
    """The process that held the lease of a run before another took it."""

    pid: int
    signed_unix_s: float
    """When it gave its last sign of life, by the clock of this machine."""
    was_left: bool
    """Whether it had given the lease back."""


class RunWriter:
    """Appends events to one run while its lease is held.

    Every method may be called from any thread.
    """

    def __init__(
        self,
        database: Database,
        run_id: str,
        *,
        run_key: int,
        token: str,
        lease_timeout_s: float,
        predecessor: Predecessor | None = None,
    ) -> None:
        """Continue from a lease that `take_lease` obtained.

        Args:
            database: The database of the run.
            run_id: The run.
            run_key: Its key in the tables.
            token: The result of `take_lease`.
            lease_timeout_s: Seconds without a heartbeat after which others may take the lease.
            predecessor: The previous holder of the lease.
        """
        self.run_id = run_id
        self.predecessor = predecessor
        """Who held the lease before; None where nobody did."""
        self._database = database
        self._engine = database.engine
        self._held = {"held_key": run_key, "held_token": token}
        self._run_key = run_key
        self._lease_timeout_s = lease_timeout_s
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._lost = False
        self._connection: Connection | None = None
        self._last_seq: int | None = None
        self._confirmed_seq = 0
        self._renewed_s = time.monotonic()
        self._heart = threading.Thread(target=self._beat, name=f"lease of {run_id}", daemon=True)
        self._heart.start()

    @property
    def lost(self) -> bool:
        """Whether another writer has taken the run over."""
        return self._lost

    def append(self, *new_events: Event, after: int | None = None) -> int:
        """Store events, all or none, in this order.

        Args:
            *new_events: The events. A `RunStateChanged` also changes the run's state.
            after: The number of the event that they follow. If the run has more events, an earlier
                call has stored these but its answer was lost. They are not stored again.

        Returns:
            The number of the last event of the run.

        Raises:
            LeaseError: If the run was taken over, or this writer is closed.
            StoreUnavailableError: If the store cannot be written now. If the connection was lost,
                the events may have been stored anyway. Then call it again only with `after`.
        """
        states = [event for event in new_events if isinstance(event, RunStateChanged)]
        rows = [_to_row(event) for event in new_events]
        with self._lock:
            self._refuse_when_lost()
            with translated(self._engine):
                return self._append(rows, states[-1] if states else None, after)

    def keep(self, work: _Work) -> None:
        """Change what else is stored of the run, all or nothing, while the lease is held.

        Args:
            work: Is given a connection, in a transaction, and the run's key in the tables.

        Raises:
            LeaseError: If the run was taken over, or this writer is closed.
            StoreUnavailableError: If the store cannot be written just now.
        """
        with self._lock:
            self._refuse_when_lost()
            with translated(self._engine):
                self._write(_RENEW, {"now": self._database.now_unix_s()}, work)
            self._refuse_when_lost()

    def close(self, *, gives_up: bool = False) -> None:
        """Give the lease back. From now on, others may write the run.

        Args:
            gives_up: Whether an unfinished run counts as lost at once, instead of after the lease's
                timeout.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._heart.join()
        with self._lock, translated(self._engine):
            try:
                if not self._lost:
                    release = _GIVE_UP if gives_up else _RELEASE
                    self._write(release, {"now": self._database.now_unix_s()})
            finally:
                self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An error inside matters more than a lease that cannot be given back. The lease ends by
        # itself.
        with contextlib.suppress(StoreError) if error is not None else contextlib.nullcontext():
            self.close(gives_up=error is not None)

    def _append(self, rows: list[_Row], state: RunStateChanged | None, after: int | None) -> int:
        connection = self._connect()
        try:
            if self._last_seq is None:
                self._last_seq = self._read_last_seq(connection)
            if not rows or (after is not None and self._last_seq > after):
                return self._last_seq
            change = state and {**self._held, "new_state": state.state, "now": state.time_unix_s}
            store = self._store_in_sqlite if self._engine.dialect.name == "sqlite" else self._store
            if not store(connection, self._last_seq + 1, rows, change):
                self._lost = True
                self._refuse_when_lost()
        except BaseException:
            # Only the database knows whether a failed commit reached the disk: query it next time.
            self._last_seq = None
            self._disconnect()
            raise
        self._last_seq = self._confirmed_seq = self._last_seq + len(rows)
        return self._last_seq

    def _read_last_seq(self, connection: Connection) -> int:
        """Return the number of the last event that is stored, while the lease is held."""
        # Locked: a commit with an unknown outcome may still be in progress on the server.
        held = sa.select(runs.c.lease_token).where(runs.c.key == self._run_key).with_for_update()
        token = connection.execute(held).scalar_one()
        # Another statement: the first one sees the events as they were before it waited for the
        # lock.
        last_seq = connection.execute(sa.select(last_seq_of(self._run_key))).scalar_one()
        connection.rollback()
        self._lost = token != self._held["held_token"]  # what is stored may be another writer's
        self._refuse_when_lost()
        return self._check_stored(int(last_seq))

    def _store(
        self,
        connection: Connection,
        first_seq: int,
        rows: list[_Row],
        change: dict[str, Any] | None,
    ) -> bool:
        """Store rows, and return whether the lease is held. Otherwise nothing is stored."""
        # Locks the row of the run, so that nobody takes the lease until the events are committed.
        renewal = {**self._held, "now": self._database.now_unix_s()}
        if connection.execute(_RENEW, renewal).rowcount == 0:
            return False
        named = [
            {
                "run_key": self._run_key,
                "seq": seq,
                "time": time_unix_s,
                "type": kind,
                "trial": trial,
                "payload": payload,
            }
            for seq, (time_unix_s, kind, trial, payload) in enumerate(rows, first_seq)
        ]
        connection.execute(_INSERT, named if len(named) > 1 else named[0])
        if change is not None:
            connection.execute(_CHANGE_STATE, change)
        self._database.notify_listeners(connection)
        connection.commit()
        self._renewed_s = time.monotonic()
        return True

    def _store_in_sqlite(
        self,
        connection: Connection,
        first_seq: int,
        rows: list[_Row],
        change: dict[str, Any] | None,
    ) -> bool:
        """Store rows like `_store`, but let the heart alone renew the lease.

        One page to write, not two.
        """
        database: Any = connection.connection.driver_connection
        key, token = self._run_key, self._held["held_token"]
        if len(rows) == 1:
            num_stored = database.execute(
                _INSERT_SQLITE, (key, first_seq, *rows[0], token)
            ).rowcount
        else:
            numbered = [(key, seq, *row, token) for seq, row in enumerate(rows, first_seq)]
            num_stored = database.executemany(_INSERT_SQLITE, numbered).rowcount
        if num_stored == 0:
            return False
        if change is not None:
            database.execute(_CHANGE_STATE_SQLITE, change)
        self._engine.dispatch.commit(connection)  # the checks before a commit of SQLAlchemy
        database.commit()
        return True

    def _check_stored(self, last_seq: int) -> int:
        """Return the number of the last stored event, and refuse to continue where some are
        gone.
        """
        if last_seq < self._confirmed_seq:
            raise StoreError(
                f"{self._database.place} has lost events of run {self.run_id}: it ends at event"
                f" {last_seq}, and {self._confirmed_seq} were stored",
                field="store",
                next_step="Look for who removed or replaced its files, then resume the run.",
            )
        return last_seq

    def _write(
        self, statement: sa.Update, values: dict[str, Any], work: _Work | None = None
    ) -> None:
        """Run one statement on the held row, and more if it is held.

        Notice when it is no longer.
        """
        connection = self._connect()
        try:
            held = connection.execute(statement, {**self._held, **values}).rowcount > 0
            if held and work is not None:
                work(connection, self._run_key)
            connection.commit()
        except BaseException:
            self._last_seq = None
            self._disconnect()
            raise
        self._lost = self._lost or not held
        self._renewed_s = time.monotonic()

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _refuse_when_lost(self) -> None:
        if self._lost:
            raise LeaseError(
                f"run {self.run_id} was taken over by another driver",
                next_step="Stop this one. Its events would be rejected.",
            )
        if self._closing.is_set():
            raise LeaseError(
                f"the writer of run {self.run_id} is closed", next_step="Take the lease again."
            )

    def _beat(self) -> None:
        period_s = self._lease_timeout_s / _HEARTBEATS_PER_TIMEOUT
        while not self._closing.wait(period_s) and not self._lost:
            # On a server every append renews the lease as well. Only a silent run needs heartbeats.
            if time.monotonic() - self._renewed_s < period_s / 2:
                continue
            with self._lock:
                try:
                    with translated(self._engine):
                        self._write(_RENEW, {"now": self._database.now_unix_s()})
                except StoreError:
                    continue


def _to_row(event: Event) -> _Row:
    return event.time_unix_s, event.type, getattr(event, "trial", None), to_json(event)


def take_lease(
    database: Database, run_id: str, *, owner_pid: int, owner_host: str, lease_timeout_s: float
) -> RunWriter:
    """Take the lease of a run that nobody holds, or whose holder is gone.

    Args:
        database: Where the run is.
        run_id: The run, in full.
        owner_pid: The process that will write.
        owner_host: The name of its machine.
        lease_timeout_s: Seconds without a heartbeat after which others may take it.

    Returns:
        The writer.

    Raises:
        LeaseError: If another process holds it.
        StoreUnavailableError: If the store cannot be written just now.
    """
    token, beat_unix_s = uuid.uuid4().hex, None
    while True:
        with translated(database.engine), database.engine.connect() as connection:
            row = connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).one()
            connection.rollback()
            now_unix_s = database.now_unix_s()
            # After a clock was set, a lease seems to have ended while its owner still renews it.
            is_renewed = row.lease_token is not None and beat_unix_s not in (
                None,
                row.heartbeat_unix_s,
            )
            if is_held(row, now_unix_s) or is_renewed:
                raise _held_by_another(row, now_unix_s)
            is_watched = beat_unix_s is None and _may_be_alive(row)
            if not is_watched:
                taken = _claim(row).values(
                    lease_token=token,
                    lease_timeout_s=lease_timeout_s,
                    heartbeat_unix_s=now_unix_s,
                    owner_pid=owner_pid,
                    owner_host=owner_host,
                    owner_process=describe_process(owner_pid),
                )
                if connection.execute(taken).rowcount:
                    connection.commit()
                    return RunWriter(
                        database,
                        run_id,
                        run_key=row.key,
                        token=token,
                        lease_timeout_s=lease_timeout_s,
                        predecessor=_predecessor(row, now_unix_s),
                    )
        if is_watched:
            beat_unix_s = row.heartbeat_unix_s
            time.sleep(_WATCHED_BEATS * row.lease_timeout_s / _HEARTBEATS_PER_TIMEOUT)


def _predecessor(row: Any, now_unix_s: float) -> Predecessor | None:
    """Return who held the lease of a run, from its row and the time by the clock of the store."""
    if row.heartbeat_unix_s is None:
        return None
    signed_unix_s = time.time() - (now_unix_s - row.heartbeat_unix_s)
    return Predecessor(row.owner_pid, signed_unix_s, was_left=row.lease_token is None)


def _claim(row: Any) -> sa.Update:
    # The heartbeat must be unchanged as well: an owner that woke up in between keeps its lease.
    return runs.update().where(
        runs.c.key == row.key,
        runs.c.lease_token.is_not_distinct_from(row.lease_token),
        runs.c.heartbeat_unix_s.is_not_distinct_from(row.heartbeat_unix_s),
    )


def is_held(row: Any, now_unix_s: float) -> bool:
    """Return whether the lease in the row of a run is held by a process that may be alive.

    A heartbeat in the future was sent before a clock was set back: its owner would have sent
    another one.
    """
    if row.lease_token is None or abs(now_unix_s - row.heartbeat_unix_s) > row.lease_timeout_s:
        return False
    return _may_be_alive(row)


def _may_be_alive(row: Any) -> bool:
    if row.lease_token is None:
        return False
    return not is_known_dead(row.owner_pid, row.owner_host, row.owner_process)


def _held_by_another(row: Any, now_unix_s: float) -> LeaseError:
    return LeaseError(
        f"run {row.run_id} is driven by process {row.owner_pid} on {row.owner_host}, "
        f"whose last heartbeat was {format_duration(now_unix_s - row.heartbeat_unix_s)} ago",
        next_step=(
            f"Follow it, or wait: its lease ends {row.lease_timeout_s:g} s after its last beat."
        ),
    )

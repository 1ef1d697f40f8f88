"""The writer of a run: takes its lease, renews it, and appends events.

The lease is a token in the run's row, and every write checks the token. If a writer is replaced
while its machine sleeps, it therefore writes nothing after it wakes up.
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
from workbench.foundation.processes import describe_process, is_known_dead
from workbench.store.database.connection import Database, translated
from workbench.store.database.tables import events, last_seq_of, runs

_HEARTBEATS_PER_TIMEOUT = 5

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
# As SQL text, because SQLAlchemy would double the time of such an insert.
_INSERT_SQLITE = (
    "INSERT INTO events (run_key, seq, time, type, trial, payload) SELECT ?1, ?2, ?3, ?4, ?5, ?6 "
    "WHERE EXISTS (SELECT 1 FROM runs WHERE key = ?1 AND lease_token = ?7)"
)
_CHANGE_STATE_SQLITE = str(_CHANGE_STATE.compile(dialect=sqlite.dialect(paramstyle="named")))
_Row = tuple[float, str, int | None, str]
"""The time, type, trial and payload of an event that will be stored."""
_Work = Callable[[Connection, int], None]


class Predecessor(NamedTuple):
    """The process that held the lease of a run before."""

    pid: int
    signed_unix_s: float
    """When it last gave a sign of life, by the clock of this machine."""
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
        """The previous holder of the lease, or None."""
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
        """Store events in this order, all or none.

        Args:
            *new_events: The events. A `RunStateChanged` also changes the run's state.
            after: The number of the event that they follow. If the run already has more events, an
                earlier call has stored them and only its answer was lost, so they are not stored
                again.

        Returns:
            The number of the last event of the run.

        Raises:
            LeaseError: If the run was taken over, or this writer is closed.
            StoreUnavailableError: If the store cannot be written now. If the connection was lost,
                the events may have been stored anyway. In that case, call it again only with
                `after`.
        """
        states = [event for event in new_events if isinstance(event, RunStateChanged)]
        rows = [_to_row(event) for event in new_events]
        with self._lock:
            self._refuse_when_lost()
            with translated(self._engine):
                return self._append(rows, states[-1] if states else None, after)

    def keep(self, work: _Work) -> None:
        """Change other stored data of the run in one transaction, while the lease is held.

        Args:
            work: Called with a connection in a transaction, and the run's key in the tables.

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
        """Give up the lease, so that others may write the run.

        Args:
            gives_up: Whether an unfinished run counts as lost at once, and not after the lease's
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
        # An error in the block matters more than an error here: the lease also ends by itself.
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
            # Only the database knows whether a failed commit reached the disk, so the next call
            # asks.
            self._last_seq = None
            self._disconnect()
            raise
        self._last_seq = self._confirmed_seq = self._last_seq + len(rows)
        return self._last_seq

    def _read_last_seq(self, connection: Connection) -> int:
        """Return the number of the last stored event, if the lease is still held."""
        # The lock waits for a commit with an unknown outcome that may still be in progress.
        held = sa.select(runs.c.lease_token).where(runs.c.key == self._run_key).with_for_update()
        token = connection.execute(held).scalar_one()
        # A second statement, because the first one still sees the events from before it waited.
        last_seq = connection.execute(sa.select(last_seq_of(self._run_key))).scalar_one()
        connection.rollback()
        self._lost = token != self._held["held_token"]  # the events may be another writer's
        self._refuse_when_lost()
        return self._check_stored(int(last_seq))

    def _store(
        self,
        connection: Connection,
        first_seq: int,
        rows: list[_Row],
        change: dict[str, Any] | None,
    ) -> bool:
        """Store rows if the lease is held, and return whether it is."""
        # This also locks the run's row, so nobody can take the lease until the events are
        # committed.
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
        """Store rows like `_store`, but leave the renewal of the lease to the heartbeat thread.

        That writes one page instead of two.
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
        self._engine.dispatch.commit(connection)  # runs the hooks of SQLAlchemy
        database.commit()
        return True

    def _check_stored(self, last_seq: int) -> int:
        """Return the number of the last stored event, or raise an error if some are missing."""
        if last_seq < self._confirmed_seq:
            raise StoreError(
                f"{self._database.place} has lost events of run {self.run_id}: the last one is"
                f" {last_seq}, but {self._confirmed_seq} were stored",
                field="store",
                next_step="Find out what removed or replaced its files, then resume the run.",
            )
        return last_seq

    def _write(
        self, statement: sa.Update, values: dict[str, Any], work: _Work | None = None
    ) -> None:
        """Run a statement on the run's row, then `work` if the lease is still held."""
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
            # In PostgreSQL, every append also renews the lease, so only silent runs need
            # heartbeats.
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
    """Take the lease of a run if nobody holds it or its holder is gone.

    Args:
        database: The database of the run.
        run_id: The full id of the run.
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
    watched_until_s: float | None = None
    while True:
        with translated(database.engine), database.engine.connect() as connection:
            row = connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).one()
            connection.rollback()
            now_unix_s = database.now_unix_s()
            # If a clock was set, a lease may seem to have ended although its owner still renews it.
            # So an expired lease is watched for its whole time, by a clock that nobody sets. A busy
            # machine may send its heartbeats late, but never later than that.
            is_renewed = row.lease_token is not None and beat_unix_s not in (
                None,
                row.heartbeat_unix_s,
            )
            if is_held(row, now_unix_s) or is_renewed:
                raise _held_by_another(row, now_unix_s)
            is_watched = _may_be_alive(row) and (
                watched_until_s is None or time.monotonic() < watched_until_s
            )
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
            if watched_until_s is None:
                watched_until_s = time.monotonic() + row.lease_timeout_s
            time.sleep(row.lease_timeout_s / _HEARTBEATS_PER_TIMEOUT)


def _predecessor(row: Any, now_unix_s: float) -> Predecessor | None:
    """Return the previous holder of a lease, from the run's row and the time of the store."""
    if row.heartbeat_unix_s is None:
        return None
    signed_unix_s = time.time() - (now_unix_s - row.heartbeat_unix_s)
    return Predecessor(row.owner_pid, signed_unix_s, was_left=row.lease_token is None)


def _claim(row: Any) -> sa.Update:
    # The heartbeat must also be unchanged: an owner that wakes up in between keeps its lease.
    return runs.update().where(
        runs.c.key == row.key,
        runs.c.lease_token.is_not_distinct_from(row.lease_token),
        runs.c.heartbeat_unix_s.is_not_distinct_from(row.heartbeat_unix_s),
    )


def is_held(row: Any, now_unix_s: float) -> bool:
    """Return whether a run's lease is held by a process that may be alive.

    A heartbeat in the future was sent before a clock was set back. Its owner would have sent
    another one since.
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
            f"Follow it, or wait: its lease ends {row.lease_timeout_s:g} s after its last"
            " heartbeat."
        ),
    )

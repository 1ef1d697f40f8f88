"""The store: its runs, their experiments, events, commands and leases, and how a run is deleted.

Labels of runs, machine samples and blocks of events are in separate modules, which use `find`,
`fetch` and `transaction`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError
from typing_extensions import Self

from workbench.experiment import Experiment
from workbench.experiment.experiment import read_stored, write_stored
from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import (
    ArtifactsError,
    ExperimentError,
    RunError,
    RunNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from workbench.foundation.events import FINISHED_RUN_STATES, from_json
from workbench.foundation.formatting import format_bytes, format_count
from workbench.foundation.outside_text import storable_name
from workbench.foundation.processes import describe_process
from workbench.store.database.connection import Database, connect, translated
from workbench.store.database.notifications import Listener, Notifications
from workbench.store.database.rows import (
    NEWEST,
    Command,
    EventRow,
    RunRow,
    StoredEvent,
    check_run_id,
    count_ticks,
    hint,
    make_run_id,
    to_run,
)
from workbench.store.database.run_files import read_objects, write_objects
from workbench.store.database.run_writer import RunWriter, is_held, take_lease
from workbench.store.database.tables import (
    blocks,
    commands,
    energy,
    events,
    last_seq_of,
    runs,
    samples,
    select_events,
)
from workbench.store.database.urls import resolve_url, usual_artifacts

LEASE_TIMEOUT_S = 15.0
_CHUNK_EVENTS = 20_000
_ROW_COLUMNS: list[sa.ColumnElement[Any]] = [
    last_seq_of(runs.c.key),
    *(column for column in runs.c if column.name not in ("experiment", "last_seq")),
]
_ROWS = sa.select(*_ROW_COLUMNS)
_OF_RUN = _ROWS.where(runs.c.run_id == sa.bindparam("run_id"))
"""Nearly every call looks up its run, and making a query takes longer than running it."""
_NUM_FIRST = 8
_IS_ADVICE = sa.exists().where(
    events.c.run_key == runs.c.key, events.c.seq <= _NUM_FIRST, events.c.type == "advice_requested"
)
"""A run of advice starts with its request, so only the first events are read."""
_IS_IMPORTED = sa.exists().where(
    events.c.run_key == runs.c.key, events.c.seq <= _NUM_FIRST, events.c.type == "runs_imported"
)
_IS_FAILED_START = (runs.c.state == "failed") & ~sa.exists().where(
    events.c.run_key == runs.c.key, events.c.type == "trial_started"
)
"""A run without trials has nothing to show, and its command has already said why."""
_MAX_LISTED = 10
"""How many runs are listed if a name or the start of a run id matches several."""
_ALIVE = ("waiting", "running", "stopping")


_AGENT: ContextVar[str] = ContextVar("agent", default="")
_BY = "_by"


@contextlib.contextmanager
def acting_as(agent: str) -> Iterator[None]:
    """Let the commands of this thread carry the name of an agent, which events then show.

    Args:
        agent: Its name.
    """
    token = _AGENT.set(agent)
    try:
        yield
    finally:
        _AGENT.reset(token)


def _to_command(row: Any) -> Command:
    arguments = json.loads(row.arguments)
    agent = arguments.pop(_BY, "")
    return Command(row.number, row.kind, arguments, row.time, agent)


class Store:
    """The runs of a user or a team, with all their events, in one database.

    Every method may be called from any thread.
    """

    def __init__(self, database: Database, artifacts: Artifacts) -> None:
        """Use an open database. Usually you call `Store.open` instead.

        Args:
            database: A database of the newest schema.
            artifacts: The place in which each run has its own folder.
        """
        self.url = database.url.render_as_string(hide_password=False)
        """The URL with which another process opens it, including its password."""
        self.place = database.place
        """Its place, for messages."""
        self.artifacts = artifacts
        self.database = database
        """The open database, for modules that store other data."""
        self._engine = database.engine
        self._notifications = Notifications(database)
        self._deaf_unix_s = -math.inf
        self._renewals = _Renewals()

    @classmethod
    def open(cls, url: str | None = None, artifacts: str | Path | None = None) -> Self:
        """Open a store. It is created, or its schema updated, if needed.

        Args:
            url: A SQLAlchemy URL or the path of a SQLite file. None means WORKBENCH_STORE, or the
                user's default store.
            artifacts: A path or URL for the files of runs, such as `s3://bucket/runs`. None means
                WORKBENCH_ARTIFACTS, or a folder next to the SQLite file or in the user's data.

        Raises:
            StoreError: If it is not a store, damaged, or newer than this version.
            StoreUnavailableError: If it cannot be reached or written.
            ArtifactsError: If the place of the artifacts is not valid.

        Example:
            >>> store = wb.Store.open("runs.sqlite")
        """
        resolved = resolve_url(url)
        location = artifacts or os.environ.get("WORKBENCH_ARTIFACTS") or usual_artifacts(resolved)
        return cls(connect(resolved), open_artifacts(location))

    def close(self) -> None:
        """Close the connections. Close writers first."""
        self._notifications.close()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_run(self, experiment: Experiment, *, run_id: str | None = None) -> str:
        """Store a new run that waits for a driver, and the objects embedded in its experiment.

        Args:
            experiment: The experiment of the run.
            run_id: Its id in the store. By default it is made from the experiment's name and the
                time.

        Returns:
            The run id. Later runs of the same name sort after earlier ones.

        Raises:
            StoreError: If the run id already exists or cannot name a folder.
            ArtifactsError: If the embedded objects cannot be written.
        """
        if run_id is not None:
            check_run_id(run_id)
        now = time.time()
        ticks = count_ticks(now)
        row = {
            "name": experiment.name,
            "experiment": write_stored(experiment),
            "experiment_hash": experiment.hash(),
            "created_unix_s": now,
            "state": "waiting",
            "changed_unix_s": now,
            "last_seq": 0,
            "last_command": 0,
            # The creator owns the run until a driver takes it. It is not lost while its creator
            # lives.
            "owner_pid": os.getpid(),
            "owner_host": socket.gethostname(),
            "owner_process": describe_process(os.getpid()),
        }
        self.artifacts.claim()
        while True:
            chosen = run_id or make_run_id(experiment.name, ticks)
            try:
                with self.transaction() as connection:
                    connection.execute(runs.insert(), {**row, "run_id": chosen})
                    # Before the commit, so that a run that can be seen has its objects.
                    write_objects(self.artifacts.below(chosen), experiment.payloads())
                return chosen
            except StoreError as error:
                if not isinstance(error.__cause__, IntegrityError):
                    raise
                if run_id is not None:
                    raise StoreError(
                        f"run {run_id} already exists",
                        field="run_id",
                        next_step="Choose another run id.",
                    ) from error
                ticks += 1

    def run(self, run_id: str) -> RunRow:
        """Find one run.

        Args:
            run_id: A run id, the name of one run, the start of exactly one run id, or "last". The
                last run is the newest one that is not advice. Runs that failed before their first
                trial count only if there are no others.

        Raises:
            RunNotFoundError: If there is no such run, or more than one. Similar ones are listed.
        """
        return self._to_run(self.find(run_id))

    def runs(self, limit: int | None = None) -> list[RunRow]:
        """Return the runs, newest first.

        Args:
            limit: Maximum number of runs.
        """
        query = _ROWS.order_by(runs.c.key.desc()).limit(limit)
        return [self._to_run(row) for row in self.fetch(query)]

    def advice_ids(self) -> frozenset[str]:
        """Return the ids of all runs of advice."""
        return frozenset(
            row.run_id for row in self.fetch(sa.select(runs.c.run_id).where(_IS_ADVICE))
        )

    def imported_ids(self) -> list[str]:
        """Return the ids of all runs that other tools have run, newest first."""
        query = sa.select(runs.c.run_id).where(_IS_IMPORTED).order_by(runs.c.key.desc())
        return [row.run_id for row in self.fetch(query)]

    def experiment(self, run_id: str) -> Experiment:
        """Return the experiment of a run, with its embedded objects.

        Raises:
            RunNotFoundError: If there is no such run.
            RunError: If an embedded object has changed since it was stored.
            StoreError: If this version cannot read the experiment.
        """
        row = self.find(run_id)
        query = sa.select(runs.c.experiment).where(runs.c.key == row.key)
        try:
            experiment = read_stored(self.fetch(query)[0][0])
        except ExperimentError as error:
            raise StoreError(
                f"the experiment of run {row.run_id} cannot be read by this version: {error}",
                next_step="A newer version of the workbench may have written it: update this one.",
            ) from error
        # Only a training needs the objects, and it reports those that are missing.
        with contextlib.suppress(ArtifactsError):
            objects = read_objects(self.artifacts.below(row.run_id), experiment.payload_hashes())
            return experiment.with_payloads(objects)
        return experiment

    def artifacts_of(self, run_id: str) -> Artifacts:
        """Return the place of a run's files.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        return self.artifacts.below(self.find(run_id).run_id)

    def folder(self, run_id: str) -> Path:
        """Return the folder of a run's logs, and of its artifacts if they are local.

        Raises:
            RunNotFoundError: If there is no such run.
            ArtifactsError: If it cannot be made.
        """
        folder = self.artifacts_of(run_id).working_folder
        open_artifacts(folder).prepare()
        return folder

    def events(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        trial: int | Collection[int] | None = None,
        types: Collection[str] | None = None,
    ) -> list[StoredEvent]:
        """Return the events of a run in their order.

        Args:
            run_id: The run.
            after: Only events with a greater number.
            limit: How many at most.
            trial: Only events of this trial, or of these trials.
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
        trial: int | Collection[int] | None = None,
        types: Collection[str] | None = None,
        chunk_events: int = _CHUNK_EVENTS,
    ) -> Iterator[list[EventRow]]:
        """Read the events of a run in chunks of plain tuples, which is fast for a million events.

        Args:
            run_id: The run.
            after: Only events with a greater number.
            limit: Maximum number of events.
            trial: Only events of this trial, or of these trials.
            types: Only events of these types.
            chunk_events: Maximum number of events in a chunk. Each chunk is one short read.

        Yields:
            Non-empty lists of (seq, type, trial, time in Unix seconds, payload as JSON text).

        Raises:
            RunNotFoundError: If there is no such run.
        """
        query = select_events(self.find(run_id).key, trial, types)
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
        """Yield the events of a run as they arrive, until it is finished or lost.

        Args:
            run_id: The run.
            after: Only events with a greater number.
            poll_s: Seconds between polls. It may be longer if the database sends notifications.
            until: Called whenever there is nothing new. Following stops when it returns true.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        run_id = self.find(run_id).run_id
        with self.listen() as listener:
            while True:
                # The state is read before the events, so no event of a finished run is missed. Only
                # the outcomes of its last alerts may follow.
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
        """Return a listener that waits for new events of any run until it is closed."""
        return self._notifications.listen()

    def command(self, run_id: str, kind: str, arguments: Mapping[str, Any]) -> int:
        """Leave a command for the driver of a run.

        Args:
            run_id: The run.
            kind: Name of the command.
            arguments: Its arguments, as JSON values.

        Returns:
            Its number, counted from 1 in each run.

        Raises:
            RunNotFoundError: If there is no such run.
            StoreUnavailableError: If the store cannot be written just now.
        """
        key = self.find(run_id).key
        sent = dict(arguments)
        if agent := _AGENT.get():
            sent[_BY] = agent
        with self.transaction() as connection:
            connection.execute(
                runs.update().where(runs.c.key == key).values(last_command=runs.c.last_command + 1)
            )
            number = connection.execute(
                sa.select(runs.c.last_command).where(runs.c.key == key)
            ).scalar_one()
            row = {"run_key": key, "number": number, "time": time.time(), "kind": kind}
            connection.execute(commands.insert(), {**row, "arguments": json.dumps(sent)})
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
            .where(commands.c.run_key == self.find(run_id).key, commands.c.number > after)
            .order_by(commands.c.number)
        )
        return [_to_command(row) for row in self.fetch(query)]

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
            lease_timeout_s: Seconds without a heartbeat after which another process may take over.

        Raises:
            RunNotFoundError: If there is no such run.
            LeaseError: If another process writes it.
        """
        return take_lease(
            self.database,
            self.find(run_id).run_id,
            owner_pid=owner_pid,
            owner_host=owner_host,
            lease_timeout_s=lease_timeout_s,
        )

    def is_driven(self, run_id: str) -> bool:
        """Return whether a process that may be alive holds the lease of a run.

        Args:
            run_id: The run.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        return is_held(self.find(run_id), self.database.now_unix_s())

    def find(self, run_id: str) -> Any:
        """Return the row of a run, with the number of its last event. See `run` for the argument.

        Raises:
            RunNotFoundError: If there is none, or more than one.
        """
        # Some texts, such as NUL characters, cannot even be used in a query.
        run_id = storable_name(run_id)
        matching = self._matching(run_id)
        if len(matching) == 1:
            return matching[0]
        if matching:
            is_name = matching[0].name == run_id
            step = "Give more characters of the run id."
            if is_name:
                step = "Give a run id, or last for the newest run."
            raise RunNotFoundError(
                f"{run_id!r} {'is the name of' if is_name else 'is the start of'} several runs: "
                f"{', '.join(row.run_id for row in matching)}",
                next_step=step,
            )
        rows = self.fetch(sa.select(runs.c.run_id).order_by(runs.c.key.desc()))
        raise RunNotFoundError(
            f"there is no run {run_id!r} in {self.place}",
            next_step=hint(run_id, [row.run_id for row in rows]),
        )

    def fetch(self, query: sa.Select[Any], **parameters: Any) -> list[Any]:
        """Return the rows of a query.

        Args:
            query: The query.
            parameters: Values of its bound parameters, by name.

        Raises:
            StoreUnavailableError: If the store cannot be read just now.
        """
        try:
            with translated(self._engine), self._engine.connect() as connection:
                return list(connection.execute(query, parameters))
        except StoreUnavailableError:
            self._deaf_unix_s = self.database.now_unix_s()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Return a connection whose changes are committed at the end of the block, all or none.

        Raises:
            StoreUnavailableError: If the store cannot be written just now.
        """
        with translated(self._engine), self._engine.begin() as connection:
            yield connection

    def _matching(self, run_id: str) -> list[Any]:
        """Return the rows that match a run id, a name, the start of a run id or "last"."""
        if run_id in NEWEST:
            newest = _ROWS.order_by(runs.c.key.desc()).limit(1)
            candidates = (
                newest.where(~_IS_ADVICE, ~_IS_FAILED_START),
                newest.where(~_IS_ADVICE),
                newest,
            )
        else:
            exact = self.fetch(_OF_RUN, run_id=run_id)
            if exact or not run_id:  # every run id starts with an empty text
                return exact
            named = _ROWS.where(runs.c.name == run_id).order_by(runs.c.key.desc())
            begun = _ROWS.where(runs.c.run_id.startswith(run_id, autoescape=True))
            candidates = (named.limit(_MAX_LISTED), begun.limit(_MAX_LISTED))
        for candidate in candidates:
            if rows := self.fetch(candidate):
                return rows
        return []

    def _to_run(self, row: Any) -> RunRow:
        was_renewed = self._renewals.saw(row)
        return to_run(row, self.database.now_unix_s(), self._deaf_unix_s, was_renewed=was_renewed)


class _Renewals:
    """When this process last saw the heartbeat of each run change, by the monotonic clock.

    A heartbeat is a time of day. If the clock of a machine is set, a live driver seems to be
    silent, or its heartbeat is in the future. A process that has watched it change knows better.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._seen: dict[int, tuple[float | None, float | None]] = {}

    def saw(self, row: Any) -> bool:
        """Note the row of a run, and return whether its lease was renewed within its timeout.

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


@dataclass(frozen=True)
class RunSize:
    """The space that a run takes up."""

    num_files: int
    files_bytes: int
    num_events: int
    stored_bytes: int
    """Bytes of its events and of the samples of machines."""

    def describe(self) -> str:
        """Describe the size in words."""
        files = f"{format_count(self.num_files, 'file')} of {format_bytes(self.files_bytes)}"
        stored = (
            f"{format_count(self.num_events, 'event')} of {format_bytes(self.stored_bytes)} in the"
            " store"
        )
        return f"{files}, and {stored}"


def measure_run(store: Store, run_id: str) -> RunSize:
    """Return the space that a run takes up.

    Raises:
        RunNotFoundError: If there is no such run.
        ArtifactsError: If its files cannot be listed.
    """
    row = store.find(run_id)
    sizes = [
        size for artifacts in _places(store, row.run_id) for size in artifacts.sizes().values()
    ]
    num_events, stored_bytes = _measure_texts(store, events, row.key)
    _, sampled_bytes = _measure_texts(store, samples, row.key)
    return RunSize(len(sizes), sum(sizes), num_events, stored_bytes + sampled_bytes)


def _measure_texts(store: Store, table: sa.Table, run_key: int) -> tuple[int, int]:
    """Return how many rows a run has in a table, and the total length of their texts."""
    length = sa.func.coalesce(sa.func.sum(sa.func.length(table.c.payload)), 0)
    query: Any = sa.select(sa.func.count(), length).where(table.c.run_key == run_key)
    ((count, num_bytes),) = store.fetch(query)
    return int(count), int(num_bytes)


def delete_run(store: Store, run_id: str) -> RunSize:
    """Delete a run: its files, and all of its data in the store.

    Args:
        store: The store.
        run_id: The run.

    Returns:
        The space that it took up.

    Raises:
        RunNotFoundError: If there is no such run.
        RunError: If it is active.
        LeaseError: If a process is writing it.
        ArtifactsError: If its files cannot be removed. The run is kept.
    """
    row = store.run(run_id)
    refuse_under_way(row)
    size = measure_run(store, row.run_id)
    owner = {"owner_pid": os.getpid(), "owner_host": socket.gethostname()}
    # Under the lease, so that no driver resumes the run meanwhile.
    with store.writer(row.run_id, **owner, lease_timeout_s=LEASE_TIMEOUT_S) as writer:
        for artifacts in _places(store, row.run_id):
            artifacts.delete("")
        writer.keep(_delete_rows)
    return size


def refuse_under_way(row: RunRow) -> None:
    """Raise an error if a run has not ended, so it cannot be deleted.

    Raises:
        RunError: If it is waiting, running or stopping.
    """
    if row.state in _ALIVE:
        raise RunError(
            f"run {row.run_id} is {row.state}, so it cannot be deleted",
            next_step="Stop it, and wait until it has ended.",
        )


def _places(store: Store, run_id: str) -> list[Artifacts]:
    artifacts = store.artifacts_of(run_id)
    working = open_artifacts(artifacts.working_folder)
    if artifacts.is_local:
        return [artifacts]
    return [artifacts, working]


def _delete_rows(connection: Connection, run_key: int) -> None:
    for table in (blocks, events, commands, samples, energy):
        connection.execute(table.delete().where(table.c.run_key == run_key))
    connection.execute(runs.delete().where(runs.c.key == run_key))

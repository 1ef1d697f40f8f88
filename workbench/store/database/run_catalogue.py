"""The runs of a store: open it, create runs, find them, and read what they execute.

What happens in a run is left to `store`, which adds it; names, tags and notes of runs to `labels`,
deleting them to `removal`.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from typing_extensions import Self

from workbench.experiment import Experiment
from workbench.experiment.stored import read_stored, write_stored
from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import (
    ArtifactsError,
    ExperimentError,
    RunNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from workbench.foundation.outside_text import storable_name
from workbench.store.database.connection import Database, connect, translated
from workbench.store.database.notifications import Notifications
from workbench.store.database.objects import read_objects, write_objects
from workbench.store.database.owner_process import describe_process
from workbench.store.database.renewals import Renewals
from workbench.store.database.rows import RunRow, to_run
from workbench.store.database.run_ids import NEWEST, check_run_id, count_ticks, hint, make_run_id
from workbench.store.database.tables import events, last_seq_of, runs
from workbench.store.database.urls import resolve_url, usual_artifacts

_ROW_COLUMNS: list[sa.ColumnElement[Any]] = [
    last_seq_of(runs.c.key),
    *(column for column in runs.c if column.name not in ("experiment", "last_seq")),
]
_NUM_FIRST = 8
_IS_ADVICE = sa.exists().where(
    events.c.run_key == runs.c.key, events.c.seq <= _NUM_FIRST, events.c.type == "advice_requested"
)
"""Advice begins with the request for it, so only the first events are read."""
_IS_FAILED_START = (runs.c.state == "failed") & ~sa.exists().where(
    events.c.run_key == runs.c.key, events.c.type == "trial_started"
)
"""Where nothing was tried, there is nothing to look at: the command has shown why."""
_MAX_LISTED = 10
"""How many runs are listed of those that a name or a beginning may mean."""


class RunCatalogue:
    """The runs of a user or a team, in one database; every method may be called from any thread."""

    def __init__(self, database: Database, artifacts: Artifacts) -> None:
        """Use an open database; `Store.open` is the usual way.

        Args:
            database: A database of the newest schema.
            artifacts: The place under which each run has its own folder.
        """
        self.url = database.url.render_as_string(hide_password=False)
        """What another process needs to open it, including its password."""
        self.place = database.place
        """Where it is, as it may be shown."""
        self.artifacts = artifacts
        self._database = database
        self._engine = database.engine
        self._notifications = Notifications(database)
        self._deaf_unix_s = -math.inf
        self._renewals = Renewals()

    @classmethod
    def open(cls, url: str | None = None, artifacts: str | Path | None = None) -> Self:
        """Open a store, creating it or bringing its schema up to date where needed.

        Args:
            url: A SQLAlchemy URL or the path of a SQLite file; None for WORKBENCH_STORE or the
                user's own.
            artifacts: A path or URL for files of runs, such as `s3://bucket/runs`; None for
                WORKBENCH_ARTIFACTS, or a folder beside the SQLite file or in the user's data.

        Raises:
            StoreError: If it is no store, damaged, or newer than this version.
            StoreUnavailableError: If it cannot be reached or written.
            ArtifactsError: If the place of the artifacts cannot be meant.

        Example:
            >>> store = wb.Store.open("runs.sqlite")
        """
        resolved = resolve_url(url)
        place = artifacts or os.environ.get("WORKBENCH_ARTIFACTS") or usual_artifacts(resolved)
        return cls(connect(resolved), open_artifacts(place))

    def close(self) -> None:
        """Close the connections; writers must be closed before."""
        self._notifications.close()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_run(self, experiment: Experiment, *, run_id: str | None = None) -> str:
        """Store a new run, waiting for a driver, and the objects embedded in its experiment.

        Args:
            experiment: What it will execute.
            run_id: Its name in the store; the default is made of the experiment's name and the
                time.

        Returns:
            The run id: later runs of the same name sort behind earlier ones.

        Raises:
            StoreError: If the run id exists already or cannot name a folder.
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
            # Until a driver takes it: while its creator lives, it is not lost.
            "owner_pid": os.getpid(),
            "owner_host": socket.gethostname(),
            "owner_process": describe_process(os.getpid()),
        }
        self.artifacts.claim()
        while True:
            chosen = run_id or make_run_id(experiment.name, ticks)
            try:
                with translated(self._engine), self._engine.begin() as connection:
                    connection.execute(runs.insert(), {**row, "run_id": chosen})
                    # Before the commit: a run that can be seen has its objects.
                    write_objects(self.artifacts.below(chosen), experiment.payloads())
                return chosen
            except StoreError as error:
                if not isinstance(error.__cause__, IntegrityError):
                    raise
                if run_id is not None:
                    raise StoreError(
                        f"run {run_id} exists already", field="run_id", next_step="Choose another."
                    ) from error
                ticks += 1

    def run(self, run_id: str) -> RunRow:
        """Find one run.

        Args:
            run_id: A run id, the name of one run, a beginning that only one run id has, or "last":
                the newest run that tries configurations, and not one that failed before its first
                trial where there is another; advice, where there is no other run.

        Raises:
            RunNotFoundError: If there is none, or more than one; near ones are listed.
        """
        return self._to_run(self._find(run_id))

    def runs(self, limit: int | None = None) -> list[RunRow]:
        """Return the runs, newest first.

        Args:
            limit: How many at most.
        """
        query = sa.select(*_ROW_COLUMNS).order_by(runs.c.key.desc()).limit(limit)
        return [self._to_run(row) for row in self._fetch(query)]

    def advice_ids(self) -> frozenset[str]:
        """Return the ids of the runs that are advice."""
        return frozenset(
            row.run_id for row in self._fetch(sa.select(runs.c.run_id).where(_IS_ADVICE))
        )

    def experiment(self, run_id: str) -> Experiment:
        """Return what a run executes, with its embedded objects.

        Raises:
            RunNotFoundError: If there is no such run.
            RunError: If the bytes of an embedded object are not those that were stored.
            StoreError: If this version cannot read the experiment.
        """
        row = self._find(run_id)
        try:
            found = read_stored(
                self._fetch(sa.select(runs.c.experiment).where(runs.c.key == row.key))[0][0]
            )
        except ExperimentError as error:
            raise StoreError(
                f"the experiment of run {row.run_id} cannot be read by this version: {error}",
                next_step="A newer version of the workbench may have written it: update this one.",
            ) from error
        # Readers of a run need none of them; in training, loading reports those that are missing.
        with contextlib.suppress(ArtifactsError):
            objects = read_objects(self.artifacts.below(row.run_id), found.payload_hashes())
            return found.with_payloads(objects)
        return found

    def artifacts_of(self, run_id: str) -> Artifacts:
        """Return the place of a run's files.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        return self.artifacts.below(self._find(run_id).run_id)

    def folder(self, run_id: str) -> Path:
        """Return where this machine keeps a run's logs, and its artifacts where they lie on this
        machine.

        Raises:
            RunNotFoundError: If there is no such run.
            ArtifactsError: If it cannot be made.
        """
        folder = self.artifacts_of(run_id).working_folder
        open_artifacts(folder).prepare()
        return folder

    def _find(self, run_id: str) -> Any:
        run_id = storable_name(
            run_id
        )  # no run has such a name, but no database could even be queried for it
        query = sa.select(*_ROW_COLUMNS)
        if run_id in NEWEST:
            newest = query.order_by(runs.c.key.desc()).limit(1)
            found = (
                self._fetch(newest.where(~_IS_ADVICE, ~_IS_FAILED_START))
                or self._fetch(newest.where(~_IS_ADVICE))
                or self._fetch(newest)
            )
        else:
            found = self._fetch(query.where(runs.c.run_id == run_id))
        if not found and run_id:
            named = query.where(runs.c.name == run_id).order_by(runs.c.key.desc())
            begun = query.where(runs.c.run_id.startswith(run_id, autoescape=True))
            found = self._fetch(named.limit(_MAX_LISTED)) or self._fetch(begun.limit(_MAX_LISTED))
        if len(found) == 1:
            return found[0]
        if found:
            is_name = found[0].name == run_id
            raise RunNotFoundError(
                f"{run_id!r} {'is the name of' if is_name else 'begins'} several runs: "
                f"{', '.join(row.run_id for row in found)}",
                next_step=(
                    "Give a run id, or last for the newest run."
                    if is_name
                    else "Give more of the run id."
                ),
            )
        known = [
            row.run_id for row in self._fetch(sa.select(runs.c.run_id).order_by(runs.c.key.desc()))
        ]
        raise RunNotFoundError(
            f"there is no run {run_id!r} in {self.place}", next_step=hint(run_id, known)
        )

    def _to_run(self, row: Any) -> RunRow:
        was_renewed = self._renewals.saw(row)
        return to_run(row, self._database.now_unix_s(), self._deaf_unix_s, was_renewed=was_renewed)

    def _fetch(self, query: sa.Select[Any]) -> list[Any]:
        try:
            with translated(self._engine), self._engine.connect() as connection:
                return list(connection.execute(query))
        except StoreUnavailableError:
            self._deaf_unix_s = self._database.now_unix_s()
            raise

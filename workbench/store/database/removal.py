"""Delete a run with all of its stored data, and measure how much space that frees."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import RunError
from workbench.foundation.formatting import format_bytes, format_count
from workbench.store.database.rows import RunRow
from workbench.store.database.store import LEASE_TIMEOUT_S, Store
from workbench.store.database.tables import blocks, commands, energy, events, runs, samples

_ALIVE = ("waiting", "running", "stopping")


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
        kept = (
            f"{format_count(self.num_events, 'event')} of {format_bytes(self.stored_bytes)} in the"
            " store"
        )
        return f"{files}, and {kept}"


def measure_run(store: Store, run_id: str) -> RunSize:
    """Return the space that a run takes up.

    Raises:
        RunNotFoundError: If there is no such run.
        ArtifactsError: If its files cannot be listed.
    """
    row = store.find(run_id)
    sizes = [size for place in _places(store, row.run_id) for size in place.sizes().values()]
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
        for place in _places(store, row.run_id):
            place.delete("")
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

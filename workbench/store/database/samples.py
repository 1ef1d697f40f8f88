"""Stored data of a run other than its events: machine samples, energy of trials, blocks of events.

A sample is a text for a node, a time and a span. Callers decide on the content of samples and how
long they are kept. Only the writer of the run can store them, and any process can read them.

A block is a range of events, stored a second time in a form that is read quickly. It is only bytes
here. The events are always kept: if a block is missing, they are read instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from workbench.store.database.run_writer import RunWriter
from workbench.store.database.store import Store
from workbench.store.database.tables import blocks, energy, samples


class SampleRow(NamedTuple):
    """A stored sample or rollup of a machine."""

    span_s: int
    """Its length in seconds, or 0 for a single sample."""
    time_unix_s: float
    """Its start by the clock of the driver, the same for all nodes of one round."""
    node: str
    payload: str


class EnergyRow(NamedTuple):
    """The energy that a trial used in joules, or None if unknown."""

    trial: int
    gpu_j: float | None
    cpu_j: float | None


def keep_samples(
    writer: RunWriter, new: Collection[SampleRow] = (), used: Collection[EnergyRow] = ()
) -> None:
    """Store samples, and the energy of trials so far, in one transaction.

    Args:
        writer: The writer of the run.
        new: The samples.
        used: The energy of the trials for which it has changed.
    """

    def work(connection: Connection, run_key: int) -> None:
        _insert(connection, run_key, new)
        if used:
            trials = [row.trial for row in used]
            connection.execute(
                energy.delete().where(energy.c.run_key == run_key, energy.c.trial.in_(trials))
            )
            connection.execute(
                energy.insert(), [{"run_key": run_key, **row._asdict()} for row in used]
            )

    if new or used:
        writer.keep(work)


def replace_samples(
    writer: RunWriter, before: Mapping[int, tuple[float, float]], new: Collection[SampleRow]
) -> None:
    """Replace samples with others.

    Args:
        writer: The writer of the run.
        before: For each span, the start and end of the time whose samples are deleted.
        new: The samples to store instead.
    """

    def work(connection: Connection, run_key: int) -> None:
        for span_s, (since, until) in before.items():
            connection.execute(samples.delete().where(*_between(run_key, span_s, since, until)))
        _insert(connection, run_key, new)

    writer.keep(work)


def read_samples(
    store: Store,
    run_id: str,
    *,
    span_s: int = 0,
    since_unix_s: float = 0.0,
    until_unix_s: float | None = None,
) -> list[SampleRow]:
    """Return samples of a run, oldest first.

    Args:
        store: The store.
        run_id: The run.
        span_s: Only samples of this length.
        since_unix_s: Only samples that start at this time or later.
        until_unix_s: Only samples that start before this time.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    where = _between(store.find(run_id).key, span_s, since_unix_s, until_unix_s)
    return _rows(store, sa.select(samples).where(*where).order_by(samples.c.time, samples.c.node))


def read_newest_samples(store: Store, run_id: str) -> list[SampleRow]:
    """Return the newest sample of each node.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    snapshots = (samples.c.run_key == store.find(run_id).key) & (samples.c.span_s == 0)
    newest = sa.select(sa.func.max(samples.c.time)).where(snapshots).scalar_subquery()
    return _rows(
        store,
        sa.select(samples).where(snapshots, samples.c.time == newest).order_by(samples.c.node),
    )


def read_energy(store: Store, run_id: str) -> list[EnergyRow]:
    """Return the energy of a run's metered trials.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    where = energy.c.run_key == store.find(run_id).key
    rows = store.fetch(sa.select(energy).where(where).order_by(energy.c.trial))
    return [EnergyRow(row.trial, row.gpu_j, row.cpu_j) for row in rows]


def _between(run_key: int, span_s: int, since: float, until: float | None) -> Sequence[Any]:
    where = [samples.c.run_key == run_key, samples.c.span_s == span_s, samples.c.time >= since]
    if until is None:
        return where
    return [*where, samples.c.time < until]


def _insert(connection: Connection, run_key: int, new: Collection[SampleRow]) -> None:
    if new:
        rows = [
            {
                "run_key": run_key,
                "span_s": row.span_s,
                "time": row.time_unix_s,
                "node": row.node,
                "payload": row.payload,
            }
            for row in new
        ]
        connection.execute(samples.insert(), rows)


def _rows(store: Store, query: sa.Select[Any]) -> list[SampleRow]:
    return [SampleRow(row.span_s, row.time, row.node, row.payload) for row in store.fetch(query)]


class Block(NamedTuple):
    """A range of events."""

    first_seq: int
    last_seq: int
    payload: bytes


def keep_block(writer: RunWriter, block: Block) -> None:
    """Store a block after the existing ones.

    Args:
        writer: The writer of the run.
        block: The block. Its events must be stored already.
    """

    def work(connection: Connection, run_key: int) -> None:
        connection.execute(blocks.insert(), {"run_key": run_key, **block._asdict()})

    writer.keep(work)


def read_block(store: Store, run_id: str, after: int) -> Block | None:
    """Return the block that starts right after an event, or None.

    Args:
        store: The store.
        run_id: The run.
        after: The number of the event, or 0 for the start of the run.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    key = store.find(run_id).key
    rows = store.fetch(
        sa.select(blocks).where(blocks.c.run_key == key, blocks.c.first_seq == after + 1)
    )
    if rows:
        return Block(rows[0].first_seq, rows[0].last_seq, bytes(rows[0].payload))
    return None


def next_block_seq(store: Store, run_id: str, after: int) -> int | None:
    """Return the number of the first event of the next block after an event, if there is one.

    Args:
        store: The store.
        run_id: The run.
        after: The number of the event.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    return _scalar(store, run_id, sa.func.min(blocks.c.first_seq), blocks.c.first_seq > after)


def last_block_seq(store: Store, run_id: str) -> int:
    """Return the number of the last event in a block, or 0 if there are no blocks.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    return _scalar(store, run_id, sa.func.max(blocks.c.last_seq), sa.true()) or 0


def _scalar(
    store: Store, run_id: str, value: sa.ColumnElement[int], where: sa.ColumnElement[bool]
) -> int | None:
    query = sa.select(value).where(blocks.c.run_key == store.find(run_id).key, where)
    return store.fetch(query)[0][0]

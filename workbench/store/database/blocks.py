"""Blocks: ranges of a run's events, stored a second time in a form that is read quickly.

To this module a block is only bytes. The events are always kept: if a block is missing, they are
read instead.
"""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from workbench.store.database.run_writer import RunWriter
from workbench.store.database.store import Store
from workbench.store.database.tables import blocks


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

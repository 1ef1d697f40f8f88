"""The events of a run, chunk by chunk.

From the blocks of the store where there are any, else from rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from workbench.store.database import Store
from workbench.store.database.blocks import next_block_seq, read_block
from workbench.store.history.reports import ReadRows, read_rows

CHUNK_EVENTS = 20_000


class Chunk(NamedTuple):
    """The next events of a run.

    Attributes:
        rows: What was read; empty if nothing is new.
        last_seq: The number of the last of them, or the number that they would follow.
        is_full: Whether there may be more.
    """

    rows: ReadRows
    last_seq: int
    is_full: bool


def read_chunk(store: Store, run_id: str, after: int) -> Chunk:
    """Read the next events of a run.

    Args:
        store: The store.
        run_id: The run.
        after: Only events with a greater number.

    Raises:
        RunNotFoundError: If there is no such run.
        StoreError: If this version does not know an event.
    """
    block = read_block(store, run_id, after)
    if block is not None:
        from workbench.store.history.blocks import decode_block

        decoded = decode_block(block.payload)
        if decoded is not None:
            return Chunk(decoded, block.last_seq, is_full=True)
        until = block.last_seq
    else:
        first = next_block_seq(store, run_id, after)
        until = None if first is None else first - 1
    limit = CHUNK_EVENTS if until is None else min(CHUNK_EVENTS, until - after)
    rows = next(store.event_rows(run_id, after=after, limit=limit), [])
    return Chunk(read_rows(rows), rows[-1][0] if rows else after, is_full=len(rows) == limit)


def read_chunks(store: Store, run_id: str, after: int = 0) -> Iterator[Chunk]:
    """Read the events of a run to the end, in chunks of which none is empty.

    Arguments as `read_chunk`.
    """
    while True:
        chunk = read_chunk(store, run_id, after)
        if chunk.last_seq > after:
            yield chunk
        if not chunk.is_full:
            return
        after = chunk.last_seq

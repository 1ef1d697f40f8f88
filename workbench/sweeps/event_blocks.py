"""The blocks of a run, made while its driver stores events, so that a long run is opened
quickly.
"""

from __future__ import annotations

import logging

from workbench.foundation.errors import LeaseError, StoreError
from workbench.store.database import RunWriter, Store
from workbench.store.database.blocks import Block, keep_block, last_block_seq

logger = logging.getLogger(__name__)

BLOCK_EVENTS = 40_000
"""Events of a block: fewer are read quickly enough one by one."""


class EventBlocks:
    """Stores a block each time that enough events have come since the last one."""

    def __init__(self, store: Store, writer: RunWriter) -> None:
        """Continue behind the last block of the run.

        Args:
            store: The store of the run.
            writer: The writer of the run.
        """
        self._store, self._writer = store, writer
        self._covered_seq = last_block_seq(store, writer.run_id)

    def note(self, last_seq: int) -> None:
        """Make the blocks that are due.

        Args:
            last_seq: The number of the last stored event of the run.
        """
        while last_seq - self._covered_seq >= BLOCK_EVENTS:
            try:
                self._make(self._covered_seq)
            except LeaseError:
                raise
            except StoreError as error:  # the events are stored: they are read one by one
                logger.warning("events are not stored as a block: %s", error)
            self._covered_seq += BLOCK_EVENTS

    def _make(self, after: int) -> None:
        from workbench.store.history.blocks import (
            encode_block,
        )  # short runs need none, and no pyarrow

        rows = next(
            self._store.event_rows(
                self._writer.run_id, after=after, limit=BLOCK_EVENTS, chunk_events=BLOCK_EVENTS
            )
        )
        payload = encode_block(rows)
        if payload is not None:
            keep_block(self._writer, Block(after + 1, rows[-1][0], payload))

"""The events of one run in its driver, and their projections: history, study and alerts.

Every event is stored. While the store cannot be written, the run pauses, and if the store does not
come back, the run ends. Large numbers of events are also stored as blocks, so that a long run opens
quickly.

The run's clock is the monotonic clock of its driver's process, which does not jump if the machine's
clock is set. Later drivers continue from the last event. Events from other processes carry times of
other clocks. If such a time cannot be right, it is replaced by the time at which the driver
received the event. The driver decides what the events mean for the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from workbench.advisor.trial_speeds import TrialSpeeds
from workbench.experiment.actions import suggest
from workbench.foundation.errors import LeaseError, StoreError, StoreUnavailableError
from workbench.foundation.events import (
    FINISHED_RUN_STATES,
    CommandHandled,
    Event,
    Noted,
    Sink,
    TrialReported,
    continue_from,
    process_unix_s,
    steady_unix_s,
)
from workbench.foundation.formatting import format_duration
from workbench.search import Study
from workbench.store.alerts import Alerts
from workbench.store.database import Command, RunWriter, Store
from workbench.store.database.samples import Block, keep_block, last_block_seq
from workbench.store.history import History
from workbench.store.history.run_clock import SIGN_S

logger = logging.getLogger(__name__)

STORE_PATIENCE_S = 60.0
"""How long the run waits for a store that cannot be written, in seconds."""
RETRY_S = 0.25
TOLERATED_S = 60.0
"""How far clocks may differ: reports are sent with a delay, and clocks of machines vary."""
BLOCK_EVENTS = 40_000
"""Number of events in a block. Fewer events are read quickly enough one by one."""


def write(writer: RunWriter, events: Sequence[Event], *, after: int, patience_s: float) -> int:
    """Store events exactly once, as soon as the store can be written.

    Args:
        writer: The writer of the run. Nobody else may append through it meanwhile.
        events: The events.
        after: The number of the last event of the run.
        patience_s: How long to wait for the store.

    Returns:
        The number of the last of `events`.

    Raises:
        StoreUnavailableError: If the store does not come back.
        LeaseError: If somebody else has taken the run over.
    """
    until_s = time.monotonic() + patience_s
    is_logged = False
    while True:
        try:
            # An append may fail after it was stored. `after` makes the retry store only what is
            # missing.
            return writer.append(*events, after=after)
        except StoreUnavailableError as error:
            if time.monotonic() > until_s:
                raise
            if not is_logged:
                logger.warning("the run waits for the store: %s", error)
            is_logged = True
            time.sleep(RETRY_S)


class Ledger:
    """What has happened in a run. Only the run's driver writes to it."""

    def __init__(self, store: Store, run_id: str) -> None:
        """Open the ledger of a run before its first event.

        Args:
            store: The store that holds the run.
            run_id: The run.

        Raises:
            RunNotFoundError: If the store holds no such run.
        """
        self.run_id = store.run(run_id).run_id
        self.experiment = store.experiment(self.run_id)
        self.history = History(self.experiment)
        self.study = Study(self.experiment)
        self.alerts = Alerts()
        self.speeds = TrialSpeeds()
        self.listeners: list[Sink] = []
        """Called with each stored event."""
        self._store = store
        self._writer: RunWriter | None = None
        self._blocks: EventBlocks | None = None
        self._last_seq = 0
        self._last_command = 0
        self.before_unix_s: float | None = None
        """Until when the replaced driver counts as alive, by the clock of the run."""

    def replay(self, writer: RunWriter) -> None:
        """Read the events so far, and write through `writer` from now on."""
        self._writer = writer
        self._blocks = EventBlocks(self._store, writer)
        last_unix_s = 0.0
        for stored in self._store.events(self.run_id):
            self._last_seq = stored.seq
            last_unix_s = max(last_unix_s, stored.event.time_unix_s)
            self.history.apply(stored.event)
            self.study.apply(stored.event)
            self.alerts.apply(stored.event)
            self.speeds.apply(stored.event)
            if isinstance(stored.event, CommandHandled):
                self._last_command = max(self._last_command, stored.event.command)
        before, drivers = writer.predecessor, self.history.drivers
        is_unfinished = self.history.state not in FINISHED_RUN_STATES
        if before is not None and drivers and drivers[-1].pid == before.pid and is_unfinished:
            signed_unix_s = before.signed_unix_s - self.history.clock_ahead_s
            self.before_unix_s = signed_unix_s + (0.0 if before.was_left else SIGN_S)
            if process_unix_s() < signed_unix_s:  # the clock is behind
                last_unix_s = max(last_unix_s, self.before_unix_s)
        # This machine's clock may be behind: it was set, or the last driver ran on another machine.
        continue_from(last_unix_s)

    def record(self, *events: Event) -> None:
        """Store events, then apply them to the history. The caller has informed the study."""
        self.append(events)
        for event in events:
            self.history.apply(event)

    def append(self, events: Sequence[Event], *, patience_s: float | None = None) -> None:
        """Store events with the alerts that they raise.

        The run pauses while the store cannot be written.

        Args:
            events: Events that the history knows already.
            patience_s: How long to wait for the store, or None for `STORE_PATIENCE_S`.

        Raises:
            StoreUnavailableError: If the store does not come back.
            LeaseError: If another driver has taken the run over.
        """
        assert self._writer is not None
        assert self._blocks is not None
        patience_s = STORE_PATIENCE_S if patience_s is None else patience_s
        known_ids = set(map(id, events))
        events = self.alerts.on_events(events)
        try:
            self._last_seq = write(
                self._writer, events, after=self._last_seq, patience_s=patience_s
            )
        except StoreUnavailableError as error:
            raise StoreUnavailableError(
                f"the run has waited {patience_s:g} s for the store: {error.problem}",
                next_step=suggest("resume", self._writer.run_id, lead="When the store is back"),
            ) from error
        for event in events:
            if id(event) not in known_ids:
                self.history.apply(event)
            self.speeds.apply(event)
            for listener in self.listeners:
                listener(event)
        self._blocks.note(self._last_seq)

    def new_commands(self) -> list[Command]:
        """Return the commands since the last call, or none while they cannot be read."""
        try:
            commands = self._store.commands(self.run_id, after=self._last_command)
        except StoreUnavailableError as error:
            logger.warning("commands cannot be read now: %s", error)
            return []
        if commands:
            self._last_command = commands[-1].number
        return commands


class RunClock:
    """Notices that the clock of the driver's machine was set, and records by how much."""

    def __init__(self, ledger: Ledger) -> None:
        """Record jumps in `ledger`."""
        self._ledger = ledger

    def tick(self) -> None:
        """Record by how much the clock of the machine is off, if that has changed."""
        ahead_s, known_s = time.time() - steady_unix_s(), self._ledger.history.clock_ahead_s
        if abs(ahead_s - known_s) <= TOLERATED_S:
            return
        direction = "ahead" if ahead_s > known_s else "back"
        change = format_duration(abs(ahead_s - known_s))
        message = (
            f"the clock of this machine was set {direction} by {change}. This run keeps the old"
            " time, and its limits are not affected"
        )
        self._ledger.record(Noted(level="warning", message=message, clock_ahead_s=ahead_s))


def timely(events: Sequence[Event], since_unix_s: float) -> list[Event]:
    """Return events of other processes, with the time now if their own cannot be right.

    Args:
        events: The events.
        since_unix_s: When the driver started. Only repeated reports may be older.
    """
    now_unix_s = steady_unix_s()

    def is_right(event: Event) -> bool:
        is_repeated = isinstance(event, TrialReported) and event.told_again
        is_after = is_repeated or event.time_unix_s >= since_unix_s
        return is_after and abs(event.time_unix_s - now_unix_s) <= TOLERATED_S

    return [
        event if is_right(event) else event.model_copy(update={"time_unix_s": now_unix_s})
        for event in events
    ]


class EventBlocks:
    """Stores a block whenever enough events have arrived since the last one."""

    def __init__(self, store: Store, writer: RunWriter) -> None:
        """Continue after the last block of the run.

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
        from workbench.store.history.blocks import encode_block  # short runs need no pyarrow

        rows = next(
            self._store.event_rows(
                self._writer.run_id, after=after, limit=BLOCK_EVENTS, chunk_events=BLOCK_EVENTS
            )
        )
        payload = encode_block(rows)
        if payload is not None:
            keep_block(self._writer, Block(after + 1, rows[-1][0], payload))

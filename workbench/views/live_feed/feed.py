"""What a server follows: the runs that front ends show, the list of runs, the machines.

One thread reads for all front ends. Each run is read once, however many show it. While nobody
watches, nothing is read.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection

from workbench.foundation.errors import (
    RunError,
    RunNotFoundError,
    StoreError,
    StoreUnavailableError,
    WorkbenchError,
)
from workbench.hardware.resources import Sampler
from workbench.store.database import Listener, RunRow, Store
from workbench.store.database.rows import NEWEST
from workbench.views.live_feed.analysis import ImportanceProcess
from workbench.views.live_feed.machines import MachinesStatus, cluster_status, machine_status
from workbench.views.live_feed.protocol import Importance, RunItem
from workbench.views.live_feed.run_summaries import Summaries, summary_of, with_labels
from workbench.views.live_feed.run_tail import RunTail

logger = logging.getLogger(__name__)

_FORGET_S = 60.0
"""A run that nobody has shown for this time is dropped from memory."""
_MAX_POINTS = 8_000_000
"""With more points of curves in memory, unused runs are dropped after `_QUIET_S`."""
_ROWS_EVERY_S = 1.0
"""The list of runs is read at most this often."""
_SUMMARIES_S = 0.2
"""Summaries are made for at most this time before shown runs are read again."""
_RETRY_S = 1.0
"""The store, or a run that could not be read, is read again after this time."""
_QUIET_S = 5.0
"""If no front end has asked for this time, nothing is read."""
_MACHINES_S = 1.0
"""The state of machines is measured at most this often."""
_LEFT_S = 2.0
"""A run that was not shown for this time counts as newly asked for when it is shown again."""
_TURN_OF_OTHERS = 4
"""While the run that was asked for last is behind, other runs are read in every fourth round."""


class Feed:
    """Follows the runs that front ends show. Every method may be called from any thread."""

    def __init__(self, open_store: Callable[[], Store], poll_s: float = 0.1) -> None:
        """Follow a store, which is opened on first use.

        Args:
            open_store: Opens the store.
            poll_s: Seconds between polls. Longer while idle if the store can notify of changes.
        """
        self._open_store = open_store
        self._poll_s = poll_s
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._news: Listener | None = None
        self._tails: dict[str, RunTail] = {}
        # A separate lock: adding a listener, on the event loop of a server, must not wait for the
        # store.
        self._listening = threading.Lock()
        self._listeners: set[Callable[[], None]] = set()
        self._rows: list[RunRow] = []
        self._rows_read_s = -_ROWS_EVERY_S
        self.num_edits = 0
        """How often `note_edit` was called."""
        self._summaries: Summaries | None = None
        self._to_summarise: dict[str, RunRow] = {}
        self._sampler: Sampler | None = None
        self._machines: dict[str | None, tuple[float, MachinesStatus]] = {}
        self._round = 0
        self._problem: WorkbenchError | None = None
        self._wanted_s = time.monotonic()
        self._importance = ImportanceProcess(self._notify)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="workbench-feed", daemon=True)
        self._thread.start()

    @property
    def store(self) -> Store:
        """The store, opened.

        Raises:
            StoreError: If it cannot be opened.
            StoreUnavailableError: If the feed was closed.
        """
        return self._opened()[0]

    def _opened(self) -> tuple[Store, Summaries]:
        with self._lock:
            if self._ended.is_set():
                raise StoreUnavailableError("the server is shutting down")
            if self._store is None or self._summaries is None:
                self._store = self._open_store()
                self._summaries = Summaries(self._store)
                self._news = self._store.listen()
            return self._store, self._summaries

    def close(self) -> None:
        """Stop following, and close the store."""
        self._ended.set()
        self._wake()
        self._thread.join(timeout=10)
        self._importance.close()
        with self._lock:
            self._tails.clear()
            if self._store is not None:
                self._store.close()
                self._store = self._news = None

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, from the reading thread, whenever something has changed.

        Returns:
            A function that removes the listener.
        """
        with self._listening:
            self._listeners.add(listener)
        return lambda: self._forget_listener(listener)

    def _forget_listener(self, listener: Callable[[], None]) -> None:
        with self._listening:
            self._listeners.discard(listener)

    def check(self) -> None:
        """Raise the error that currently keeps the store from being read, if there is one."""
        now_s = time.monotonic()
        was_quiet, self._wanted_s = now_s - self._wanted_s > _QUIET_S, now_s
        if was_quiet:
            self._wake()
        if self._problem is not None:
            raise self._problem

    def tail(self, run_id: str) -> RunTail:
        """Return the tail of a run, which is followed from now on.

        Args:
            run_id: A run ID, a prefix or a name that only one run has, or "last".

        Raises:
            RunNotFoundError: If there is no such run.
            StoreError: If it cannot be read.
        """
        with self._lock:
            tail = None if run_id in NEWEST else self._tails.get(run_id)
            if tail is None:
                full_id = self.store.run(run_id).run_id
                tail = self._tails.get(full_id) or RunTail(self.store, full_id)
                self._tails[full_id] = tail
                self._wake()
            now_s = time.monotonic()
            if tail.asked_s is None or now_s - tail.used_s > _LEFT_S:
                tail.asked_s = now_s
            tail.used_s = now_s
            return tail

    def rows(self) -> list[RunRow]:
        """Return the runs, newest first, at most about a second old."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._rows_read_s > _ROWS_EVERY_S:
                self._rows = self.store.runs()
                self._rows_read_s = now_s
            return self._rows

    def note_edit(self) -> None:
        """Read the runs again, because labels of one were changed or a run was deleted."""
        with self._lock:
            self._rows_read_s = -_ROWS_EVERY_S
            self.num_edits += 1
        self._wake()
        self._notify()

    def run_item(self, row: RunRow) -> RunItem:
        """Return the entry of a run in the list of runs.

        Missing details are read in the background.
        """
        tail = self._tails.get(row.run_id)
        if tail is not None and 0 < tail.row.last_seq == tail.cursor:
            with tail.lock:
                make = lambda: summary_of(tail.row, tail.data.history, is_advice=tail.is_advice)  # noqa: E731
                return with_labels(tail.cached("summary", make, 1.0), row)
        with self._lock:
            _, summaries = self._opened()
            if summaries.is_stale(row):
                self._to_summarise[row.run_id] = row
                self._wake()
            return summaries.item(row)

    def importance(
        self, tail: RunTail, trials: Collection[int] | None = None, attempt: int = 0
    ) -> Importance:
        """Return the importance of the parameters of a run, or how far it is computed.

        Listeners are called when it is there.

        Args:
            tail: The run, locked by the caller.
            trials: The trials to compute it from, or None for all.
            attempt: Another number than before tries again what has failed.
        """
        return self._importance.importance(self.store, tail, trials=trials, attempt=attempt)

    def resources(self, run_id: str | None = None) -> MachinesStatus:
        """Return the status of machines, at most a second old.

        Args:
            run_id: The run whose machines to report while it has a driver. Otherwise this machine
                is reported.
        """
        with self._lock:
            now_s = time.monotonic()
            read_s, status = self._machines.get(run_id, (None, None))
            if status is None or read_s is None or now_s - read_s > _MACHINES_S:
                status = run_id and cluster_status(self.store, run_id)
                status = status or self._this_machine()
                self._machines[run_id] = now_s, status
                for other, (other_s, _) in list(self._machines.items()):
                    if now_s - other_s > _FORGET_S:
                        del self._machines[other]
            return status

    def _this_machine(self) -> MachinesStatus:
        if self._sampler is None:
            self._sampler = Sampler()
            self._sampler.sample()
        return machine_status(self._sampler.sample())

    def _follow(self) -> None:
        while not self._ended.is_set():
            self._wait()
            try:
                with self._lock:
                    self._forget()
                if time.monotonic() - self._wanted_s > _QUIET_S:
                    continue
                while self._advance() and not self._ended.is_set():
                    pass
                self._problem = None
            except StoreUnavailableError as error:
                self._problem = error
                self._notify()
                self._ended.wait(_RETRY_S)
            except Exception:  # the reading thread must survive any error
                logger.exception("the store could not be followed")
                self._ended.wait(_RETRY_S)

    def _wait(self) -> None:
        """Wait until there may be something new to read."""
        news = self._news
        if news is None:
            self._ended.wait(self._poll_s)
        else:
            news.wait(self._poll_s)

    def _wake(self) -> None:
        news = self._news
        if news is not None:
            news.wake()

    def _advance(self) -> bool:
        """Read new events. Return whether there are more to read immediately."""
        now_s = time.monotonic()
        with self._lock:
            tails = [tail for tail in self._tails.values() if now_s >= tail.again_s]
        changed, behind = False, False
        for tail in self._in_turn(tails):
            try:
                changed = tail.advance() or changed
                tail.problem = None
            except StoreUnavailableError:
                raise
            except RunNotFoundError:
                with self._lock:
                    self._tails.pop(tail.run_id, None)
                continue
            except WorkbenchError as error:
                tail.problem, tail.again_s = error, now_s + _RETRY_S
            except Exception as error:  # one unreadable run must not block the others
                logger.exception("run %s cannot be followed", tail.run_id)
                tail.problem = StoreError(f"run {tail.run_id} cannot be followed: {error}")
                tail.again_s = now_s + _RETRY_S
            behind = behind or (tail.problem is None and tail.cursor < tail.row.last_seq)
        summarised = self._summarise()
        if changed or summarised:
            self._notify()
        return behind and changed

    def _in_turn(self, tails: list[RunTail]) -> list[RunTail]:
        """Return the runs to read now, the one that was asked for last first.

        While it is far behind, others that are far behind wait, but for every fourth chunk. Runs
        that are up to date cost next to nothing.
        """
        self._round += 1
        by_question = sorted(tails, key=lambda tail: tail.asked_s or 0.0, reverse=True)
        behind = [tail for tail in by_question if tail.is_behind]
        if len(behind) < 2 or self._round % _TURN_OF_OTHERS == 0:
            return by_question
        waiting = behind[1:]
        return [tail for tail in by_question if tail not in waiting]

    def _summarise(self) -> bool:
        until_s = time.monotonic() + _SUMMARIES_S
        done = False
        while self._to_summarise and time.monotonic() < until_s:
            _, row = self._to_summarise.popitem()
            # A run that cannot be read stays in the list, without progress. It may be of a newer
            # version, or deleted, or an object that is embedded in its experiment has changed.
            with contextlib.suppress(StoreError, RunError):
                if self._summaries is not None:
                    self._summaries.refresh(row)
                    done = True
        return done

    def _forget(self) -> None:
        """Drop runs that nobody shows, the least recently used first."""
        now_s = time.monotonic()
        by_use = sorted(self._tails.values(), key=lambda tail: tail.used_s, reverse=True)
        num_points = 0
        for tail in by_use:
            num_points += tail.data.series.num_points
            unused_s = now_s - tail.used_s
            if unused_s > _FORGET_S or (unused_s > _QUIET_S and num_points > _MAX_POINTS):
                del self._tails[tail.run_id]

    def _notify(self) -> None:
        with self._listening:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

"""What one server watches: the runs that somebody looks at, the list of runs, this machine.

One thread reads for all front ends, a run once however many look at it. Nobody looks: nothing is read.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from workbench.errors import RunNotFoundError, StoreError, StoreUnavailableError, WorkbenchError
from workbench.resources import Sampler
from workbench.store import Listener, RunRow, Store
from workbench.store.run_ids import NEWEST
from workbench.watch.heads import Summaries, summary_of
from workbench.watch.machines import ResourcesPicture, picture_of_cluster, picture_of_machine
from workbench.watch.protocol import RunItem
from workbench.watch.tail import RunTail

logger = logging.getLogger(__name__)

_FORGET_S = 60.0
_MAX_POINTS = 8_000_000
_ROWS_EVERY_S = 1.0
_SUMMARIES_S = 0.2
_RETRY_S = 1.0
_QUIET_S = 5.0
_MACHINES_S = 1.0


class Watch:
    """Follows what front ends look at; every method may be called from any thread."""

    def __init__(self, open_store: Callable[[], Store], poll_s: float = 0.1) -> None:
        """Watch a store that is opened when somebody looks for the first time.

        Args:
            open_store: Opens the store.
            poll_s: Seconds between two looks at it; more while nothing happens, where it tells of news.
        """
        self._open_store = open_store
        self._poll_s = poll_s
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._news: Listener | None = None
        self._tails: dict[str, RunTail] = {}
        # Of its own: who begins to listen, on the loop of a server, does not wait for a store.
        self._listening = threading.Lock()
        self._listeners: set[Callable[[], None]] = set()
        self._rows: list[RunRow] = []
        self._rows_read_s = -_ROWS_EVERY_S
        self._summaries: Summaries | None = None
        self._to_summarise: dict[str, RunRow] = {}
        self._sampler: Sampler | None = None
        self._machines: dict[str | None, tuple[float, ResourcesPicture]] = {}
        self._problem: WorkbenchError | None = None
        self._wanted_s = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="workbench-watch", daemon=True)
        self._thread.start()

    @property
    def store(self) -> Store:
        """The store, opened.

        Raises:
            StoreError: If it cannot be opened.
            StoreUnavailableError: If the watch was closed.
        """
        return self._opened()[0]

    def _opened(self) -> tuple[Store, Summaries]:
        with self._lock:
            if self._ended.is_set():
                raise StoreUnavailableError("nothing is followed any more: the server ends")
            if self._store is None or self._summaries is None:
                self._store = self._open_store()
                self._summaries = Summaries(self._store)
                self._news = self._store.listen()
            return self._store, self._summaries

    def close(self) -> None:
        """Follow nothing any more, and close the store."""
        self._ended.set()
        self._wake()
        self._thread.join(timeout=10)
        with self._lock:
            self._tails.clear()
            if self._store is not None:
                self._store.close()
                self._store = self._news = None

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called, from the watching thread, whenever something has changed.

        Returns:
            What ends it.
        """
        with self._listening:
            self._listeners.add(listener)
        return lambda: self._forget_listener(listener)

    def _forget_listener(self, listener: Callable[[], None]) -> None:
        with self._listening:
            self._listeners.discard(listener)

    def check(self) -> None:
        """Raise what keeps the store from being read, if anything does just now."""
        now_s = time.monotonic()
        was_quiet, self._wanted_s = now_s - self._wanted_s > _QUIET_S, now_s
        if was_quiet:
            self._wake()
        if self._problem is not None:
            raise self._problem

    def tail(self, run_id: str) -> RunTail:
        """Return a run that is followed from now on.

        Args:
            run_id: A run id, a beginning that only one run has, or "last".

        Raises:
            RunNotFoundError: If there is no such run.
            StoreError: If it cannot be read.
        """
        with self._lock:
            tail = None if run_id in NEWEST else self._tails.get(run_id)
            if tail is None:
                found = self.store.run(run_id).run_id
                tail = self._tails.get(found) or RunTail(self.store, found)
                self._tails[found] = tail
                self._wake()
            tail.used_s = time.monotonic()
            return tail

    def rows(self) -> list[RunRow]:
        """Return the runs, newest first, as of about a second ago."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._rows_read_s > _ROWS_EVERY_S:
                self._rows = self.store.runs()
                self._rows_read_s = now_s
            return self._rows

    def item(self, row: RunRow) -> RunItem:
        """Return a run as the list of runs shows it; what is not known yet is read soon."""
        tail = self._tails.get(row.run_id)
        if tail is not None and 0 < tail.row.last_seq == tail.cursor:
            with tail.lock:
                make = lambda: summary_of(tail.row, tail.data.history, is_advice=tail.is_advice)  # noqa: E731
                return tail.shared("summary", make, 1.0)
        with self._lock:
            _, summaries = self._opened()
            if summaries.is_stale(row):
                self._to_summarise[row.run_id] = row
                self._wake()
            return summaries.known(row)

    def resources(self, run_id: str | None = None) -> ResourcesPicture:
        """Return what machines are doing, as of at most a second ago.

        Args:
            run_id: A run whose machines are meant while it is driven; else it is this one.
        """
        with self._lock:
            now_s = time.monotonic()
            read_s, picture = self._machines.get(run_id, (None, None))
            if picture is None or read_s is None or now_s - read_s > _MACHINES_S:
                picture = None if run_id is None else picture_of_cluster(self.store, run_id)
                picture = picture or self._this_machine()
                self._machines[run_id] = now_s, picture
                for other, (other_s, _) in list(self._machines.items()):
                    if now_s - other_s > _FORGET_S:
                        del self._machines[other]
            return picture

    def _this_machine(self) -> ResourcesPicture:
        if self._sampler is None:
            self._sampler = Sampler()
            self._sampler.look()
        return picture_of_machine(self._sampler.look())

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
                self._tell()
                self._ended.wait(_RETRY_S)
            except Exception:  # whatever it is, those who look are not left without anybody who reads
                logger.exception("the store could not be followed")
                self._ended.wait(_RETRY_S)

    def _wait(self) -> None:
        """Wait until there may be something to read."""
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
        """Read what has come; return whether there is more to read at once."""
        now_s = time.monotonic()
        with self._lock:
            tails = [tail for tail in self._tails.values() if now_s >= tail.again_s]
        changed, behind = False, False
        for tail in tails:
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
            except Exception as error:  # one run that cannot be read must not keep the others from being read
                logger.exception("run %s cannot be followed", tail.run_id)
                tail.problem = StoreError(f"run {tail.run_id} cannot be followed: {error}")
                tail.again_s = now_s + _RETRY_S
            behind = behind or (tail.problem is None and tail.cursor < tail.row.last_seq)
        summarised = self._summarise()
        if changed or summarised:
            self._tell()
        return behind and changed

    def _summarise(self) -> bool:
        until_s = time.monotonic() + _SUMMARIES_S
        done = False
        while self._to_summarise and time.monotonic() < until_s:
            _, row = self._to_summarise.popitem()
            # A run that this version cannot read stays in the list, without its progress.
            with contextlib.suppress(StoreError):
                if self._summaries is not None:
                    self._summaries.refresh(row)
                    done = True
        return done

    def _forget(self) -> None:
        """Let go of runs that nobody looks at, the one that was looked at longest ago first."""
        now_s = time.monotonic()
        by_use = sorted(self._tails.values(), key=lambda tail: tail.used_s, reverse=True)
        num_points = 0
        for tail in by_use:
            num_points += tail.data.series.num_points
            unused_s = now_s - tail.used_s
            if unused_s > _FORGET_S or (unused_s > _QUIET_S and num_points > _MAX_POINTS):
                del self._tails[tail.run_id]

    def _tell(self) -> None:
        with self._listening:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

"""One run as a server follows it: its events are read as they come, once for all front ends.

A tail is advanced by one thread and read by others, one at a time. Readers hold its lock. `updates`
decides what a front end receives.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import (
    AdviceRequested,
    AlertDelivered,
    AlertRaised,
    AttemptEnded,
    CommandHandled,
    Event,
    Noted,
    RunStateChanged,
    TrialEnded,
)
from workbench.runs.event_lines import Narrator
from workbench.runs.plots.prepare import CurvesData, prepare_convergence, prepare_throughput
from workbench.runs.plots.run_data import CHUNK_EVENTS, Chunk, RunData, read_chunk
from workbench.runs.plots.series import THROUGHPUT, Axis
from workbench.runs.stored_run import energy_of
from workbench.store.alerts import JUPYTER
from workbench.store.database import RunRow, Store
from workbench.store.history.history import Reading
from workbench.views.live_feed.machine_history import MachineHistory, MachinesHistory
from workbench.views.live_feed.protocol import LogLine

if TYPE_CHECKING:
    from workbench.runs.trial_decisions import VersionDecision

MAX_LOG_LINES = 5_000
_FORGET_S = 30.0
_ENERGY_EVERY_S = 5.0
_DECIDE_EVERY_S = 10.0
_SHARE_OF_TIME = 0.1  # at most this share of the time is spent on computing one value

_Value = TypeVar("_Value")


class RunTail:
    """The events of one run so far, as columns, trials and log lines."""

    def __init__(self, store: Store, run_id: str) -> None:
        """Start before the first event.

        Args:
            store: Where the run is kept.
            run_id: Its full ID.

        Raises:
            RunNotFoundError: If there is no such run.
            StoreError: If its experiment cannot be read.
        """
        self.run_id = run_id
        self.lock = threading.RLock()
        self._advancing = threading.Lock()
        self.row: RunRow = store.run(run_id)
        self.data = RunData(store.experiment(run_id))
        self.data.history.chosen_trial = self.row.chosen_trial
        self.cursor = 0
        self.is_advice = False
        self.problem: WorkbenchError | None = None
        """The error that currently keeps it from being read."""
        self.again_s = 0.0  # when to try again
        self.log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self.used_s = time.monotonic()
        self.asked_s: float | None = None
        """Since when it has been shown without a break."""
        self._energy_read_s = -math.inf
        self._has_caught_up = False
        self.folder = store.artifacts_of(run_id).working_folder
        self._store = store
        self._machines = MachineHistory(store, run_id)
        self._fetching = ThreadPoolExecutor(1, thread_name_prefix="workbench-fetch")
        self._ahead: Future[Chunk] | None = None
        self._narrator = Narrator(self.data.history)
        self._cache: dict[Hashable, _Cached] = {}

    @property
    def loading(self) -> float | None:
        """The share of events read so far, or None once the tail has caught up."""
        reading = self.data.history.reading
        return reading and reading.share

    @property
    def is_behind(self) -> bool:
        """Whether it has events that were not read, as far as that was looked up."""
        return self.cursor < self.row.last_seq

    @property
    def has_started(self) -> bool:
        """Whether some events were read, or there are none."""
        return self.cursor > 0 or self.row.last_seq == 0

    def machines_history(self) -> MachinesHistory:
        """Return the machines of the run over time. The caller need not hold the lock."""
        with self.lock:
            trials = [copy(trial) for trial in self.data.history.trials.values()]
            clock = deepcopy(self.data.history.clock)
        return self._machines.series(clock, trials)

    def advance(self) -> bool:
        """Read the next events, at most one chunk.

        Returns:
            Whether anything has changed.

        Raises:
            StoreUnavailableError: If the store cannot be read just now.
        """
        with self._advancing:
            row = self._store.run(self.run_id)
            # Read before taking the lock, so that readers need not wait.
            chunk = None
            if row.last_seq > self.cursor:
                chunk = self._next_chunk()
            # All but its heartbeat: users may have renamed it.
            without_heartbeat = replace(row, heartbeat_unix_s=self.row.heartbeat_unix_s)
            energy = self._read_energy()
            is_metered = energy is not None and energy != self.data.history.energy_of_trials
            changed = chunk is not None or without_heartbeat != self.row or is_metered
            with self.lock:
                if energy is not None:
                    self.data.history.energy_of_trials = energy
                self.row = row
                self.data.history.chosen_trial = row.chosen_trial
                if chunk is not None:
                    for seq, event in self.data.add_read(chunk.rows):
                        self._apply(seq, event)
                    self.cursor = chunk.last_seq
                self._note_reading()
        return changed

    def _note_reading(self) -> None:
        """Note in the history whether it still lacks events of the run."""
        behind = self.row.last_seq - self.cursor
        self._has_caught_up = self._has_caught_up or behind <= 0
        # While a run is first read, any lag counts. Later a running one is always a little behind.
        tolerated = 0
        if self._has_caught_up:
            tolerated = CHUNK_EVENTS
        self.data.history.reading = None
        if behind > tolerated:
            self.data.history.reading = Reading(self.cursor, self.row.last_seq)

    def _read_energy(self) -> dict[int, float | None] | None:
        """Return what each trial has used, in watt-hours, or None if that was read a moment ago."""
        now_s = time.monotonic()
        if now_s - self._energy_read_s < _ENERGY_EVERY_S:
            return None
        self._energy_read_s = now_s
        return energy_of(self._store, self.run_id).watt_hours

    def _next_chunk(self) -> Chunk | None:
        """Return the next chunk, and start to fetch the one after it if there is more."""
        ahead = self._ahead
        self._ahead = None
        chunk = ahead and ahead.result()
        if (
            chunk is None or chunk.last_seq == self.cursor
        ):  # it was fetched before there was anything
            chunk = self._fetch(self.cursor)
        if chunk.is_full:
            self._ahead = self._fetching.submit(self._fetch, chunk.last_seq)
        if chunk.last_seq <= self.cursor:
            return None
        return chunk

    def _fetch(self, after: int) -> Chunk:
        return read_chunk(self._store, self.run_id, after)

    def catch_up(self, within_s: float = math.inf) -> None:
        """Read everything stored until now, or as much as the time allows.

        Errors as in `advance`.
        """
        until_s = time.monotonic() + within_s
        while self.advance() and self.cursor < self.row.last_seq and time.monotonic() < until_s:
            pass

    def cached(
        self,
        key: Hashable,
        make: Callable[[], _Value],
        every_s: float,
        *,
        while_quiet: bool = False,
    ) -> _Value:
        """Return a value computed from the run, once for all front ends. The caller holds the lock.

        Args:
            key: Identifies the value.
            make: Computes it.
            every_s: Minimum seconds between computations. Longer if computing takes long.
            while_quiet: Whether to recompute even if no event has come.
        """
        now_s, chosen = time.monotonic(), self.row.chosen_trial
        entry = self._cache.get(key)
        if entry is not None:
            entry.used_s = now_s
            same = entry.version == (self.cursor, self.row.state, chosen) and not while_quiet
            # A value of a partly read run expires as soon as the run is read completely, any by a
            # choice.
            is_out = entry.version[2] != chosen or (
                entry.was_behind and self.cursor == self.row.last_seq
            )
            if same or (now_s < entry.again_s and not is_out):
                return entry.value
        value = make()
        again_s = now_s + max(every_s, (time.monotonic() - now_s) / _SHARE_OF_TIME)
        self._cache = {
            other_key: other
            for other_key, other in self._cache.items()
            if now_s - other.used_s < _FORGET_S
        }
        version = (self.cursor, self.row.state, chosen)
        self._cache[key] = _Cached(value, version, now_s, again_s, self.cursor < self.row.last_seq)
        return value

    def decisions(self) -> list[VersionDecision]:
        """Return the decisions about the versions of the code. The caller holds the lock."""
        if not self.data.history.experiment.search.code_versions:
            return []
        from workbench.runs.run import Run
        from workbench.runs.trial_decisions import decide_versions

        return self.cached(
            "decisions", lambda: decide_versions(Run(self._store, self.run_id)), _DECIDE_EVERY_S
        )

    def overview(
        self,
        metric: str,
        axis: Axis | None,
        max_curves: int,
        *,
        chosen: tuple[int, ...],
        trials: frozenset[int] | None = None,
    ) -> CurvesData:
        """Return the curves of a metric, limited in number. A new object only if they have changed.

        Args:
            metric: A reported metric, or `THROUGHPUT`.
            axis: The horizontal axis, or None for the one that fits.
            max_curves: Maximum number of individual trials.
            chosen: Trials that are always included.
            trials: The trials to show, or None for all.

        Raises:
            ExperimentError: If no trial has reported the metric.
        """

        def make() -> CurvesData:
            if metric == THROUGHPUT:
                return prepare_throughput(
                    self.data,
                    axis=axis or "time",
                    max_curves=max_curves,
                    chosen=chosen,
                    trials=trials,
                )
            return prepare_convergence(
                self.data,
                axis=axis,
                metric=metric,
                max_curves=max_curves,
                chosen=chosen,
                trials=trials,
            )

        key = ("overview", metric, axis, max_curves, chosen, trials)
        return self.cached(key, make, every_s=1.0)

    def _apply(self, seq: int, event: Event) -> None:
        if isinstance(event, AdviceRequested):
            self.is_advice = True
        text = self._narrator.line_of(event)
        if text is not None:
            self.log.append(
                LogLine(
                    seq=seq,
                    time_unix_s=event.time_unix_s,
                    level=_level_of(event),
                    run_time_s=round(self.data.history.clock.at(event.time_unix_s), 3),
                    trial=getattr(event, "trial", None),
                    text=text,
                    alert=isinstance(event, AlertRaised) and JUPYTER in event.to,
                )
            )


@dataclass
class _Cached:
    """A cached value, and when it was computed."""

    value: Any
    version: tuple[int, str, int | None]
    used_s: float
    again_s: float
    was_behind: bool


def _level_of(event: Event) -> Any:
    match event:
        case Noted():
            return event.level
        case AlertRaised() if JUPYTER in event.to:
            return event.level
        case TrialEnded(state="failed") | RunStateChanged(state="failed" | "lost"):
            return "error"
        case AttemptEnded(
            reason="stopped" | "resized" | "turn"
        ):  # the run ended, the trial gets more workers, or waits for its next turn
            return "info"
        case AttemptEnded() | CommandHandled(done=False) | AlertDelivered(sent=False):
            return "warning"
        case TrialEnded(state="complete") | RunStateChanged(state="complete"):
            return "good"
        case _:
            return "info"

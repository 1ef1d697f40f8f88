"""Write a run as a trace for Perfetto and chrome://tracing: what each worker did, and when.

The trace is built from events only. Between two reports of a trial there is a span with the values
of the later report. It is not known when the parts of a step (data, forward, ...) ran within the
span, so they are numbers of the span.

Source: "Trace Event Format", the JSON object format, of the Chromium project.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from workbench.foundation.events import (
    AlertRaised,
    AttemptEnded,
    CheckpointSaved,
    CommandHandled,
    DriverStarted,
    Event,
    Noted,
    RunStateChanged,
    SettingsChanged,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)

Entry = dict[str, Any]
_RUN, _STATES, _PROPOSALS = 0, 1, 2
"""The process of the run in the trace, and its two lanes."""


def trace_of(events: Iterable[Event], *, name: str, trial: int | None = None) -> Iterator[Entry]:
    """Yield the entries of the trace of a run.

    Args:
        events: Its events, oldest first.
        name: Its name.
        trial: Only this trial, with curves of its speed and its metrics. None means all trials,
            without curves.

    Yields:
        Entries of `traceEvents`. Times are in microseconds since the first event.
    """
    tracer = _Tracer(trial)
    yield _named("process_name", _RUN, 0, name)
    yield _named("thread_name", _RUN, _STATES, "run")
    yield _named("thread_name", _RUN, _PROPOSALS, "proposals")
    for event in events:
        if trial is None or getattr(event, "trial", None) in (None, trial):
            yield from tracer.follow(event)
    yield from tracer.end()


class _Attempt:
    """A running attempt, on the lanes of its workers."""

    def __init__(
        self, event: TrialStarted, params: dict[str, Any], lanes: list[tuple[int, int]]
    ) -> None:
        self.event, self.params, self.lanes = event, params, lanes
        self.phase, self.phase_unix_s = "start", event.time_unix_s


class _Tracer:
    """Converts events to entries, one after another."""

    def __init__(self, trial: int | None) -> None:
        self._has_curves = trial is not None
        self._first_unix_s: float | None = None
        self._last_unix_s = 0.0
        self._state: tuple[str, float] | None = None
        self._params: dict[int, dict[str, Any]] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._hosts: dict[str, int] = {}
        self._workers: set[tuple[int, int]] = set()

    def follow(self, event: Event) -> Iterator[Entry]:
        if self._first_unix_s is None:
            self._first_unix_s = event.time_unix_s
        self._last_unix_s = max(self._last_unix_s, event.time_unix_s)
        if (handle := _HANDLERS.get(type(event))) is not None:
            yield from handle(self, event)

    def end(self) -> Iterator[Entry]:
        """Close the spans that are still open at the last event."""
        for number in list(self._attempts):
            yield from self._end_attempt(number, self._last_unix_s, "running", None)
        if self._state is not None:
            yield self._span((_RUN, _STATES), *self._state, self._last_unix_s, {})

    def _propose(self, event: TrialProposed) -> Iterator[Entry]:
        self._params[event.trial] = dict(event.params)
        began_unix_s = event.time_unix_s - (event.choosing_s or 0.0)
        name = f"choose trial {event.trial}"
        yield self._span(
            (_RUN, _PROPOSALS), name, began_unix_s, event.time_unix_s, dict(event.params)
        )
        yield self._wait(event.trial, "b", event.time_unix_s)

    def _start(self, event: TrialStarted) -> Iterator[Entry]:
        hosts = event.hosts or ["workers"] * len(event.worker_pids)
        lanes = []
        for host, pid in zip(hosts, event.worker_pids, strict=False):
            if host not in self._hosts:
                self._hosts[host] = len(self._hosts) + 1
                yield _named("process_name", self._hosts[host], 0, host)
            lane = (self._hosts[host], pid)
            if lane not in self._workers:
                self._workers.add(lane)
                yield _named("thread_name", *lane, f"worker {pid}")
            lanes.append(lane)
        if event.attempt == 0:
            yield self._wait(event.trial, "e", event.time_unix_s)
        if lanes:
            self._attempts[event.trial] = _Attempt(event, self._params.get(event.trial, {}), lanes)

    def _report(self, event: TrialReported) -> Iterator[Entry]:
        parts_ms = {f"{part} (ms per step)": 1e3 * part_s for part, part_s in event.parts_s.items()}
        shown = {"step": event.step, "epoch": event.epoch, "samples_per_s": event.samples_per_s}
        numbers = (
            {key: value for key, value in shown.items() if value is not None}
            | parts_ms
            | event.values
        )
        name = f"to step {event.step}"
        yield from self._next_phase(event.trial, name, "steps", event.time_unix_s, numbers)
        if self._has_curves:
            curves = (
                {"samples_per_s": event.samples_per_s} if event.samples_per_s is not None else {}
            )
            for metric, value in (curves | event.values).items():
                if math.isfinite(value):
                    yield self._entry("C", (_RUN, 0), metric, event.time_unix_s, {metric: value})

    def _plan(self, event: TrialPlanned) -> Iterator[Entry]:
        return self._next_phase(event.trial, "load and build", "steps", event.time_unix_s, {})

    def _save_checkpoint(self, event: CheckpointSaved) -> Iterator[Entry]:
        if event.trial in self._attempts:
            lane = self._attempts[event.trial].lanes[0]
            name = f"checkpoint at step {event.step}"
            yield self._instant(lane, name, event, {"best": event.best})

    def _end_one_attempt(self, event: AttemptEnded) -> Iterator[Entry]:
        ended = "next turn" if event.turn is not None else "next attempt"
        return self._end_attempt(event.trial, event.time_unix_s, ended, event.message)

    def _end_trial(self, event: TrialEnded) -> Iterator[Entry]:
        return self._end_attempt(event.trial, event.time_unix_s, event.state, event.message)

    def _start_driver(self, event: DriverStarted) -> Iterator[Entry]:
        yield self._instant((_RUN, _STATES), f"driver starts on {event.host}", event, {})

    def _show_message(self, event: CommandHandled | Noted | AlertRaised) -> Iterator[Entry]:
        yield self._instant((_RUN, _STATES), event.message, event, {})

    def _change_settings(self, event: SettingsChanged) -> Iterator[Entry]:
        yield self._instant((_RUN, _STATES), "settings change", event, dict(event.settings))

    def _next_phase(
        self, trial: int, name: str, following: str, unix_s: float, numbers: dict[str, Any]
    ) -> Iterator[Entry]:
        attempt = self._attempts.get(trial)
        if attempt is not None:
            yield self._span(attempt.lanes[0], name, attempt.phase_unix_s, unix_s, numbers)
            attempt.phase, attempt.phase_unix_s = following, unix_s

    def _end_attempt(
        self, trial: int, unix_s: float, state: str, message: str | None
    ) -> Iterator[Entry]:
        attempt = self._attempts.pop(trial, None)
        if attempt is None:
            return
        yield self._span(attempt.lanes[0], attempt.phase, attempt.phase_unix_s, unix_s, {})
        known = {
            "state": state,
            "attempt": attempt.event.attempt,
            "configuration": attempt.params,
            "plan": attempt.event.plan,
        } | ({} if message is None else {"message": message})
        for rank, lane in enumerate(attempt.lanes):
            name = f"trial {trial}" if len(attempt.lanes) == 1 else f"trial {trial}, rank {rank}"
            yield self._span(lane, name, attempt.event.time_unix_s, unix_s, known)

    def _change_state(self, event: RunStateChanged) -> Iterator[Entry]:
        if self._state is not None:
            yield self._span((_RUN, _STATES), *self._state, event.time_unix_s, {})
        self._state = (event.state, event.time_unix_s)

    def _wait(self, trial: int, phase: str, unix_s: float) -> Entry:
        name = f"trial {trial} waits for its workers"
        return self._entry(phase, (_RUN, _PROPOSALS), name, unix_s, {}) | {
            "cat": "waiting",
            "id": trial,
        }

    def _instant(
        self, lane: tuple[int, int], name: str, event: Event, numbers: dict[str, Any]
    ) -> Entry:
        return self._entry("i", lane, name, event.time_unix_s, numbers) | {"s": "t"}

    def _span(
        self,
        lane: tuple[int, int],
        name: str,
        began_unix_s: float,
        ended_unix_s: float,
        numbers: dict[str, Any],
    ) -> Entry:
        """Return a span. Clocks of machines differ, so it may seem to end before it starts."""
        duration_us = max(0.0, ended_unix_s - began_unix_s) * 1e6
        return self._entry("X", lane, name, began_unix_s, numbers) | {"dur": round(duration_us, 1)}

    def _entry(
        self, phase: str, lane: tuple[int, int], name: str, unix_s: float, numbers: dict[str, Any]
    ) -> Entry:
        since_us = (unix_s - (self._first_unix_s or 0.0)) * 1e6
        entry: Entry = {
            "ph": phase,
            "pid": lane[0],
            "tid": lane[1],
            "name": name,
            "ts": round(since_us, 1),
        }
        return entry | {"args": {key: _writable(value) for key, value in numbers.items()}}


_HANDLERS: dict[type[Event], Callable[[_Tracer, Any], Iterator[Entry]]] = {
    TrialProposed: _Tracer._propose,
    TrialStarted: _Tracer._start,
    TrialPlanned: _Tracer._plan,
    TrialReported: _Tracer._report,
    CheckpointSaved: _Tracer._save_checkpoint,
    AttemptEnded: _Tracer._end_one_attempt,
    TrialEnded: _Tracer._end_trial,
    RunStateChanged: _Tracer._change_state,
    DriverStarted: _Tracer._start_driver,
    CommandHandled: _Tracer._show_message,
    Noted: _Tracer._show_message,
    AlertRaised: _Tracer._show_message,
    SettingsChanged: _Tracer._change_settings,
}


def _named(kind: str, process: int, thread: int, name: str) -> Entry:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}


def _writable(value: Any) -> Any:
    """Return a value that JSON can store: NaN and infinity become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

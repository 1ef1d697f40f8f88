"""Decide when rules raise alerts, from a run's events, readings of nodes, and the clock.

A rule raises one alert for each cause. A cause that can pass (silence, a wait, heat, a full disk, a
lost GPU) is cleared when it has passed, and can then raise another alert. A cause that cannot pass
(a trial that diverged, an end) raises only one. Alerts are stored as events together with their
cause, so another process that reads the events continues exactly where the last one stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from workbench.experiment.alert_rules import (
    DiskFull,
    Diverged,
    Drift,
    GpuLost,
    LogLine,
    NoProgress,
    QueueWaiting,
    RunEnded,
    SettingsRule,
    TargetReached,
    Temperature,
)
from workbench.foundation.events import (
    FINISHED_RUN_STATES,
    AlertCleared,
    AlertDelivered,
    AlertRaised,
    AlertsArmed,
    AttemptEnded,
    DriverStarted,
    Event,
    LogMatched,
    RunState,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialStarted,
    steady_unix_s,
)
from workbench.foundation.events.runs import AlertAction, AlertLevel
from workbench.foundation.formatting import format_count, format_duration, format_percent
from workbench.store.alerts.settings import JUPYTER


@dataclass(frozen=True)
class GpuReading:
    """One GPU: whether it is still present, and its temperature if it reports one."""

    uuid: str
    state: Literal["well", "lost"] = "well"
    temperature_c: float | None = None


@dataclass(frozen=True)
class NodeReading:
    """The readings of one node.

    Attributes:
        node: Its host name.
        disks_used: Fraction of each disk in use, from 0 to 1, by a path on the disk.
        gpus: Its GPUs, including lost ones.
    """

    node: str
    disks_used: Mapping[str, float] = field(default_factory=dict)
    gpus: tuple[GpuReading, ...] = ()


@dataclass(frozen=True)
class ServedReading:
    """The drift of one served model's data.

    Attributes:
        model: The name under which it is served, and its version.
        drifted: The columns that have drifted from the training data, `answers` among them.
        num_rows: Number of rows that were compared.
    """

    model: str
    drifted: tuple[str, ...]
    num_rows: int


# An alert about heat or a disk is cleared only this far below its limit. Values that hover around
# the limit would raise an alert again and again.
COOLER_C = 5.0
EMPTIER = 0.02
_RULE: TypeAdapter[SettingsRule] = TypeAdapter(SettingsRule)
_PROGRESS = frozenset(
    {
        "trial_started",
        "trial_reported",
        "checkpoint_saved",
        "trial_ended",
        "plan_measured",
        "sharing_measured",
        "rates_tested",
        "candidate_tried",
    }
)
_LEVELS: dict[str, AlertLevel] = {
    "complete": "info",
    "stopped": "warning",
    "failed": "error",
    "lost": "error",
}

AlertEvent = AlertRaised | AlertCleared


class Alerts:
    """The rules of one run, and the alerts that they have raised or raise next."""

    def __init__(self) -> None:
        """Start before the first event, without rules."""
        self.rules: dict[str, SettingsRule] = {}
        self.undelivered: dict[tuple[int, str], AlertRaised] = {}
        """Alerts that are not delivered yet, by number and sink."""
        self.excluded_nodes: set[str] = set()
        self.to_stop: dict[int, str] = {}
        """Trials that a rule stops, with the reason."""
        self.to_retry: dict[int, AlertRaised] = {}
        """Trials whose current attempt a rule ends."""
        self._num_raised = 0
        self._reported: dict[tuple[str, str], int] = {}
        self._num_of_rule: Counter[str] = Counter()
        self._state: RunState = "waiting"
        self._drivers: list[DriverStarted] = []
        self._num_ended: Counter[str] = Counter()
        self._running: set[int] = set()
        self._waiting: set[int] = set()
        self._progress_unix_s = 0.0
        self._unserved_unix_s: float | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns that workers search for in their output."""
        return tuple(
            {rule.pattern: None for rule in self.rules.values() if isinstance(rule, LogLine)}
        )

    def apply(self, event: Event) -> None:
        """Apply a stored event. Alerts are events as well."""
        if (handle := _HANDLERS.get(type(event))) is not None:
            handle(self, event)
        if event.type in _PROGRESS:
            self._progress_unix_s = max(self._progress_unix_s, event.time_unix_s)
        if self._running or not self._waiting or self._state != "running":
            self._unserved_unix_s = None
        elif self._unserved_unix_s is None:
            self._unserved_unix_s = event.time_unix_s

    def _arm(self, event: AlertsArmed) -> None:
        self.rules = _joined(_RULE.validate_python(rule) for rule in event.rules)

    def _take_cleared(self, event: AlertCleared) -> None:
        self._reported = {
            key: number for key, number in self._reported.items() if number != event.alert
        }

    def _take_delivered(self, event: AlertDelivered) -> None:
        self.undelivered.pop((event.alert, event.sink), None)

    def _take_driver(self, event: DriverStarted) -> None:
        self._drivers.append(event)
        self._progress_unix_s, self._unserved_unix_s = event.time_unix_s, None

    def _take_state(self, event: RunStateChanged) -> None:
        self._state = event.state

    def _take_proposed(self, event: TrialProposed) -> None:
        self._waiting.add(event.trial)

    def _take_started(self, event: TrialStarted) -> None:
        self._move(event.trial, self._running)

    def _take_attempt_ended(self, event: AttemptEnded) -> None:
        self._move(event.trial, self._waiting)

    def _take_ended(self, event: TrialEnded) -> None:
        self._num_ended[event.state] += 1
        self._move(event.trial, None)

    def on_events(self, events: Iterable[Event]) -> list[Event]:
        """Apply events that are about to be stored.

        Args:
            events: The events, oldest first.

        Returns:
            The events, each followed by the alerts that it raises or clears. Store them together.
        """
        stored: list[Event] = []
        for event in events:
            before = self._state
            self.apply(event)
            stored.append(event)
            for key, rule in self.rules.items():
                if (raised := self._raise_for(event, before, key, rule)) is not None:
                    stored.append(raised)
            stored += self._clear_by(event)
        return stored

    def tick(self, now_unix_s: float) -> list[AlertEvent]:
        """Apply and return the alerts that are raised because time has passed."""
        alerts: list[AlertEvent | None] = []
        if self._state != "running":
            return []
        for key, rule in self.rules.items():
            match rule:
                case NoProgress() if now_unix_s - self._progress_unix_s > rule.within:
                    text = f"nothing was reported for {format_duration(rule.within)}"
                    alerts.append(
                        self._raise(key, rule, "silence", "warning", text, now_unix_s=now_unix_s)
                    )
                case QueueWaiting() if self._unserved_unix_s is not None:
                    if now_unix_s - self._unserved_unix_s > rule.waiting:
                        text = f"the run has waited for workers for {format_duration(rule.waiting)}"
                        alerts.append(
                            self._raise(key, rule, "wait", "warning", text, now_unix_s=now_unix_s)
                        )
                case _:
                    pass
        return [alert for alert in alerts if alert is not None]

    def read(
        self, reading: NodeReading | ServedReading, now_unix_s: float | None = None
    ) -> list[AlertEvent]:
        """Apply and return the alerts that a reading raises or clears.

        Args:
            reading: The reading.
            now_unix_s: When it was read, in seconds since 1970. None means now.
        """
        now_unix_s = steady_unix_s() if now_unix_s is None else now_unix_s
        alerts: list[AlertEvent] = []
        for key, rule in self.rules.items():
            for cause, level, bad, good, text in _judge(rule, reading):
                if (
                    bad
                    and (
                        raised := self._raise(key, rule, cause, level, text, now_unix_s=now_unix_s)
                    )
                    is not None
                ):
                    alerts.append(raised)
                elif good and (number := self._reported.get((key, cause))) is not None:
                    alerts.append(self._clear(number, text, now_unix_s))
        return alerts

    def lose(self, now_unix_s: float) -> list[AlertEvent]:
        """Apply and return the alerts that are raised because the driver is gone."""
        if self._state not in ("running", "stopping"):
            return []
        rules = [(key, rule) for key, rule in self.rules.items() if isinstance(rule, RunEnded)]
        alerts = [
            self._raise_lost(key, rule, -1, "is gone. Resume the run to continue it", now_unix_s)
            for key, rule in rules
            if "lost" in rule.states
        ]
        return [alert for alert in alerts if alert is not None]

    def _raise_lost(
        self, key: str, rule: SettingsRule, index: int, text: str, now_unix_s: float
    ) -> AlertRaised | None:
        """Raise the alert that a driver is gone, unless another process raised it before."""
        lost = self._drivers[index]
        text = f"the driver, process {lost.pid} on {lost.host}, {text}"
        cause = f"lost under driver {len(self._drivers) + index + 1}"
        return self._raise(key, rule, cause, "error", text, now_unix_s=now_unix_s)

    def _raise_for(
        self, event: Event, before: RunState, key: str, rule: SettingsRule
    ) -> AlertRaised | None:
        match rule, event:
            case TargetReached(), RunStateChanged(reason="target"):
                text = event.message or "the target is reached"
                return self._raise(key, rule, "target", "info", text, now_unix_s=event.time_unix_s)
            case RunEnded(), RunStateChanged() if event.state in FINISHED_RUN_STATES:
                if event.state not in rule.states:
                    return None
                why = event.message or event.reason
                text = f"the run is {event.state}" + (f": {why}" if why else "")
                level = _LEVELS[event.state]
                num_failed = self._num_ended["failed"]
                if event.state == "complete" and num_failed and not self._num_ended["complete"]:
                    text = f"{text}. No trial completed, and {num_failed} failed"
                    level = "warning"
                cause = f"{event.state} under driver {len(self._drivers)}"
                return self._raise(key, rule, cause, level, text, now_unix_s=event.time_unix_s)
            case RunEnded(), DriverStarted() if (
                before in ("running", "stopping") and len(self._drivers) > 1
            ):
                if "lost" not in rule.states:
                    return None
                return self._raise_lost(
                    key, rule, -2, "was gone. Another driver continues", event.time_unix_s
                )
            case Diverged(), TrialEnded(reason="diverged"):
                text = f"trial {event.trial} diverged: {event.message or 'its loss is not finite'}"
                cause = f"trial {event.trial}"
                return self._raise(
                    key,
                    rule,
                    cause,
                    "warning",
                    text,
                    now_unix_s=event.time_unix_s,
                    trial=event.trial,
                )
            case LogLine(), LogMatched() if event.pattern == rule.pattern:
                text = (
                    f"trial {event.trial}, worker {event.rank} on {event.host} printed:"
                    f" {event.line}"
                )
                return self._raise(
                    key,
                    rule,
                    f"trial {event.trial} attempt {event.attempt}",
                    "warning",
                    text,
                    now_unix_s=event.time_unix_s,
                    trial=event.trial,
                    node=event.node,
                    action=rule.action,
                )
            case _:
                return None

    def _clear_by(self, event: Event) -> Iterator[AlertCleared]:
        """Clear alerts whose cause has passed according to an event."""
        if not self._reported:
            return
        passed = {"silence": event.type in _PROGRESS, "wait": bool(self._running)}
        for (_, cause), number in list(self._reported.items()):
            if passed.get(cause):
                text = "trials report again" if cause == "silence" else "a trial has workers"
                yield self._clear(number, text, event.time_unix_s)

    def _raise(
        self,
        key: str,
        rule: SettingsRule,
        cause: str,
        level: AlertLevel,
        text: str,
        *,
        now_unix_s: float,
        trial: int | None = None,
        node: str | None = None,
        action: AlertAction = "notify",
    ) -> AlertRaised | None:
        """Raise an alert, unless it is already raised or the rule has reached its limit."""
        num_raised = self._num_of_rule[key]
        if (key, cause) in self._reported or num_raised >= rule.at_most:
            return None
        if num_raised + 1 == rule.at_most:
            text += " (the last alert of this rule)"
        raised = AlertRaised(
            time_unix_s=now_unix_s,
            alert=self._num_raised,
            on=rule.on,
            rule=key,
            cause=cause,
            level=level,
            message=text,
            to=list(rule.to or ()),
            action=action,
            trial=trial,
            node=node,
        )
        self.apply(raised)
        return raised

    def _clear(self, number: int, text: str, now_unix_s: float) -> AlertCleared:
        cleared = AlertCleared(time_unix_s=now_unix_s, alert=number, message=text)
        self.apply(cleared)
        return cleared

    def _take_raised(self, event: AlertRaised) -> None:
        if event.alert < self._num_raised:
            return  # it was applied when it was raised
        self._num_raised = event.alert + 1
        self._reported[event.rule, event.cause] = event.alert
        self._num_of_rule[event.rule] += 1
        self.undelivered |= {(event.alert, sink): event for sink in event.to if sink != JUPYTER}
        if event.action == "exclude_node" and event.node is not None:
            self.excluded_nodes.add(event.node)
        if event.trial not in self._running:
            return
        if event.action == "stop":
            self.to_stop[event.trial] = f"stopped by a rule: {event.message}"
        elif event.action != "notify":
            self.to_retry[event.trial] = event

    def _move(self, trial: int, place: set[int] | None) -> None:
        """Note where a trial is now, and that its attempt no longer needs to be ended."""
        self._running.discard(trial)
        self._waiting.discard(trial)
        self.to_retry.pop(trial, None)
        if place is None:
            self.to_stop.pop(trial, None)
        else:
            place.add(trial)


_HANDLERS: dict[type[Event], Callable[[Alerts, Any], None]] = {
    AlertsArmed: Alerts._arm,
    AlertRaised: Alerts._take_raised,
    AlertCleared: Alerts._take_cleared,
    AlertDelivered: Alerts._take_delivered,
    DriverStarted: Alerts._take_driver,
    RunStateChanged: Alerts._take_state,
    TrialProposed: Alerts._take_proposed,
    TrialStarted: Alerts._take_started,
    AttemptEnded: Alerts._take_attempt_ended,
    TrialEnded: Alerts._take_ended,
}


def _joined(rules: Iterable[SettingsRule]) -> dict[str, SettingsRule]:
    """Return the rules by key. Rules with the same conditions become one, with all sinks."""
    joined: dict[str, SettingsRule] = {}
    for rule in rules:
        before = joined.get(rule_key(rule))
        sinks = dict.fromkeys([*((before and before.to) or ()), *(rule.to or ())])
        joined[rule_key(rule)] = rule.model_copy(update={"to": tuple(sinks) or None})
    return joined


def rule_key(rule: SettingsRule) -> str:
    """Return a hash of a rule's conditions, which does not depend on its sinks."""
    conditions = json.dumps(rule.model_dump(mode="json", exclude={"to"}), sort_keys=True)
    return hashlib.sha256(conditions.encode()).hexdigest()[:12]


def _judge(
    rule: SettingsRule, reading: NodeReading | ServedReading
) -> Iterator[tuple[str, AlertLevel, bool, bool, str]]:
    """Yield the findings of a rule: cause, level, is present, has passed, message."""
    match rule, reading:
        case Drift(), ServedReading():
            names, rows = (
                ", ".join(reading.drifted) or "nothing",
                format_count(reading.num_rows, "row"),
            )
            text = f"drift from the training data in {names} ({rows})"
            yield reading.model, "warning", bool(reading.drifted), not reading.drifted, text
        case DiskFull(), NodeReading():
            for path, used in reading.disks_used.items():
                text = f"the disk of {path} on {reading.node} is {format_percent(used)} full"
                yield (
                    f"{reading.node} disk {path}",
                    "warning",
                    used > rule.above,
                    used < rule.above - EMPTIER,
                    text,
                )
        case Temperature(), NodeReading():
            for gpu in reading.gpus:
                if (temperature_c := gpu.temperature_c) is not None:
                    text = f"GPU {gpu.uuid} on {reading.node} is at {temperature_c:.0f} °C"
                    is_cool = temperature_c < rule.above - COOLER_C
                    yield (
                        f"{reading.node} heat {gpu.uuid}",
                        "warning",
                        temperature_c > rule.above,
                        is_cool,
                        text,
                    )
        case GpuLost(), NodeReading():
            for gpu in reading.gpus:
                lost = gpu.state == "lost"
                text = f"GPU {gpu.uuid} on {reading.node} is {'lost' if lost else 'back'}"
                yield f"{reading.node} loss {gpu.uuid}", "error", lost, not lost, text
        case _:
            pass

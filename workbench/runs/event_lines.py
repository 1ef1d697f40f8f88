"""Events as lines of text: one for each change of state, readable in a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import (
    AlertCleared,
    AlertDelivered,
    AlertRaised,
    AttemptEnded,
    CandidateTried,
    CommandHandled,
    DriverStarted,
    Event,
    Noted,
    PlanMeasured,
    RatesTested,
    ResizeMeasured,
    RunStateChanged,
    SharingMeasured,
    TrialEnded,
    TrialEnqueued,
    TrialStarted,
    VersionDecided,
    VersionJudged,
)
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_number,
    format_params,
    format_range,
    format_rate,
    format_value,
)
from workbench.runs.descriptions import describe_place, describe_reason, first_line
from workbench.runs.progress import describe_trial
from workbench.store.database import Store
from workbench.store.history import History, Trial
from workbench.store.history.compression import is_compression
from workbench.store.history.lineage import describe_segment, describe_turn
from workbench.store.history.standings import place

MEASUREMENT_TYPES = ("plan_measured", "sharing_measured", "rates_tested", "candidate_tried")
"""The types of the events that have a `measurement_line`."""


def describe_advised(event: TrialEnqueued) -> str:
    """Write a configuration from advice, and which of its parameters the advice did not choose.

    Args:
        event: A configuration with an `advice_run_id`.
    """
    params, advised = event.params, event.advised
    words = [
        f"{name}={format_value(params[name])}"
        + (f" (advised: {format_value(value)})" if value != params[name] else "")
        for name, value in advised.items()
    ]
    text = f"{' '.join(words)}, as {event.advice_run_id} advises"
    if rest := {name: value for name, value in params.items() if name not in advised}:
        text += f", with {format_params(rest)}"
    return text


def describe_both_advices(
    followed: TrialEnqueued, own: Mapping[str, Any], older: Mapping[str, Any] | None
) -> str:
    """Write why a run has its own advice although it starts with a configuration of older advice.

    Args:
        followed: The configuration of the older advice.
        own: What the run measured before its first trial.
        older: The older advice, or None if it is not stored any more.
    """
    text = (
        f"The first configuration is what {followed.advice_run_id} advises. How a trial is divided"
        " was measured again for this run, on the workers that it has now. That is the advice below"
    )
    decided = dict(own.get("settings") or {})
    earlier = dict((older or {}).get("settings") or {})
    differences = [
        f"{path} {format_value(value)} instead of {format_value(earlier[path])}"
        for path, value in decided.items()
        if path in earlier and earlier[path] != value
    ]
    return f"{text}: {', '.join(differences)}." if differences else f"{text}."


def measurement_line(event: Event) -> str | None:
    """Return the line of a measurement for advice, or None for other events."""
    match event:
        case PlanMeasured(by_trial=None):
            plan = PartialPlan.from_json(event.plan)
            if not event.is_possible:
                return f"not possible with this model: {plan.work_text}: {event.message}"
            description = plan.describe()
            if event.samples_per_s is None:
                return f"does not fit: {description}: {event.message}"
            return f"measured {description}: {format_rate(event.samples_per_s)} samples/s"
        case SharingMeasured():
            return event.message
        case RatesTested(rates=[]):
            return "no learning rate could be tested"
        case RatesTested():
            result = "none reduced the loss"
            if event.suggested is not None:
                result = f"{format_number(event.suggested)} suggested"
            tested = format_range(event.rates[0], event.rates[-1], format_number)
            return f"learning rates from {tested} tested: {result}"
        case CandidateTried():
            return _candidate_line(event)
        case _:
            return None


def _candidate_line(event: CandidateTried) -> str:
    plan = PartialPlan.from_json(event.plan)
    workers = ""
    if plan.workers is not None:
        workers = f" on {format_count(plan.workers, 'worker')}"
    line = (
        f"a training with a batch of {plan.global_batch}{workers} and a learning rate of"
        f" {format_number(event.lr)} reached {format_params(event.values)} in"
        f" {format_duration(event.elapsed_s)}"
    )
    if event.reached_target:
        line += ", and the target"
    return line


def advice_line(event: Event) -> str | None:
    """Return the line of a measurement for advice, or of a note."""
    if isinstance(event, Noted):
        return event.message
    return measurement_line(event)


def _state_line(event: RunStateChanged) -> str:
    why = describe_reason(event.reason, event.message)
    if not why:
        return f"run {event.state}"
    return f"run {event.state}: {why}"


def _command_line(event: CommandHandled) -> str | None:
    if event.kind == "enqueue" and event.done and not event.by:
        return None  # the enqueued configuration has its own line
    kind = event.kind.replace("_", " ")
    if event.by:
        kind = f"agent {event.by}: {kind}"
    if event.done:
        return f"{kind}: {event.message}"
    return f"{kind}: rejected: {event.message}"


def describe_agents(store: Store, run_id: str) -> list[str]:
    """Return a line for each thing that an agent did with a run, oldest first.

    Args:
        store: The store of the run.
        run_id: The run.
    """
    stored = store.events(run_id, types=["command_handled"])
    events = [item.event for item in stored if isinstance(item.event, CommandHandled)]
    return [line for event in events if event.by and (line := _command_line(event))]


def _note_line(event: Noted) -> str:
    if event.trial is None:
        return f"{event.level}: {event.message}"
    return f"{event.level}: trial {event.trial}: {event.message}"


def _decision_line(event: VersionDecided) -> str:
    return f"{event.version} compared with {event.baseline}: {event.words}"


def _verdict_line(event: VersionJudged) -> str:
    return f"{event.by} {event.verdict} the version {event.version}"


def _raised_line(event: AlertRaised) -> str:
    return f"alert: {event.message}"


def _cleared_line(event: AlertCleared) -> str:
    return f"alert {event.alert} has passed: {event.message}"


def _delivered_line(event: AlertDelivered) -> str:
    if event.sent:
        return f"alert {event.alert} was sent to {event.sink}"
    return f"alert {event.alert} could not be sent to {event.sink}: {event.message}"


class Narrator:
    """Describes the events of a run.

    It keeps track of the best trial, so it must receive every event.
    """

    def __init__(self, history: History) -> None:
        """Describe events of `history`. Each event is applied to it first."""
        self._history = history
        self._best: float | None = None
        self._has_shown_traceback = False
        self._handlers: dict[type[Event], Callable[[Any], str | None]] = {
            TrialStarted: self._start_line,
            TrialEnded: self._end_line,
            TrialEnqueued: self._enqueued_line,
            AttemptEnded: self._attempt_line,
            ResizeMeasured: self._resize_line,
            DriverStarted: self._driver_line,
            RunStateChanged: _state_line,
            CommandHandled: _command_line,
            Noted: _note_line,
            VersionDecided: _decision_line,
            VersionJudged: _verdict_line,
            AlertRaised: _raised_line,
            AlertCleared: _cleared_line,
            AlertDelivered: _delivered_line,
        }

    def traceback_of(self, event: Event) -> str | None:
        """Return the traceback to show below the line of an event.

        That of the run's first failure only.

        Args:
            event: The newest event.
        """
        if self._has_shown_traceback or not isinstance(event, TrialEnded) or not event.traceback:
            return None
        self._has_shown_traceback = True
        return event.traceback.rstrip()

    def line_of(self, event: Event) -> str | None:
        """Return the line of an event, or None if it changes no state.

        Args:
            event: The newest event.
        """
        return self._handlers.get(type(event), measurement_line)(event)

    def _start_line(self, event: TrialStarted) -> str:
        trial = self._history.trials[event.trial]
        line = f"trial {event.trial} running"
        turn = describe_turn(self._history, trial)
        if turn is not None and trial.turn:
            line += f" again in {turn}"
        elif event.attempt:
            line += f" again (attempt {event.attempt + 1})"
        if trial.clone is not None and not event.attempt:
            return f"{line}: {describe_segment(self._history, trial)}"
        if trial.resumes is not None and not event.attempt:
            line += f": {describe_segment(self._history, trial)}"
            if not self._history.experiment.fidelity:
                line += " and may end as the best after all"
            line += ":"
        elif event.resumed_from:
            line += " from its checkpoint"
        return f"{line} {format_params(trial.params)}".rstrip()

    def _attempt_line(self, event: AttemptEnded) -> str:
        message = first_line(event.message)
        if event.turn is not None:
            at = describe_trial(self._history, self._history.trials[event.trial])
            return f"trial {event.trial} waiting: {message}, at {at}"
        if event.reason == "stopped":  # it continues only when the run is resumed
            return f"trial {event.trial} stopped: {message}"
        if event.reason == "resized":
            return f"trial {event.trial} waiting: {message}"
        why = f"attempt {event.attempt + 1} failed ({event.reason}): {message}"
        return f"trial {event.trial} waiting: {why}{self._next_attempt(event)}"

    def _resize_line(self, event: ResizeMeasured) -> str:
        resize = self._history.trials[event.trial].resizes[-1]
        return f"trial {event.trial} {resize.describe()}"

    def _driver_line(self, event: DriverStarted) -> str:
        # The history may know later drivers already.
        again = "again " if event != self._history.drivers[0] else ""
        return f"driver started {again}as process {event.pid} on {event.host}"

    def _enqueued_line(self, event: TrialEnqueued) -> str | None:
        if is_compression(self._history.experiment) and not self._history.trials:
            return None  # every compression starts with the same ones
        if event.advice_run_id:
            return f"enqueued {describe_advised(event)}"
        line = f"enqueued {format_params(event.params)}"
        if event.clone is not None:
            line = f"enqueued a clone of trial {event.clone.of}: {format_params(event.params)}"
        return line

    def _next_attempt(self, event: AttemptEnded) -> str:
        """Return what follows an attempt that ended earlyif it is a retry."""
        trial = self._history.trials[event.trial]
        if not event.is_retry:
            return ""
        allowed = self._history.experiment.resources.max_retries
        line = f". Retry {trial.num_retries} of {allowed} follows"
        if trial.last_checkpoint is not None:
            line += " from its last checkpoint"
        return line

    def _end_line(self, event: TrialEnded) -> str:
        trial = self._history.trials[event.trial]
        if event.state == "failed":
            place = describe_place(trial.failed_at)
            why = f"{first_line(event.message)}{place}"
            line = f"trial {event.trial} failed ({event.reason}): {why}"
            if event.reason == "lost":
                retries = format_count(trial.num_retries, "retry", "retries")
                line += f" after {retries} (resources.max_retries)"
            return line
        if event.state == "pruned" and event.message:
            return f"trial {event.trial} pruned: {event.message}; {format_params(trial.params)}"
        shown = {
            item.metric: event.values[item.metric]
            for item in self._history.objectives
            if item.metric in event.values
        }
        words = [
            f"trial {event.trial} {event.state}",
            format_params(shown),
            format_params(trial.params),
        ]
        if event.state != "complete":
            words.insert(1, f"at step {event.step}")
        elif self._is_best(trial):
            words.insert(2, "(best so far)")
        return " ".join(word for word in words if word)

    def _is_best(self, trial: Trial) -> bool:
        # With repeats, the mean over the trials of a configuration decides, not one trial.
        # With several objectives no single trial is the best.
        several = self._history.experiment.repeats > 1 or len(self._history.objectives) > 1
        if several or not self._history.is_feasible(trial):
            return False
        # The history may have applied later events already, so its own best may be one of the
        # future.
        objective = self._history.objectives[0]
        # A tie is no improvement, whichever of both was proposed first.
        value, _ = place(objective, trial.values[objective.metric], trial.configuration)
        if self._best is not None and value >= self._best:
            return False
        self._best = value
        return True

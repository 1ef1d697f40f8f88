"""Events as lines of text: one for each change of state, readable in a log."""

from __future__ import annotations

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
)
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_number,
    format_params,
    format_range,
    format_rate,
)
from workbench.runs.descriptions import describe_place, describe_reason, first_line
from workbench.store.history import History, Trial
from workbench.store.history.compression import is_compression
from workbench.store.history.lineage import describe_segment
from workbench.store.history.standings import place

MEASUREMENT_TYPES = ("plan_measured", "sharing_measured", "rates_tested", "candidate_tried")
"""The types of the events that have a `measurement_line`."""


def measurement_line(event: Event) -> str | None:
    """Return the line of a measurement for advice; None for other events."""
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
            found = (
                None if event.suggested is None else f"{format_number(event.suggested)} suggested"
            )
            tested = format_range(event.rates[0], event.rates[-1], format_number)
            return f"learning rates from {tested} tested: {found or 'none reduced the loss'}"
        case CandidateTried():
            plan, reached = (
                PartialPlan.from_json(event.plan),
                ", and the target" * event.reached_target,
            )
            workers = "" if plan.workers is None else f" on {format_count(plan.workers, 'worker')}"
            return (
                f"a training with a batch of {plan.global_batch}{workers} and a learning rate of "
                f"{format_number(event.lr)} reached {format_params(event.values)} in "
                f"{format_duration(event.elapsed_s)}{reached}"
            )
        case _:
            return None


def advice_line(event: Event) -> str | None:
    """Return the line of a measurement for advice, or of a note, such as what the advice waits
    for.
    """
    return event.message if isinstance(event, Noted) else measurement_line(event)


class Narrator:
    """Describes the events of a run.

    It keeps track of the best trial, so it must receive every event.
    """

    def __init__(self, history: History) -> None:
        """Describe events of `history`; each event is applied to it first."""
        self._history = history
        self._best: tuple[float, int] | None = None
        self._has_shown_traceback = False

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
        """Return the line of an event, or None where it changes no state.

        Args:
            event: The newest event.
        """
        match event:
            case TrialEnded():
                return self._end_line(event)
            case TrialStarted():
                trial = self._history.trials[event.trial]
                again = f" again (attempt {event.attempt + 1})" if event.attempt else ""
                resumed = " from its checkpoint" if event.resumed_from else ""
                if trial.resumes is not None and not event.attempt:
                    source = describe_segment(self._history, trial)
                    why = (
                        ""
                        if self._history.experiment.fidelity
                        else " and may end as the best after all"
                    )
                    resumed = f": {source}{why}:"
                return f"trial {event.trial} running{again}{resumed} {format_params(trial.params)}".rstrip()
            case AttemptEnded(reason="stopped"):  # it continues only when the run is resumed
                return f"trial {event.trial} stopped: {first_line(event.message)}"
            case AttemptEnded():
                why = (
                    f"attempt {event.attempt + 1} failed ({event.reason}):"
                    f" {first_line(event.message)}"
                )
                return f"trial {event.trial} waiting: {why}{self._next_attempt(event)}"
            case ResizeMeasured():
                return (
                    f"trial {event.trial}"
                    f" {self._history.trials[event.trial].resizes[-1].describe()}"
                )
            case RunStateChanged():
                why = describe_reason(event.reason, event.message)
                return f"run {event.state}" + (f": {why}" if why else "")
            case DriverStarted():
                # The history may know later drivers already.
                again = "again " if event != self._history.drivers[0] else ""
                return f"driver started {again}as process {event.pid} on {event.host}"
            case CommandHandled(kind="enqueue", done=True):
                return None  # what is enqueued has a line of its own
            case CommandHandled():
                return (
                    f"{event.kind.replace('_', ' ')}:"
                    f" {'' if event.done else 'refused: '}{event.message}"
                )
            case TrialEnqueued() if (
                is_compression(self._history.experiment) and not self._history.trials
            ):
                return None  # every compression begins with the same ones
            case TrialEnqueued():
                why = f", as {event.advice_run_id} advises" if event.advice_run_id else ""
                return f"enqueued {format_params(event.params)}{why}"
            case Noted():
                subject = "" if event.trial is None else f"trial {event.trial}: "
                return f"{event.level}: {subject}{event.message}"
            case AlertRaised():
                return f"alert: {event.message}"
            case AlertCleared():
                return f"alert {event.alert} has passed: {event.message}"
            case AlertDelivered(sent=True):
                return f"alert {event.alert} was sent to {event.sink}"
            case AlertDelivered():
                return f"alert {event.alert} could not be sent to {event.sink}: {event.message}"
            case _:
                return measurement_line(event)

    def _next_attempt(self, event: AttemptEnded) -> str:
        """Return what follows an attempt that ended early, where that counts as a retry."""
        trial = self._history.trials[event.trial]
        if not event.is_retry:
            return ""
        place = "" if trial.last_checkpoint is None else " from its last checkpoint"
        allowed = self._history.experiment.resources.max_retries
        return f"; retry {trial.num_retries} of {allowed} follows{place}"

    def _end_line(self, event: TrialEnded) -> str:
        trial = self._history.trials[event.trial]
        if event.state == "failed":
            place = describe_place(trial.failed_at)
            retries = format_count(trial.num_retries, "retry", "retries")
            after = f"; it had {retries} (resources.max_retries)" if event.reason == "lost" else ""
            return (
                f"trial {event.trial} failed ({event.reason}):"
                f" {first_line(event.message)}{place}{after}"
            )
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
        found = place(objective, trial.values[objective.metric], trial.configuration)
        if self._best is not None and found >= self._best:
            return False
        self._best = found
        return True

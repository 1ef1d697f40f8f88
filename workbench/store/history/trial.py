"""One trial, built from its events: its state, attempts, last report and result."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import (
    FINISHED_TRIAL_STATES,
    AttachmentSaved,
    AttemptEnded,
    CheckpointSaved,
    Clone,
    LowFidelity,
    PeakRate,
    PredictedMemory,
    Reason,
    ResizeMeasured,
    Segment,
    TokenCounts,
    TrialEnded,
    TrialPlanned,
    TrialReported,
    TrialResized,
    TrialStarted,
    TrialState,
    TrialTested,
    continued_trial,
)
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_rate,
    format_value,
)
from workbench.store.history.failure_text import failure_place

TrialEvent = (
    TrialStarted
    | TrialPlanned
    | TrialReported
    | TrialTested
    | CheckpointSaved
    | AttachmentSaved
    | AttemptEnded
    | TrialResized
    | ResizeMeasured
    | TrialEnded
)


@dataclasses.dataclass
class Resize:
    """One change of a trial's workers: what was expected and, once it is known, measured.

    `plan` is the plan of the trial before the change.
    """

    decided: TrialResized
    plan: PartialPlan
    measured: ResizeMeasured | None = None

    def describe(self) -> str:
        """Describe the change in one sentence."""
        decided, measured = self.decided, self.measured
        if decided.cause == "guard":
            return (
                f"went back from {decided.from_workers} to"
                f" {format_count(decided.to_workers, 'worker')} and its checkpoint from before,"
                " because its validation fell behind the forecast"
            )
        verb = "grew" if decided.cause == "idle" else "shrank"
        why = "" if decided.for_run is None else f" because run {decided.for_run} waited for some"
        speed = decided.expected_samples_per_s if measured is None else measured.samples_per_s
        text = (
            f"{verb} from {decided.from_workers} to"
            f" {format_count(decided.to_workers, 'worker')}{why}: "
            f"{format_rate(decided.samples_per_s)} -> "
            f"{'about ' if measured is None else ''}{format_rate(speed)} samples/s"
        )
        expected = _earlier(decided.expected_saving_s)
        if measured is None:
            return f"{text}, expected to end {expected}"
        if measured.restart_s is None or measured.saving_s is None:
            return f"{text}. The cost of the restart is unknown"
        return (
            f"{text}. The restart took {format_duration(measured.restart_s)}, "
            f"and the trial ends {_earlier(measured.saving_s)} (expected: {expected})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the decision and the measurement as plain values."""
        plain = self.decided.model_dump(exclude={"type", "trial", "time_unix_s"})
        measured = self.measured and self.measured.model_dump(
            include={"samples_per_s", "restart_s", "saving_s"}
        )
        return plain | {"measured": measured}


def _earlier(saving_s: float) -> str:
    return f"{format_duration(abs(saving_s))} {'later' if saving_s < 0 else 'earlier'}"


_NOTHING_DECIDED = PartialPlan()


@dataclasses.dataclass(slots=True, repr=False)
class Trial:
    """One trial of a run, up to its latest event.

    Example:
        >>> run.history.trials[0].state
        'complete'
    """

    number: int
    params: dict[str, JsonValue]
    configuration: int
    repeat: int
    seed: int
    source: str
    proposed_unix_s: float
    choosing_s: float | None = None
    segment: Segment | None = None  # which part of a training it is, in a population
    resumes: int | None = None  # the stopped trial of its configuration that it continues
    clone: Clone | None = None  # the trial from which a user has cloned it
    turn: int = 0  # the turns that it has finished, if trials train in turns
    between_turns: bool = False  # whether it waits for its next turn
    # Its result after each turn.
    turn_values: Mapping[int, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    restarts_s: Sequence[float] = ()  # what each turn took longer than its steps, in seconds
    first_step: int | None = None  # the first step above 0 that it ever reported
    fidelity: LowFidelity | None = None  # what makes it cheaper than a full training
    state: TrialState = "waiting"
    reason: Reason | None = None
    message: str | None = None
    traceback: str | None = None
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    last_values: dict[str, float] = dataclasses.field(default_factory=dict)
    num_validation: int | None = None  # validation samples, if their number is known
    num_test: int | None = None  # test samples
    # Measured on the test samples, at the end.
    test_values: Mapping[str, float] = dataclasses.field(default_factory=dict)
    last_step: int = 0
    last_epoch: float | None = None
    # The time, step and epoch of the first report of the last attempt.
    first_report: tuple[float, int, float | None] | None = None
    samples_per_s: float | None = None
    # Seconds per step, by part of the step.
    parts_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # The rank, and how many times as long as other replicas it takes.
    slowest_rank: tuple[int, float] | None = None
    reports: int = 0
    reports_left_out: int = 0  # they arrived too fast and were not stored
    attempts: int = 0
    program: int = 1  # the version of the code that its last attempt ran
    plan: PartialPlan = _NOTHING_DECIDED
    tokens: TokenCounts | None = None  # if its samples are tokens
    memory_share: float | None = None  # the largest share of its GPU's memory so far
    memory_limit_bytes: float | None = None  # what a worker may use of its GPU's memory
    predicted_memory: PredictedMemory | None = None  # if it trains a language model in a folder
    trunk_of: int | None = None  # the trial whose stable part it shares
    trunk_s: float = 0.0  # how long that part trained
    peak_rate: PeakRate | None = None  # its learning rate, after scaling to the batch
    decided_plan: PartialPlan = _NOTHING_DECIDED  # overrides the requested plan
    # How the attempts before the last one ended.
    setbacks: list[AttemptEnded] = dataclasses.field(default_factory=list)
    resizes: list[Resize] = dataclasses.field(default_factory=list)
    fits: bool = True
    is_unreported: bool = False  # a program that ended without an error or an objective
    worker_pids: list[int] = dataclasses.field(default_factory=list)
    hosts: list[str] = dataclasses.field(default_factory=list)
    gpus: list[list[str]] = dataclasses.field(default_factory=list)
    """The GPUs of each worker of the last attempt. A shared one belongs to each of its workers."""
    earlier_gpu_s: float = 0.0  # in attempts that have ended
    started_unix_s: float | None = None
    planned_unix_s: float | None = None  # when the first attempt had its data and model
    ended_unix_s: float | None = None
    trained_s: float = 0.0  # in attempts that have ended, as `duration_s` counts them
    attempt_unix_s: float = 0.0  # when the last attempt started
    # Whether the sums over attempts include the last one. True also before the first attempt.
    attempt_counted: bool = True
    last_event_unix_s: float = 0.0
    last_checkpoint: str | None = None
    saved_step: int = 0  # the step of its newest checkpoint
    best_checkpoint: str | None = None
    attachments: list[AttachmentSaved] = dataclasses.field(default_factory=list)
    checkpoints_deleted: str | None = None  # the setting that required it
    # Stopped only because the run ended. It continues when the run is resumed.
    interrupted: bool = False

    def __repr__(self) -> str:
        shown = {**(self.values or self.last_values), **self.params}
        numbers = [f"{name}={format_value(value)}" for name, value in shown.items()]
        return ", ".join([f"trial {self.number}", self.state, *numbers])

    @property
    def finished(self) -> bool:
        """Whether the trial will not run again."""
        return self.state in FINISHED_TRIAL_STATES

    @property
    def duration_s(self) -> float | None:
        """How long the trial ran, in seconds, or None if it has not started.

        It is the sum over its attempts, each from its start to its end. If an attempt is active,
        was lost, or was cut off by the end of its run, it counts up to its last event. The time
        between attempts does not count. Every table and file shows this number.
        """
        if self.started_unix_s is None:
            return None
        return self.trained_s + self.attempt_s(self.last_event_unix_s)

    @property
    def loading_s(self) -> float:
        """How long its first attempt took to start workers, data and model. 0 if unknown."""
        if self.started_unix_s is None or self.planned_unix_s is None:
            return 0.0
        return max(0.0, self.planned_unix_s - self.started_unix_s)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens trained per second by all workers, or None if its samples are not tokens."""
        if self.tokens is None or self.samples_per_s is None:
            return None
        return self.samples_per_s * self.tokens.per_sample

    @property
    def num_tokens(self) -> float | None:
        """Tokens that it has trained on, without padding, or None if samples are not tokens."""
        if self.tokens is None or self.last_epoch is None:
            return None
        return self.last_epoch * self.tokens.num_samples * self.tokens.per_sample

    @property
    def memory_gb(self) -> float | None:
        """The most memory that its first worker has used of its GPU, in GB, or None on a CPU."""
        if self.memory_share is None or self.memory_limit_bytes is None:
            return None
        return self.memory_share * self.memory_limit_bytes / 1e9

    @property
    def utilisation(self) -> float | None:
        """The share of its GPUs' peak rate that its model uses (MFU), or None if unknown."""
        tokens, tokens_per_s = self.tokens, self.tokens_per_s
        if tokens is None or tokens_per_s is None:
            return None
        if tokens.flops_per_token is None or not tokens.peak_flops_per_s:
            return None
        return min(1.0, tokens_per_s * tokens.flops_per_token / tokens.peak_flops_per_s)

    def value_of(self, metric: str) -> float | None:
        """Return a metric as every table shows it: its result, or its last report until then.

        Args:
            metric: Name of the metric. For one that was never reported, None is returned.
        """
        return self.values.get(metric, self.last_values.get(metric))

    @property
    def shown_values(self) -> dict[str, float]:
        """Every metric as `value_of` returns it. Results come first."""
        return {
            **self.values,
            **{name: value for name, value in self.last_values.items() if name not in self.values},
        }

    @property
    def continued(self) -> int | None:
        """The trial that it continues or whose configuration it trains further, or None."""
        return continued_trial(self.clone, self.segment, self.resumes)

    @property
    def inherits(self) -> bool:
        """Whether it is a clone that continues from the weights of another trial."""
        return self.clone is not None and self.clone.inherits

    @property
    def num_gpus(self) -> int:
        """The number of GPUs of all workers. A shared one counts for each of its workers."""
        return sum(map(len, self.gpus))

    def gpu_s(self, now_unix_s: float) -> float:
        """Return how long its workers have held GPUs, summed over the GPUs, in seconds."""
        until_unix_s = now_unix_s if self.state == "running" else self.last_event_unix_s
        return self.earlier_gpu_s + self.num_gpus * self.attempt_s(until_unix_s)

    @property
    def has_open_attempt(self) -> bool:
        """Whether its last attempt has begun, and no event says that it has ended."""
        return not self.attempt_counted

    def attempt_s(self, until_unix_s: float) -> float:
        """Return how long the last attempt has taken, or 0 if the sums already include it."""
        if self.attempt_counted:
            return 0.0
        return max(0.0, until_unix_s - self.attempt_unix_s)

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether an attempt before the last one ran out of memory."""
        return any(setback.reason == "oom" for setback in self.setbacks)

    @property
    def ways_tried(self) -> tuple[PartialPlan, ...]:
        """The changes to its plan that were tried because memory ran out."""
        return tuple(
            PartialPlan.from_json(setback.next_plan)
            for setback in self.setbacks
            if setback.reason in ("oom", "error") and setback.next_plan
        )

    @property
    def num_retries(self) -> int:
        """How many of its attempts ended in a way that counts against `max_retries`."""
        return sum(setback.is_retry for setback in self.setbacks)

    @property
    def failed_at(self) -> str | None:
        """The line of the user's code at which the trial failed, as file:line, if it is known."""
        return failure_place(self.traceback)

    def to_json(self) -> dict[str, Any]:
        """Return the trial as plain values for programs."""
        return {
            "number": self.number,
            "state": self.state,
            "reason": self.reason,
            "message": self.message,
            "failed_at": self.failed_at,
            "traceback": self.traceback,
            "params": self.params,
            "segment": self.segment and self.segment.model_dump(),
            "resumes": self.resumes,
            "clone": self.clone and self.clone.model_dump(),
            "turn": self.turn,
            "fidelity": self.fidelity and self.fidelity.model_dump(),
            "plan": self.plan.to_json(),
            "tokens": self.tokens and self.tokens.model_dump(),
            "memory_share": self.memory_share,
            "memory_gb": self.memory_gb,
            "predicted_memory": self.predicted_memory and self.predicted_memory.model_dump(),
            "peak_rate": self.peak_rate and self.peak_rate.model_dump(),
            "values": self.values,
            "last_step": self.last_step,
            "reports": self.reports,
            "reports_left_out": self.reports_left_out,
            "attempts": self.attempts,
            "setbacks": [
                setback.model_dump(include={"attempt", "reason", "message", "next_plan"})
                for setback in self.setbacks
            ],
            "attachments": [
                saved.model_dump(include={"name", "kind", "step", "file", "size_bytes"})
                for saved in self.attachments
            ],
            "resizes": [resize.to_json() for resize in self.resizes],
        }


def apply_to_trial(trial: Trial, event: TrialEvent) -> None:
    """Apply the next event of a trial to its record."""
    _HANDLERS[type(event)](trial, event)
    trial.last_event_unix_s = event.time_unix_s


def _start(trial: Trial, event: TrialStarted) -> None:
    trial.state = "running"
    trial.attempts, trial.program = event.attempt + 1, event.program
    trial.plan = _shared(PartialPlan.from_json(event.plan))
    trial.worker_pids, trial.hosts = list(event.worker_pids), list(event.hosts)
    trial.between_turns = False
    _count_attempt(trial, trial.last_event_unix_s)  # if nobody could record the last one's end
    trial.attempt_unix_s, trial.attempt_counted = event.time_unix_s, False
    trial.gpus = [list(gpus) for gpus in event.gpus]
    trial.first_report = trial.slowest_rank = None
    if trial.started_unix_s is None:
        trial.started_unix_s = event.time_unix_s


def _plan(trial: Trial, event: TrialPlanned) -> None:
    trial.plan = _shared(PartialPlan.from_json(event.plan))
    trial.peak_rate, trial.tokens = event.peak_rate, event.tokens
    trial.memory_limit_bytes = event.memory_limit_bytes
    trial.predicted_memory = event.predicted_memory
    if event.trunk_of is not None:
        trial.trunk_of, trial.trunk_s = event.trunk_of, event.saved_s or 0.0
    trial.planned_unix_s = trial.planned_unix_s or event.time_unix_s
    if trial.clone is not None and event.begins_step is not None:
        begins = {"step": event.begins_step, "epoch": event.begins_epoch}
        trial.clone = trial.clone.model_copy(update=begins)
    trial.num_validation, trial.num_test = event.num_validation, event.num_test


def _test(trial: Trial, event: TrialTested) -> None:
    trial.test_values = dict(event.values)


def _report(trial: Trial, event: TrialReported) -> None:
    trial.reports += 1
    trial.reports_left_out += event.left_out
    trial.last_step, trial.last_epoch = event.step, event.epoch
    trial.first_report = trial.first_report or (event.time_unix_s, event.step, event.epoch)
    trial.first_step = trial.first_step or event.step or None
    trial.last_values.update(event.values)
    trial.samples_per_s = event.samples_per_s or trial.samples_per_s
    trial.parts_s = event.parts_s or trial.parts_s
    if event.memory_share is not None:
        trial.memory_share = max(event.memory_share, trial.memory_share or 0.0)
    if event.slowest_rank is not None and event.slowest_rank_factor is not None:
        trial.slowest_rank = event.slowest_rank, event.slowest_rank_factor


def _save_checkpoint(trial: Trial, event: CheckpointSaved) -> None:
    trial.last_checkpoint = event.path
    trial.saved_step = max(trial.saved_step, event.step)
    if event.best:
        trial.best_checkpoint = event.path


def _attach(trial: Trial, event: AttachmentSaved) -> None:
    # Attachments of an attempt replace those of earlier ones at the same and later steps.
    trial.attachments = [
        earlier
        for earlier in trial.attachments
        if earlier.file not in event.replaces
        and (
            earlier.name != event.name
            or earlier.attempt == event.attempt
            or earlier.step < event.step
        )
    ]
    trial.attachments.append(event)


def _end_attempt(trial: Trial, event: AttemptEnded) -> None:
    trial.state = "waiting"
    trial.decided_plan |= PartialPlan.from_json(event.next_plan)
    if event.turn is None:
        trial.setbacks.append(event)
    else:
        trial.turn, trial.between_turns = event.turn, True
        trial.turn_values = {**trial.turn_values, event.turn: dict(event.values)}
        if event.restart_s is not None:
            trial.restarts_s = (*trial.restarts_s, event.restart_s)
    _count_attempt(trial, event.time_unix_s, is_cut=event.reason in ("lost", "stopped"))


def _resize(trial: Trial, event: TrialResized) -> None:
    trial.resizes.append(Resize(event, trial.plan))


def _measure_resize(trial: Trial, event: ResizeMeasured) -> None:
    trial.resizes[-1].measured = event


def _end(trial: Trial, event: TrialEnded) -> None:
    trial.state, trial.reason = event.state, event.reason
    trial.message, trial.traceback = event.message, event.traceback
    trial.values, trial.last_step = dict(event.values), event.step
    trial.ended_unix_s, trial.fits = event.time_unix_s, event.fits
    trial.is_unreported = event.is_unreported
    _count_attempt(trial, event.time_unix_s, is_cut=event.reason == "lost")


_HANDLERS: dict[type[TrialEvent], Callable[[Trial, Any], None]] = {
    TrialStarted: _start,
    TrialPlanned: _plan,
    TrialReported: _report,
    TrialTested: _test,
    CheckpointSaved: _save_checkpoint,
    AttachmentSaved: _attach,
    AttemptEnded: _end_attempt,
    TrialResized: _resize,
    ResizeMeasured: _measure_resize,
    TrialEnded: _end,
}
TRIAL_EVENTS = tuple(_HANDLERS)
"""The events that change a trial. Its proposal creates it."""


def _count_attempt(trial: Trial, until_unix_s: float, *, is_cut: bool = False) -> None:
    """Add the last attempt to the sums over attempts, unless they include it.

    If it was lost or cut off by the end of the run, nobody knows how long it continued to train, so
    training counts up to its last event. Its GPUs were in use until the end.
    """
    trial.trained_s += trial.attempt_s(trial.last_event_unix_s if is_cut else until_unix_s)
    trial.earlier_gpu_s += trial.num_gpus * trial.attempt_s(until_unix_s)
    trial.attempt_counted = True


@functools.lru_cache(maxsize=256)
def _shared(plan: PartialPlan) -> PartialPlan:
    """Return one object for equal plans, because thousands of trials have few different plans."""
    return plan

"""One trial as its events tell it: state, attempts, last report, result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from workbench.events import (
    FINISHED_TRIAL_STATES,
    AttemptEnded,
    CheckpointSaved,
    Reason,
    ResizeMeasured,
    TrialEnded,
    TrialPlanned,
    TrialReported,
    TrialResized,
    TrialStarted,
    TrialState,
)


@dataclasses.dataclass
class Resize:
    """One growth of a trial: what was expected of it and, once that is known, what it brought."""

    decided: TrialResized
    measured: ResizeMeasured | None = None

    def describe(self) -> str:
        """Say it in one sentence."""
        decided, measured = self.decided, self.measured
        speed = decided.expected_samples_per_s if measured is None else measured.samples_per_s
        said = (
            f"grew from {decided.from_workers} to {decided.to_workers} workers: "
            f"{decided.samples_per_s:,.0f} -> {'about ' if measured is None else ''}{speed:,.0f} samples/s"
        )
        if measured is None:
            return f"{said}, expected to end {decided.expected_saving_s:,.1f} s earlier"
        if measured.restart_s is None or measured.saving_s is None:
            return f"{said}; what the restart cost is not known"
        later = "later" if measured.saving_s < 0 else "earlier"
        return (
            f"{said}; the restart took {measured.restart_s:,.1f} s, "
            f"it ends {abs(measured.saving_s):,.1f} s {later} "
            f"(expected: {decided.expected_saving_s:,.1f} s earlier)"
        )

    def to_json(self) -> dict[str, Any]:
        """Return both as plain values."""
        plain = self.decided.model_dump(exclude={"type", "trial", "time_unix_s"})
        found = self.measured and self.measured.model_dump(include={"samples_per_s", "restart_s", "saving_s"})
        return plain | {"measured": found}


@dataclasses.dataclass
class Trial:
    """One trial of a run, as far as it has come."""

    number: int
    params: dict[str, JsonValue]
    configuration: int
    repeat: int
    seed: int
    source: str
    proposed_unix_s: float
    state: TrialState = "waiting"
    reason: Reason | None = None
    message: str | None = None
    traceback: str | None = None
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    last_values: dict[str, float] = dataclasses.field(default_factory=dict)
    last_step: int = 0
    last_epoch: float | None = None
    samples_per_s: float | None = None
    parts_s: Mapping[str, float] = dataclasses.field(default_factory=dict)  # seconds a step, by part
    reports: int = 0
    attempts: int = 0
    plan: dict[str, JsonValue] = dataclasses.field(default_factory=dict)
    decided_plan: dict[str, JsonValue] = dataclasses.field(default_factory=dict)  # over what was asked for
    setbacks: list[AttemptEnded] = dataclasses.field(default_factory=list)  # of its attempts but the last
    resizes: list[Resize] = dataclasses.field(default_factory=list)
    fits: bool = True
    worker_pids: list[int] = dataclasses.field(default_factory=list)
    hosts: list[str] = dataclasses.field(default_factory=list)
    started_unix_s: float | None = None
    ended_unix_s: float | None = None
    trained_s: float = 0.0  # in its attempts but the last, until each was heard of last
    attempt_unix_s: float = 0.0  # when the last attempt began
    heard_unix_s: float = 0.0
    last_checkpoint: str | None = None
    best_checkpoint: str | None = None
    checkpoints_deleted: str | None = None  # the setting that asked for it
    interrupted: bool = False  # stopped only because the run ended; goes on when the run is resumed

    @property
    def finished(self) -> bool:
        """Whether the trial will not run again."""
        return self.state in FINISHED_TRIAL_STATES

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether an attempt before the last one did."""
        return any(setback.reason == "oom" for setback in self.setbacks)

    @property
    def num_retries(self) -> int:
        """How many of its attempts were lost in a way that counts against `max_retries`."""
        return sum(setback.is_retry for setback in self.setbacks)


def apply_to_trial(
    trial: Trial,
    event: TrialStarted
    | TrialPlanned
    | TrialReported
    | CheckpointSaved
    | AttemptEnded
    | TrialResized
    | ResizeMeasured
    | TrialEnded,
) -> None:
    """Take the next event of a trial into its record."""
    match event:
        case TrialStarted():
            trial.state = "running"
            trial.attempts = event.attempt + 1
            trial.plan = dict(event.plan)
            trial.worker_pids, trial.hosts = list(event.worker_pids), list(event.hosts)
            trial.attempt_unix_s = event.time_unix_s
            if trial.started_unix_s is None:
                trial.started_unix_s = event.time_unix_s
        case TrialPlanned():
            trial.plan = dict(event.plan)
        case TrialReported():
            trial.reports += 1
            trial.last_step, trial.last_epoch = event.step, event.epoch
            trial.last_values.update(event.values)
            trial.samples_per_s = event.samples_per_s or trial.samples_per_s
            trial.parts_s = event.parts_s or trial.parts_s
        case CheckpointSaved():
            trial.last_checkpoint = event.path
            if event.best:
                trial.best_checkpoint = event.path
        case AttemptEnded():
            trial.state = "waiting"
            trial.decided_plan |= event.next_plan
            trial.setbacks.append(event)
            trial.trained_s += max(0.0, trial.heard_unix_s - trial.attempt_unix_s)
        case TrialResized():
            trial.resizes.append(Resize(event))
        case ResizeMeasured():
            trial.resizes[-1].measured = event
        case TrialEnded():
            trial.state, trial.reason = event.state, event.reason
            trial.message, trial.traceback = event.message, event.traceback
            trial.values, trial.last_step = dict(event.values), event.step
            trial.ended_unix_s, trial.fits = event.time_unix_s, event.fits
    trial.heard_unix_s = event.time_unix_s

"""The events of a run as typed classes, with conversion to and from JSON.

An event is one fact, stored once and never changed. Fields are only ever added, and a reader ignores unknown
fields, so new versions read old stores and old versions read new ones. Non-finite numbers are written as
the texts "NaN", "Infinity" and "-Infinity".
Who writes events, and where they are kept, is left to the driver and to the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from workbench.errors import StoreError
from workbench.events.alerts import AlertCleared, AlertDelivered, AlertRaised, AlertsArmed, LogMatched
from workbench.events.header import EventHeader, TrialEventHeader
from workbench.events.model_chosen import ModelChosen

TrialState = Literal["waiting", "running", "complete", "pruned", "stopped", "failed"]
RunState = Literal["waiting", "running", "stopping", "complete", "stopped", "failed", "lost"]
Reason = Literal["oom", "diverged", "error", "lost", "timeout", "storage"]

FINISHED_TRIAL_STATES: frozenset[TrialState] = frozenset({"complete", "pruned", "stopped", "failed"})
FINISHED_RUN_STATES: frozenset[RunState] = frozenset({"complete", "stopped", "failed"})


class DriverStarted(EventHeader):
    """A process became the driver of the run; a second one of a run means a restart."""

    type: Literal["driver_started"] = "driver_started"
    pid: int
    host: str
    num_cpus: float = Field(description="CPUs that the cluster offers in total.")
    num_gpus: float = 0.0
    versions: dict[str, str] = Field(default_factory=dict, description="Package name to version.")


class RunStateChanged(EventHeader):
    """The run entered another state."""

    type: Literal["run_state_changed"] = "run_state_changed"
    state: RunState
    reason: str | None = Field(
        default=None, description="Why: trials, time, target, plateau, exhausted, person, failures, error."
    )
    message: str | None = None


class TrialEnqueued(EventHeader):
    """A user requested that a configuration be tried next."""

    type: Literal["trial_enqueued"] = "trial_enqueued"
    params: dict[str, JsonValue]


class PriorTrialAdded(EventHeader):
    """The sampler of this run learns from a finished trial of an earlier one."""

    type: Literal["prior_trial_added"] = "prior_trial_added"
    from_run_id: str
    from_trial: int
    params: dict[str, JsonValue]
    state: Literal["complete", "pruned"]
    values: dict[str, float]
    reports: list[tuple[int, float]] = Field(default_factory=list, description="(step, value) pairs.")


class SettingsChanged(EventHeader):
    """Settings of the experiment have new values in this run from here on."""

    type: Literal["settings_changed"] = "settings_changed"
    settings: dict[str, JsonValue] = Field(description="New values by dotted path, such as budget.trials.")


class TrialProposed(TrialEventHeader):
    """The study proposed a configuration; the trial is waiting from here on."""

    type: Literal["trial_proposed"] = "trial_proposed"
    params: dict[str, JsonValue]
    configuration: int = Field(description="Number of the configuration; its repeats share it.")
    repeat: int = Field(default=0, description="Which repeat of the configuration this is, from 0.")
    seed: int = Field(description="Seed of everything random in the training.")
    source: Literal["sampler", "enqueued"] = "sampler"


class ReplayPlanned(EventHeader):
    """The run repeats the proposals of another run, in their order, and makes no others."""

    type: Literal["replay_planned"] = "replay_planned"
    of_run_id: str
    proposals: list[TrialProposed]


class TrialStarted(TrialEventHeader):
    """An attempt at a trial has its workers and starts."""

    type: Literal["trial_started"] = "trial_started"
    attempt: int
    worker_pids: list[int]
    hosts: list[str] = Field(default_factory=list)
    nodes: list[str] = Field(default_factory=list, description="Ray's IDs of the nodes, by rank.")
    gpus: list[list[str]] = Field(default_factory=list, description="GPUs of each worker: numbers or UUIDs.")
    plan: dict[str, JsonValue] = Field(
        default_factory=dict, description="The plan, as far as it is known before the data is loaded."
    )
    resumed_from: str | None = Field(
        default=None, description="Path of the checkpoint that it continues from."
    )


class TrialPlanned(TrialEventHeader):
    """An attempt knows its data and its device, and so its plan in full."""

    type: Literal["trial_planned"] = "trial_planned"
    attempt: int = 0
    plan: dict[str, JsonValue] = Field(
        description="workers, micro_batch, accumulation, global_batch, precision, strategy, recompute."
    )


class TrialReported(TrialEventHeader):
    """A trial reported metrics, speed, or both."""

    type: Literal["trial_reported"] = "trial_reported"
    attempt: int = 0
    step: int = Field(description="Optimizer steps done, or the step that a function reported.")
    epoch: float | None = Field(default=None, description="Epochs done; whole at an evaluation.")
    elapsed_s: float = Field(default=0.0, description="Seconds since this attempt began.")
    values: dict[str, float] = Field(default_factory=dict, description="Metrics by name, means over workers.")
    samples_per_s: float | None = None
    parts_s: dict[str, float] = Field(
        default_factory=dict, description="Seconds per step, by part: data, forward, backward, update."
    )
    gradient_signal_sqr: float | None = Field(
        default=None, description="|G|^2, the squared norm of the true gradient, smoothed over steps."
    )
    gradient_noise: float | None = Field(
        default=None, description="tr(Sigma), the variance of the gradient of one sample, smoothed likewise."
    )
    returned: bool = Field(
        default=False, description="Whether a function returned the values instead of reporting them."
    )
    told_again: bool = Field(
        default=False,
        description="Whether an earlier attempt reported it, and the driver died before it arrived.",
    )
    left_out: int = Field(default=0, description="Reports since the one before that were not stored.")

    @property
    def rung(self) -> int:
        """The resource spent, in the unit in which pruners compare trials: epochs, else steps."""
        return self.step if self.epoch is None else int(self.epoch)


class CheckpointSaved(TrialEventHeader):
    """A checkpoint is complete at its path."""

    type: Literal["checkpoint_saved"] = "checkpoint_saved"
    attempt: int
    step: int
    path: str
    best: bool = Field(default=False, description="Whether it is the best of the trial so far.")


class CheckpointsDeleted(TrialEventHeader):
    """The checkpoints of a finished trial were deleted in favour of better ones."""

    type: Literal["checkpoints_deleted"] = "checkpoints_deleted"
    reason: Literal["keep_best", "max_checkpoints_size"] = Field(description="The setting that requires it.")
    size_bytes: int


class AttemptEnded(TrialEventHeader):
    """An attempt ended early; the trial continues with the next one, now or when the run is resumed."""

    type: Literal["attempt_ended"] = "attempt_ended"
    attempt: int
    reason: Reason | Literal["stopped", "resized", "alert"]
    message: str
    next_plan: dict[str, JsonValue] = Field(
        default_factory=dict, description="What changes in its plan from the next attempt on."
    )
    is_retry: bool = Field(default=False, description="Whether continuing counts against max_retries.")


class TrialResized(TrialEventHeader):
    """A trial will continue with more workers because that should pay off; its attempt ends with this."""

    type: Literal["trial_resized"] = "trial_resized"
    attempt: int = Field(description="The attempt that ends.")
    from_workers: int
    to_workers: int
    samples_per_s: float = Field(description="Measured with its current workers.")
    expected_samples_per_s: float = Field(description="What earlier trials reached with that many workers.")
    left_s: float = Field(description="Seconds of training left without growing.")
    assumed_restart_s: float = Field(description="Assumed cost of the restart in seconds.")
    expected_saving_s: float = Field(description="Seconds that it ends earlier, the restart deducted.")


class ResizeMeasured(TrialEventHeader):
    """The measured gain of a trial that continued with more workers."""

    type: Literal["resize_measured"] = "resize_measured"
    attempt: int = Field(description="The attempt that was measured.")
    from_workers: int
    to_workers: int
    samples_per_s: float
    restart_s: float | None = Field(
        default=None,
        description="Seconds from the decision to training again; None if something else came between.",
    )
    saving_s: float | None = Field(
        default=None, description="Seconds that it ends earlier at this speed, the restart deducted."
    )


class TrialEnded(TrialEventHeader):
    """A trial is finished and will not run again."""

    type: Literal["trial_ended"] = "trial_ended"
    attempt: int
    state: Literal["complete", "pruned", "stopped", "failed"]
    reason: Reason | None = Field(default=None, description="Why it failed.")
    message: str | None = None
    traceback: str | None = None
    values: dict[str, float] = Field(default_factory=dict, description="The trial's result, by metric.")
    step: int = Field(default=0, description="The last step reported.")
    fits: bool = Field(
        default=True,
        description="False if its searched micro batch did not fit and was replaced by a smaller one.",
    )


class AdviceRequested(EventHeader):
    """The run measures plans and recommends one instead of trying configurations."""

    type: Literal["advice_requested"] = "advice_requested"
    objective: Literal["time", "money", "energy", "throughput"]
    host: str
    versions: dict[str, str] = Field(default_factory=dict, description="Package name to version.")


class PlanMeasured(EventHeader):
    """The steps of a plan were timed: a few, by warm workers that did nothing else, or those of a trial."""

    type: Literal["plan_measured"] = "plan_measured"
    setting: str = Field(
        description="What a sample costs, as a hash: model and values, optimizer, shape of the data, device, "
        "size of a worker, versions. Only measurements of one setting belong to one model of step times."
    )
    plan: dict[str, JsonValue] = Field(
        description="workers, micro_batch, accumulation, global_batch, precision, strategy, recompute."
    )
    by_trial: int | None = Field(default=None, description="The trial that showed it; None for a probe.")
    beside_others: bool | None = Field(
        default=None, description="Whether other trials ran at the same time; None where not recorded."
    )
    workers_per_node: list[int] = Field(default_factory=list)
    device: str = Field(default="cpu", description="Name of a worker's device.")
    fits: bool = Field(default=True, description="False if memory ran out, or would have.")
    message: str | None = Field(default=None, description="Why it does not fit.")
    num_train_samples: int | None = Field(default=None, description="Samples of the training data.")
    num_steps: int = Field(default=0, description="Steps that were timed, after the warm-up.")
    step_time_s: float | None = Field(default=None, description="Median of the timed steps.")
    step_time_spread_s: float | None = Field(default=None, description="Interquartile range of them.")
    parts_s: dict[str, float] = Field(
        default_factory=dict,
        description="Median seconds per step: data, forward, backward, communication, update.",
    )
    samples_per_s: float | None = Field(default=None, description="Over all workers.")
    peak_bytes: int | None = Field(default=None, description="Peak memory of one worker.")
    step_flops: float | None = Field(
        default=None, description="Floating-point operations per step, over all workers."
    )
    utilisation: float | None = Field(default=None, description="Fraction of the device's peak rate in use.")
    power_w: float | None = Field(default=None, description="Mean of all devices in use, where metered.")
    state_bytes: int | None = Field(default=None, description="Size of a checkpoint of the training.")


class RatesTested(EventHeader):
    """A range of learning rates was tested, rising step by step."""

    type: Literal["rates_tested"] = "rates_tested"
    setting: str
    global_batch: int
    rates: list[float]
    losses: list[float] = Field(description="Smoothed, mean over the seeds; one per rate.")
    num_seeds: int
    suggested: float | None = Field(default=None, description="None if no rate reduced the loss.")
    highest_stable: float | None = None


class CandidateTried(EventHeader):
    """A candidate was trained for a while beside others, to compare their progress in the same time."""

    type: Literal["candidate_tried"] = "candidate_tried"
    plan: dict[str, JsonValue]
    lr: float = Field(description="At the global batch of the plan.")
    elapsed_s: float = Field(description="Seconds of training so far, evaluations included.")
    step: int
    epoch: float
    values: dict[str, float] = Field(default_factory=dict)
    reached_target: bool = False


class AdviceGiven(EventHeader):
    """A plan and a learning rate are recommended, with predictions, reasons and runners-up."""

    type: Literal["advice_given"] = "advice_given"
    advice: dict[str, JsonValue] = Field(description="As written by `Advice` of the advisor.")


class CommandHandled(EventHeader):
    """The driver carried out, or refused, a command."""

    type: Literal["command_handled"] = "command_handled"
    command: int
    kind: str
    done: bool
    message: str


class Noted(EventHeader):
    """Something that the user should know."""

    type: Literal["noted"] = "noted"
    level: Literal["info", "warning", "error"]
    message: str
    trial: int | None = Field(default=None, description="The trial that it is about, if any.")


Event = (
    DriverStarted
    | RunStateChanged
    | TrialEnqueued
    | PriorTrialAdded
    | SettingsChanged
    | ReplayPlanned
    | TrialProposed
    | TrialStarted
    | TrialPlanned
    | TrialReported
    | CheckpointSaved
    | CheckpointsDeleted
    | AttemptEnded
    | TrialResized
    | ResizeMeasured
    | TrialEnded
    | AdviceRequested
    | PlanMeasured
    | RatesTested
    | CandidateTried
    | AdviceGiven
    | ModelChosen
    | CommandHandled
    | Noted
    | AlertsArmed
    | LogMatched
    | AlertRaised
    | AlertCleared
    | AlertDelivered
)
Sink = Callable[[Event], None]

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])


def to_json(event: Event) -> str:
    """Write an event as one line of JSON.

    Args:
        event: Any event.

    Returns:
        JSON text without line breaks; non-finite numbers are texts.
    """
    return event.model_dump_json(exclude_defaults=False)


def from_json(text: str | bytes) -> Event:
    """Read what `to_json` wrote.

    Args:
        text: One JSON document.

    Returns:
        The event.

    Raises:
        StoreError: If the text is not an event that this version knows.
    """
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise StoreError(
            f"an event cannot be read: {error.errors(include_url=False)[0]['msg']}",
            next_step="A newer version of the workbench may have written it: update this one.",
        ) from error

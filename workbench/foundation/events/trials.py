"""Events of started trials: attempts, reports, checkpoints, changes of workers, results.

The measured parts of a step tell how much of it waits for data, and how many loaders would hide it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from workbench.foundation.events.header import OutsideText, Reason, TrialEventHeader
from workbench.foundation.formatting import format_count, format_number

STALL_MATTERS = 0.1
"""The share of a step that waits for data above which loaders are worthwhile."""
MAX_LOADERS = 16
_MIN_DATA_S = 1e-3
"""Below this loading time per step, passing batches between processes costs more than it saves."""


class TrialImported(TrialEventHeader):
    """A trial was trained by another tool. Its next events repeat what that tool has recorded."""

    type: Literal["trial_imported"] = "trial_imported"
    key: str = Field(description="What identifies it in the tool, wherever its files are.")
    name: OutsideText = Field(description="Its name in the tool.")
    message: OutsideText | None = Field(
        default=None, description="What was decided about it, such as how it counts."
    )


class TrialStarted(TrialEventHeader):
    """An attempt at a trial has its workers and starts."""

    type: Literal["trial_started"] = "trial_started"
    attempt: int
    worker_pids: list[int]
    hosts: list[str] = Field(default_factory=list)
    nodes: list[str] = Field(default_factory=list, description="Ray's IDs of the nodes, by rank.")
    gpus: list[list[str]] = Field(
        default_factory=list, description="GPUs of each worker: numbers or UUIDs."
    )
    plan: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="The plan, as far as it is known before the data is loaded.",
    )
    resumed_from: str | None = Field(
        default=None, description="Path of the checkpoint from which it continues."
    )
    program: int = Field(default=1, ge=1, description="Version of the code that it runs.")


class PeakRate(BaseModel):
    """The peak learning rate of a trial, and how it follows from the rate that was chosen."""

    model_config = ConfigDict(frozen=True)

    lr: float = Field(description="The peak at the batch of a step, before any group's factor.")
    at_reference: float = Field(description="The rate that was chosen, at `reference_batch`.")
    reference_batch: int
    step_batch: int = Field(description="Samples of an optimizer step.")
    rule: str = Field(description="How the rate was scaled: constant, linear, sqrt, adascale, ...")

    def describe(self) -> str:
        """Write the rate, and how it was scaled if it was."""
        text = f"{format_number(self.lr)}"
        if self.rule == "adascale":
            return f"{text} at first, then it follows the gradient noise"
        if self.lr == self.at_reference:
            return text
        return (
            f"{text} = {format_number(self.at_reference)} x"
            f" {format_number(self.lr / self.at_reference)}, because the batch is"
            f" {format_count(self.step_batch)} and not {format_count(self.reference_batch)}"
            f" ({self.rule})"
        )


class TokenCounts(BaseModel):
    """How many tokens a training sees, and how many operations they need."""

    model_config = ConfigDict(frozen=True)

    per_sample: float = Field(description="Tokens of a training sample on average.")
    num_samples: int = Field(description="Training samples of an epoch.")
    num_parameters: int | None = Field(
        default=None, description="Parameters of the model. Shared ones count once."
    )
    flops_per_token: float | None = Field(
        default=None, description="Operations of forward and backward. null on CPUs."
    )
    peak_flops_per_s: float | None = Field(
        default=None,
        description="The peak rate of all its devices together by their data sheet. null on CPUs.",
    )


class PredictedMemory(BaseModel):
    """The peak memory of a GPU that was expected before a training."""

    model_config = ConfigDict(frozen=True)

    gb: float = Field(description="In GB of 1e9 bytes.")
    low_gb: float = Field(description="90 % of all peaks should be above this and below high_gb.")
    high_gb: float

    def describe(self) -> str:
        """Write the prediction with its interval."""
        low, high = format_number(round(self.low_gb, 2)), format_number(round(self.high_gb, 2))
        return f"{format_number(round(self.gb, 2))} GB ({low} to {high} GB)"


class TrialPlanned(TrialEventHeader):
    """An attempt knows its data and its device, and so its complete plan."""

    type: Literal["trial_planned"] = "trial_planned"
    attempt: int = 0
    plan: dict[str, JsonValue] = Field(
        description=(
            "workers, micro_batch, accumulation, global_batch, precision, strategy, recompute, "
            "compile."
        )
    )
    peak_rate: PeakRate | None = Field(
        default=None, description="null if no learning rate belongs to it."
    )
    tokens: TokenCounts | None = Field(
        default=None, description="null if its samples are not tokens."
    )
    memory_limit_bytes: float | None = Field(
        default=None, description="GPU memory that a worker may use. null on CPUs."
    )
    predicted_memory: PredictedMemory | None = Field(
        default=None, description="null unless it trains a language model in a folder."
    )
    has_blocks: bool | None = Field(
        default=None,
        description=(
            "Whether its model has blocks whose activations could be computed again. null if no "
            "model is trained in steps."
        ),
    )
    divides_batch: bool | None = Field(
        default=None,
        description=(
            "Whether its loss allows a worker's batch to be divided into micro batches. null if "
            "that is not known."
        ),
    )
    goals: dict[str, Literal["maximize", "minimize"]] = Field(
        default_factory=dict,
        description=(
            "The directions that metrics of users and other packages declare, by reported name."
        ),
    )
    begins_step: int | None = Field(
        default=None,
        description=(
            "If it continues from the checkpoint of another trial, as a clone or because both are "
            "equal so far: the step of that checkpoint."
        ),
    )
    begins_epoch: float | None = Field(
        default=None,
        description="In the same case: the epochs done at that checkpoint, not always whole.",
    )
    trunk_of: int | None = Field(
        default=None,
        description="The trial that is equal so far, from whose checkpoint it continues.",
    )
    saved_s: float | None = Field(
        default=None, ge=0, description="In that case: how long that trial trained until then."
    )
    num_validation: int | None = Field(
        default=None, description="Number of validation samples. null if it is not known."
    )
    num_test: int | None = Field(
        default=None,
        description="Number of test samples, on which nothing is chosen.",
    )
    rates: list[str] = Field(
        default_factory=list,
        description=(
            "Metrics, by reported name, that are the share of samples for which something is true."
        ),
    )


class TrialReported(TrialEventHeader):
    """A trial reported metrics, speed, or both."""

    type: Literal["trial_reported"] = "trial_reported"
    attempt: int = 0
    step: int = Field(description="Optimizer steps done, or the step that a function reported.")
    epoch: float | None = Field(
        default=None, description="Epochs done, a whole number at an evaluation."
    )
    elapsed_s: float = Field(default=0.0, description="Seconds since this attempt started.")
    values: dict[str, float] = Field(
        default_factory=dict, description="Metrics by name, means over workers."
    )
    samples_per_s: float | None = None
    parts_s: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds per step, by part: data, forward, backward, update.",
    )
    compile_s: float | None = Field(
        default=None,
        description=(
            "Seconds of the steps in which the model was compiled. They do not count for the speed."
        ),
    )
    slowest_rank: int | None = Field(
        default=None,
        description="The replica that takes longest to load data and compute the forward pass.",
    )
    slowest_rank_factor: float | None = Field(
        default=None,
        description=(
            "Its time divided by the median of the other replicas, over the attempt so far."
        ),
    )
    gradient_signal_sqr: float | None = Field(
        default=None,
        description="|G|^2, the squared norm of the true gradient, smoothed over steps.",
    )
    gradient_noise: float | None = Field(
        default=None,
        description="tr(Sigma), the variance of the gradient of one sample, also smoothed.",
    )
    memory_share: float | None = Field(
        default=None,
        description=("Largest share of its GPU memory that the first worker has used so far."),
    )
    returned: bool = Field(
        default=False,
        description="Whether a function returned the values instead of reporting them.",
    )
    told_again: bool = Field(
        default=False,
        description=(
            "Whether an earlier attempt reported it, but the driver died before it arrived."
        ),
    )
    left_out: int = Field(
        default=0, description="Reports since the previous one that were not stored."
    )

    @property
    def rung(self) -> int:
        """The resource spent, in the pruners' unit: epochs, or steps if there are no epochs."""
        if self.epoch is None:
            return self.step
        return int(self.epoch)


class TrialTested(TrialEventHeader):
    """The weights of a complete trial were measured once on the test samples."""

    type: Literal["trial_tested"] = "trial_tested"
    attempt: int = 0
    values: dict[str, float] = Field(description="Metrics by name, each starting with `test_`.")


class CheckpointSaved(TrialEventHeader):
    """A checkpoint is complete at its path."""

    type: Literal["checkpoint_saved"] = "checkpoint_saved"
    attempt: int
    step: int
    path: str
    best: bool = Field(default=False, description="Whether it is the best of the trial so far.")


class AttachmentSaved(TrialEventHeader):
    """A picture, a table or a text that a trial reported is kept in its folder."""

    type: Literal["attachment_saved"] = "attachment_saved"
    attempt: int = 0
    step: int = Field(description="The step at which it was reported.")
    name: OutsideText
    kind: Literal["image", "table", "text"]
    file: OutsideText = Field(description="Its file, below the folder of the trial.")
    size_bytes: int = 0
    replaces: list[str] = Field(
        default_factory=list,
        description="Files of earlier attachments that were deleted, because only some are kept.",
    )


class CheckpointsDeleted(TrialEventHeader):
    """The checkpoints of a finished trial were deleted in favour of better ones."""

    type: Literal["checkpoints_deleted"] = "checkpoints_deleted"
    reason: Literal["keep_best", "max_checkpoints_size"] = Field(
        description="The setting that requires it."
    )
    size_bytes: int


class AttemptEnded(TrialEventHeader):
    """An attempt ended early. The trial continues with another one, now or after a resume."""

    type: Literal["attempt_ended"] = "attempt_ended"
    attempt: int
    reason: Reason | Literal["stopped", "resized", "alert", "turn"]
    message: OutsideText
    next_plan: dict[str, JsonValue] = Field(
        default_factory=dict, description="Changes of its plan from the next attempt on."
    )
    is_retry: bool = Field(
        default=False, description="Whether continuing counts against max_retries."
    )
    turn: int | None = Field(
        default=None, ge=1, description="If a turn has ended: its number, from 1."
    )
    values: dict[str, float] = Field(
        default_factory=dict, description="If a turn has ended: the result so far, by metric."
    )
    restart_s: float | None = Field(
        default=None,
        ge=0,
        description=(
            "Seconds of the turn that were not spent on new steps: starting again, reading the "
            "checkpoint, repeating steps. null if that could not be measured."
        ),
    )


class TrialResized(TrialEventHeader):
    """An attempt ended so that its trial continues with another number of workers."""

    type: Literal["trial_resized"] = "trial_resized"
    attempt: int = Field(description="The attempt that ends.")
    cause: Literal["idle", "request", "guard"] = Field(
        default="idle",
        description=(
            "idle: it grows onto idle workers. request: it shrinks, because another run waits for "
            "workers. guard: it goes back to the checkpoint and the workers before its last "
            "resize, because its validation fell behind."
        ),
    )
    for_run: str | None = Field(default=None, description="The run that waits for workers.")
    rung: int = Field(default=0, description="The rung of its last report.")
    from_workers: int
    to_workers: int
    samples_per_s: float = Field(description="Measured with its current workers.")
    expected_samples_per_s: float = Field(
        description="What earlier trials reached with that many workers, or an estimate."
    )
    left_s: float = Field(description="Seconds of training left without the change.")
    assumed_restart_s: float = Field(description="Assumed cost of the restart in seconds.")
    expected_saving_s: float = Field(
        description="Seconds that it ends earlier, including the restart. Negative if later."
    )


class ResizeMeasured(TrialEventHeader):
    """The measured gain of a trial that continued with another number of workers."""

    type: Literal["resize_measured"] = "resize_measured"
    attempt: int = Field(description="The attempt that was measured.")
    from_workers: int
    to_workers: int
    samples_per_s: float
    restart_s: float | None = Field(
        default=None,
        description=(
            "Seconds from the decision until it trained again. None if something else happened in "
            "between."
        ),
    )
    saving_s: float | None = Field(
        default=None,
        description="Seconds that it ends earlier at this speed, including the restart.",
    )


class TrialEnded(TrialEventHeader):
    """A trial is finished and will not run again."""

    type: Literal["trial_ended"] = "trial_ended"
    attempt: int
    state: Literal["complete", "pruned", "stopped", "failed"]
    reason: Reason | None = Field(default=None, description="Why it failed.")
    message: OutsideText | None = Field(
        default=None, description="Why it failed, stopped or was pruned, as text."
    )
    traceback: OutsideText | None = None
    values: dict[str, float] = Field(
        default_factory=dict, description="The trial's result, by metric."
    )
    step: int = Field(default=0, description="The last step reported.")
    fits: bool = Field(
        default=True,
        description=(
            "False if its searched micro batch did not fit and was replaced by a smaller one."
        ),
    )
    is_unreported: bool = Field(
        default=False, description="Whether a program never wrote an objective."
    )
    ends_turn: bool = Field(
        default=False,
        description=(
            "Whether only a turn has ended, in the answer of a worker. It is stored as the end of "
            "an attempt."
        ),
    )


def input_stall(parts_s: Mapping[str, float]) -> float:
    """Return the share of a step that waits for data, from 0 to 1.

    Args:
        parts_s: Seconds per step, by part.
    """
    total_s = math.fsum(parts_s.values())
    if total_s <= 0.0:
        return 0.0
    return parts_s.get("data", 0.0) / total_s


def loaders_to_hide(parts_s: Mapping[str, float]) -> int:
    """Return how many loaders keep up with the rest of a step, or 0 if the wait does not matter.

    Args:
        parts_s: Seconds per step, by part, of a step that loads its data itself.
    """
    data_s = parts_s.get("data", 0.0)
    if input_stall(parts_s) < STALL_MATTERS or data_s < _MIN_DATA_S:
        return 0
    rest_s = math.fsum(parts_s.values()) - data_s
    # Also avoids a division by zero, if a step does nothing but load.
    if rest_s <= data_s / MAX_LOADERS:
        return MAX_LOADERS
    return math.ceil(data_s / rest_s)

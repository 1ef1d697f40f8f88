"""Events of advice: measurements, trained candidates and recommendations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from workbench.foundation.events.header import EventHeader, OutsideText


class AdviceRequested(EventHeader):
    """The run measures plans and recommends one instead of trying configurations."""

    type: Literal["advice_requested"] = "advice_requested"
    objective: Literal["time", "money", "energy", "throughput"]
    host: str
    budget_s: float | None = Field(
        default=None, description="For how many seconds it may measure, or None if unknown."
    )
    versions: dict[str, str] = Field(default_factory=dict, description="Package name to version.")


class PlanMeasured(EventHeader):
    """The steps of a plan were timed, by warm workers or during a trial."""

    type: Literal["plan_measured"] = "plan_measured"
    setting: str = Field(
        description=(
            "A hash of everything that decides the cost of a sample: model and values, optimizer, "
            "shape of the data, device, size of a worker, versions. A model of step times uses "
            "only measurements with the same hash."
        )
    )
    plan: dict[str, JsonValue] = Field(
        description=(
            "workers, micro_batch, accumulation, global_batch, precision, strategy, recompute, "
            "compile."
        )
    )
    by_trial: int | None = Field(
        default=None, description="The trial that was timed. None for a probe."
    )
    beside_others: bool | None = Field(
        default=None,
        description="Whether other trials ran at the same time. None if that was not recorded.",
    )
    workers_per_node: list[int] = Field(default_factory=list)
    device: str = Field(default="cpu", description="Name of a worker's device.")
    fits: bool = Field(default=True, description="False if memory ran out, or would have.")
    is_possible: bool = Field(
        default=True,
        description="False if the model cannot be trained with this plan, whatever the memory.",
    )
    message: OutsideText | None = Field(
        default=None, description="Why the plan does not fit, or is not possible."
    )
    num_train_samples: int | None = Field(default=None, description="Samples of the training data.")
    divides_batch: bool | None = Field(
        default=None,
        description="Whether the loss allows parts of a batch. None if that is not known.",
    )
    num_steps: int = Field(default=0, description="Steps that were timed, after the warm-up.")
    step_time_s: float | None = Field(default=None, description="Median of the timed steps.")
    step_time_spread_s: float | None = Field(
        default=None, description="Interquartile range of the timed steps."
    )
    parts_s: dict[str, float] = Field(
        default_factory=dict,
        description="Median seconds per step: data, forward, backward, communication, update.",
    )
    straggling_s: float | None = Field(
        default=None,
        description="Seconds per step that a worker waits for slower ones.",
    )
    samples_per_s: float | None = Field(default=None, description="Over all workers.")
    peak_bytes: int | None = Field(default=None, description="Peak memory of one worker.")
    step_flops: float | None = Field(
        default=None, description="Floating-point operations per step, over all workers."
    )
    utilisation: float | None = Field(
        default=None, description="Fraction of the device's peak rate in use."
    )
    power_w: float | None = Field(
        default=None, description="Mean power of all devices in use. None if it is not metered."
    )
    power_limit_w: float | None = Field(
        default=None,
        description="Power limit of each GPU, if limits were compared. Otherwise None.",
    )
    compile_s: float | None = Field(
        default=None, description="Seconds of the first step, in which the model was compiled."
    )
    state_bytes: int | None = Field(
        default=None, description="Size of a checkpoint of the training."
    )
    all_reduce_s: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds of an all-reduce over the workers of the plan, by its bytes.",
    )
    inside_nodes_s: dict[str, float] = Field(
        default_factory=dict,
        description=(
            "The same over the workers of one node, for the slowest node. Empty for one node."
        ),
    )
    between_nodes_s: dict[str, float] = Field(
        default_factory=dict, description="The same over one worker of each node."
    )
    exchanges: dict[str, dict[str, JsonValue]] = Field(
        default_factory=dict,
        description=(
            "For each exchange: the bytes of gradients that it sends, and the seconds to compute "
            "them."
        ),
    )


class SharingMeasured(EventHeader):
    """Several trainings were timed on one GPU. From now on, trials share GPUs accordingly."""

    type: Literal["sharing_measured"] = "sharing_measured"
    per_gpu: int = Field(ge=1, description="Trials that share a GPU.")
    samples_per_s: dict[str, float] = Field(
        default_factory=dict, description="Samples per second of all copies, by their number."
    )
    peak_bytes: int | None = Field(default=None, description="Peak memory of the largest training.")
    message: OutsideText = Field(description="The decision and its reason, as a sentence.")


class RatesTested(EventHeader):
    """A range of learning rates was tested. The rate rose in each step."""

    type: Literal["rates_tested"] = "rates_tested"
    setting: str
    global_batch: int
    rates: list[float]
    losses: list[float] = Field(
        description="The loss at each rate, smoothed, as a mean over the seeds."
    )
    num_seeds: int
    suggested: float | None = Field(default=None, description="None if no rate reduced the loss.")
    highest_stable: float | None = None


class CandidateTried(EventHeader):
    """A candidate was trained for a while, to compare its progress with others in equal time."""

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

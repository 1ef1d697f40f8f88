"""How an experiment trains, how long, and on which hardware.

What each setting means, its unit and default.

What a setting does is left to the package that reads it; whether settings fit together is checked
where an experiment is put together.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PositiveFloat,
    model_validator,
)
from typing_extensions import Self

from workbench.experiment.augmentation import Augmentation
from workbench.experiment.money_units import parse_price
from workbench.experiment.parameter_groups import ParameterGroups
from workbench.experiment.plan import PlanValue
from workbench.experiment.plan_settings import PlanSettings, find_other_value
from workbench.experiment.schedule_names import Schedule
from workbench.experiment.setting_types import (
    Auto,
    Epochs,
    ExactInt,
    GradientHook,
    OpenSamples,
    OptionalBytes,
    OptionalEnergy,
    OptionalMoney,
    OptionalPrice,
    OptionalSeconds,
    PositiveInt,
    Samples,
    Section,
    unit,
)
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_bytes, parse_duration_s

Initialisation = Literal["default", "he", "xavier", "orthogonal"]

EPSILON_METRIC = "epsilon"
"""The metric under which a private training reports what it has spent."""
PRIVATE_PREFIX = "private."
_RAY_UNITS = 10_000
"""Ray counts parts of a GPU in ten-thousandths.

Rounded up, they would not fit beside each other.
"""


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ExperimentError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


_Patterns = tuple[Annotated[str, AfterValidator(_check_pattern)], ...]


class PretrainedWeights(Section):
    """Weights of a local file, by the names of the model's parameters and buffers."""

    path: str = Field(
        min_length=1,
        description=(
            "A file of safetensors or of torch.save, or a folder that holds one, such as an export."
        ),
    )
    strict: bool = Field(
        default=True,
        description=(
            "Refuse weights whose names or shapes are not those of the model; false loads what"
            " fits."
        ),
    )
    strip: str | None = Field(
        default=None,
        min_length=1,
        description="A prefix to remove from the names in the file; other names are then left out.",
    )
    prefix: str | None = Field(
        default=None, min_length=1, description="A prefix to add to the names in the file."
    )
    skip: _Patterns = Field(
        default=(),
        description=(
            "Regular expressions for names of the model that keep their new values, such as ^head."
        ),
    )


def _with_path(given: Any) -> Any:
    return {"path": given} if isinstance(given, str) else given


class LowRankAdapter(Section):
    """Train low-rank additions to linear layers in place of their weights (LoRA)."""

    method: Literal["lora"] = "lora"
    rank: PositiveInt = Field(default=8, description="Rank of the additions.")
    alpha: PositiveFloat | None = Field(
        default=None, description="They are scaled by alpha / rank; null for twice the rank."
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Dropout before the additions."
    )
    targets: tuple[str, ...] | Literal["auto"] = Field(
        default="auto",
        description=(
            "Names of the layers, or last parts of these, such as q_proj; auto: all linear layers."
        ),
    )
    unfrozen: _Patterns = Field(
        default=(),
        description=(
            "Regular expressions for names of parameters that are trained as a whole, such as"
            " ^head."
        ),
    )


Weights = Annotated[PretrainedWeights | None, BeforeValidator(_with_path)]
Adapter = LowRankAdapter | None


# What one sample must not reach beside its own clipped gradient, or what clips and measures
# otherwise.
_NOT_PRIVATE = {
    "clip_norm": "the gradient of each sample is clipped by private.max_norm instead",
    "gradient_hook": "it would see the gradients before their noise",
}
_NOT_IN_PRIVATE_PLAN: dict[str, tuple[tuple[PlanValue, ...], str]] = {
    "workers": ((1,), "a private training has one worker"),
    "precision": (("fp32",), "the gradients of single samples are computed in fp32"),
    "compile": (("none",), "the gradients of single samples are not compiled"),
    "memory_format": (("contiguous",), "the gradients of single samples are computed as they lie"),
    "recompute": (("none",), "the gradients of single samples keep their activations"),
    "strategy": (("single", "ddp"), "a private training has one worker"),
}


class Private(Section):
    """How much a training may reveal about any one sample, and how gradients are bounded for
    that.
    """

    epsilon: PositiveFloat = Field(
        default=8.0,
        description="What the whole training may spend; 1 is strong protection, 8 is usual.",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5,
        description="Probability that epsilon does not hold; below 1 / number of samples.",
    )
    max_norm: PositiveFloat = Field(
        default=1.0, description="Norm to which the gradient of each sample is clipped."
    )


class Training(Section):
    """How a model is trained; every field may be searched."""

    epochs: Epochs = Field(default=10, description="Passes over the training data.")
    samples: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="Share of the training samples that is used, the same ones for each seed.",
    )
    global_batch: OpenSamples = Field(
        default="auto", description="Samples per optimizer step, over all workers."
    )
    reference_batch: Samples = Field(
        default=128, description="The global batch to which `lr` refers."
    )
    lr: PositiveFloat | Auto = Field(
        default="auto", title="Learning rate", description="Learning rate at the reference batch."
    )
    lr_rule: Literal["auto", "constant", "linear", "sqrt", "legw", "adascale"] = Field(
        default="auto",
        title="Learning rate rule",
        description=(
            "How the rate scales with the global batch, where the rule is valid; auto decides by"
            " optimizer and direction, legw warms up longer too, adascale follows the measured"
            " gradient noise."
        ),
    )
    optimizer: str = Field(
        default="adamw",
        min_length=1,
        description="sgd, adamw, the name of a class in torch.optim, or package.module:Class.",
    )
    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="Momentum of sgd; other optimizers do not use it."
    )
    weight_decay: float = Field(default=0.0, ge=0, description="Weight decay of the optimizer.")
    optimizer_options: dict[str, JsonValue] = Field(
        default_factory=dict, description="More arguments of the optimizer, by their torch names."
    )
    parameter_groups: ParameterGroups = Field(
        default_factory=dict,
        description=(
            "lr_factor, weight_decay or frozen for some parameters, by a pattern of their names."
        ),
    )
    initialisation: Initialisation = Field(
        default="default",
        description=(
            "How the weights of linear and convolutional layers begin: default, as the model makes "
            "them; he or xavier, normal with a deviation by the width of a layer; orthogonal."
        ),
    )
    weights: Weights = Field(
        default=None,
        description=(
            "Begin with the weights of a local file or folder: its path, or {path: P, skip:"
            " [head]}."
        ),
    )
    adapter: Adapter = Field(
        default=None,
        description=(
            "Train low-rank additions to frozen weights: {method: lora, rank: 8}; needs peft."
        ),
    )
    augment: Augmentation | None = Field(
        default=None,
        description=(
            "Change training samples at random, each option a parameter that can be searched: "
            "{mixup: 0.2, crop: 0.1}."
        ),
    )
    schedule: Schedule = Field(
        default="cosine",
        description=(
            "Schedule of the learning rate after warm-up: constant, cosine, linear, one_cycle, "
            "plateau, or package.module:Class of a torch scheduler."
        ),
    )
    schedule_options: dict[str, JsonValue] = Field(
        default_factory=dict,
        description=(
            "Options of plateau, such as factor, patience and metric; of a custom schedule its "
            "arguments, and interval: epoch or step."
        ),
    )
    warmup_epochs: Annotated[float | Auto, unit("epochs")] = Field(
        default="auto",
        description="Epochs of warm-up, in which the learning rate rises from near 0.",
    )
    clip_norm: PositiveFloat | None = Field(
        default=None, description="Largest norm of the gradients; larger ones are scaled down."
    )
    gradient_hook: GradientHook | None = Field(
        default=None,
        description=(
            "Function that changes the gradients of each step in place, before they are clipped: "
            "package.module:function."
        ),
    )
    gradient_hook_options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Arguments of gradient_hook, by name."
    )
    private: Private | None = Field(
        default=None,
        description=(
            "Train with differential privacy: {epsilon: 8, delta: 1e-5, max_norm: 1}; needs opacus."
        ),
    )
    average_decay: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description=(
            "Evaluate and keep a moving mean of the weights (EMA) with this decay; null for none."
        ),
    )
    average_start: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description=(
            "Evaluate and keep the mean of the weights after each epoch from this part of the "
            "training on (SWA), such as 0.75; null for none."
        ),
    )
    average_lr: PositiveFloat | None = Field(
        default=None,
        title="Learning rate of averaged epochs",
        description=(
            "Constant learning rate from average_start on, at the reference batch; null for the "
            "schedule."
        ),
    )
    find_unused_parameters: bool | Auto = Field(
        default="auto",
        description=(
            "Let several workers (ddp) look in each step for parameters that it does not use; auto:"
            " if the first step does not use all of them."
        ),
    )
    evaluate_every: Epochs = Field(default=1, description="Epochs between evaluations.")
    checkpoint_every: Epochs = Field(default=1, description="Epochs between checkpoints.")
    checkpoint_after: OptionalSeconds = Field(
        default=600.0,
        description="Time between checkpoints within an epoch, such as 10m; null for none.",
    )
    measure_noise: bool = Field(
        default=True,
        description=(
            "Measure the gradient noise in some steps, to estimate the efficient batch size."
        ),
    )

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.warmup_epochs != "auto" and not 0 <= self.warmup_epochs <= self.epochs:
            raise ExperimentError(
                f"{self.warmup_epochs} epochs of warm-up do not fit",
                field="warmup_epochs",
                allowed=f"from 0 to epochs = {self.epochs}, or auto",
            )
        return self

    def check_private(self, search: Space, plan: PlanSettings) -> None:
        """Refuse what would break the promise of a private training, or would be ignored.

        Raises:
            ExperimentError: If there is such a setting.
        """
        if "private" in search.root:
            raise ExperimentError(
                "private training is on for all trials or for none",
                field="search.private",
                next_step="Search private.epsilon or private.max_norm instead.",
            )
        for name, reason in _NOT_PRIVATE.items():
            if name in search.root or getattr(self, name) is not None:
                raise _cannot(
                    reason, f"search.{name}" if name in search.root else f"training.{name}"
                )
        if self.lr_rule == "adascale":
            raise _cannot("adascale follows gradients without noise", "training.lr_rule")
        augment = self.augment
        if "augment.mixup" in search.root or (augment is not None and augment.mixup):
            raise _cannot(
                "mixup lets a sample reach the gradients of others", "training.augment.mixup"
            )
        found = find_other_value(
            plan, search, {name: allowed for name, (allowed, _) in _NOT_IN_PRIVATE_PLAN.items()}
        )
        if found is not None:
            raise _cannot(_NOT_IN_PRIVATE_PLAN[found[0]][1], found[1])


def _cannot(reason: str, field: str) -> ExperimentError:
    return ExperimentError(reason, field=field, next_step="Remove it, or training.private.")


class Budget(Section):
    """When a run ends: at whichever limit is met first."""

    trials: PositiveInt | None = Field(
        default=None, description="Configurations to try; each is trained `repeats` times."
    )
    time: OptionalSeconds = Field(
        default=None, description="Wall time of the run, such as 30m, or seconds."
    )
    gpu_time: OptionalSeconds = Field(
        default=None,
        title="GPU time",
        description=(
            "Time that all trials together hold GPUs, such as 50h, or seconds: two for 1h are 2h."
        ),
    )
    energy: OptionalEnergy = Field(
        default=None,
        description=(
            "Energy that all trials together use, such as 2kWh, or watt-hours; needs a meter."
        ),
    )
    price: OptionalPrice = Field(
        default=None,
        description=(
            "What the hardware costs: 2.50 EUR/h for the run while it is active, or 1.80 EUR/GPU-h "
            "for each GPU that trials hold."
        ),
    )
    money: OptionalMoney = Field(
        default=None, description="What the run may cost, such as 20 EUR; needs a price."
    )
    plateau: PositiveInt | None = Field(
        default=None,
        description="End after this many configurations in a row without a better one.",
    )

    @model_validator(mode="after")
    def _check_money(self) -> Self:
        if self.money is not None and self.price is None:
            raise ExperimentError(
                "what the run costs is not known without a price",
                field="price",
                allowed="such as 2.50 EUR/h, or 1.80 EUR/GPU-h",
            )
        return self

    def limit_on_gpus(self) -> str | None:
        """Return the field that limits how long GPUs are held, or None."""
        if self.gpu_time is not None:
            return "budget.gpu_time"
        is_by_gpus = (
            self.money is not None and self.price is not None and parse_price(self.price).is_per_gpu
        )
        return "budget.money" if is_by_gpus else None


class Resources(Section):
    """How much hardware the run may use."""

    concurrency: PositiveInt | Auto = Field(
        default="auto",
        description="Most trials at once, if the hardware has room; auto fills the hardware.",
    )
    autoscaling: bool = Field(
        default=False,
        description=(
            "Let the cluster start machines on demand: trials wait for workers that do not fit "
            "yet. Requires a number for concurrency; plans are not measured first."
        ),
    )
    cpus_per_worker: PositiveInt = Field(
        default=1,
        title="CPU cores per worker",
        description="CPU cores, and torch threads, of one worker.",
    )
    gpus_per_worker: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto",
        title="GPUs per worker",
        description="GPUs of one worker; auto: 1 where there are any.",
    )
    per_gpu: Annotated[PositiveInt, Field(le=100)] | Auto = Field(
        default=1,
        title="Trials per GPU",
        description=(
            "Trials of one worker that share a GPU, each with its part of the memory; auto: as many"
            " as fit and make more steps together, by measuring before the first trial."
        ),
    )
    placement: Literal["auto", "pack", "spread"] = Field(
        default="auto",
        description=(
            "Place the workers of a trial on few nodes (pack) or many (spread); auto: few, unless "
            "advice measured that many are faster."
        ),
    )
    priority: ExactInt = Field(
        default=0,
        description=(
            "Runs with a higher priority get workers first; among equals, those with fewest."
        ),
    )
    max_retries: ExactInt = Field(
        default=2, ge=0, description="How often a trial is retried after its worker was lost."
    )
    keep_best: PositiveInt | Literal["all"] = Field(
        default=10,
        description="Number of finished trials whose checkpoints are kept: the best, or all.",
    )
    max_checkpoints_size: OptionalBytes = Field(
        default=None,
        description=(
            "Limit on all checkpoints of a run, such as 10GB; the worst trials lose theirs."
        ),
    )
    trial_time: OptionalSeconds = Field(
        default=None, description="Time limit of a trial; a longer one fails with reason timeout."
    )
    stop_grace: Annotated[PositiveFloat, BeforeValidator(parse_duration_s), unit("s")] = Field(
        default=10.0,
        description=(
            "Time between the request to end a command (SIGTERM) and its end (SIGKILL). Where"
            " trial_time is over, a command has at most a tenth of that, or 1 second if that is"
            " more."
        ),
    )
    max_log_size: Annotated[PositiveInt, BeforeValidator(parse_bytes), unit("bytes")] = Field(
        default=100_000_000,
        description="How much of what a command prints is kept with each attempt, such as 100MB.",
    )
    advice: Literal["auto", "always", "never"] = Field(
        default="auto",
        description=(
            "Measure plans before the first trial, to decide what `plan` leaves auto; auto: if "
            "budget.time is 10 minutes or more."
        ),
    )
    worker: Literal["warm", "fresh"] = Field(
        default="warm",
        description=(
            "Processes that train: warm ones serve one trial after another, and their state is "
            "restored in between; fresh starts a new one for each trial, which takes seconds."
        ),
    )
    elastic: bool = Field(
        default=False,
        description=(
            "Let trials grow onto idle workers at a checkpoint, if speeds measured so far predict "
            "a benefit; global batch and learning rate stay the same."
        ),
    )

    @property
    def gpus_of_worker(self) -> float | Auto:
        """The GPUs of one worker, or its part of one that trials share.

        Auto: 1 where there are any.
        """
        if self.per_gpu in (1, "auto"):
            return self.gpus_per_worker
        return math.floor(_RAY_UNITS / self.per_gpu) / _RAY_UNITS

    @property
    def gpu_share(self) -> float:
        """Which part of each of its GPUs a worker has, 1 unless trials share it."""
        gpus = self.gpus_of_worker
        return 1.0 if gpus == "auto" else min(1.0, gpus)

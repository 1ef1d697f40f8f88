"""How an experiment trains a model: what each setting means, its unit and default.

What a training begins with, which parameters learn how fast, how samples are changed at random, and
what may be revealed of them, are parts of it. What a setting does is left to the package that reads
it; whether sections fit together is checked where an experiment is put together.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    NonNegativeFloat,
    PositiveFloat,
    model_validator,
)
from typing_extensions import Self

from workbench.experiment.plan import PlanValue
from workbench.experiment.schedule_names import Schedule
from workbench.experiment.sections import PlanSettings, find_other_value
from workbench.experiment.setting_types import (
    Auto,
    Epochs,
    GradientHook,
    OpenSamples,
    OptionalSeconds,
    PositiveInt,
    Samples,
    Section,
    unit,
)
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError

_Share = Annotated[float, Field(ge=0, le=1)]


class Augmentation(Section):
    """Random changes of each training sample, new ones in each epoch; 0 leaves one out."""

    mixup: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description=(
            "Mixes a sample and its targets with another one, by a share drawn from "
            "Beta(mixup, mixup)."
        ),
    )
    noise: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description="Deviation of added noise, as a share of that of the sample's numbers.",
    )
    crop: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0,
        description=(
            "Largest share of an image's side by which it is shifted, or of a series' beginning"
            " that is replaced by the value after it."
        ),
    )
    flip: _Share = Field(
        default=0.0, description="Probability that an image is mirrored left to right."
    )
    cutout: Annotated[float, Field(ge=0, le=0.9)] = Field(
        default=0.0,
        description="Side of a square that is blanked, as a share of that of the image.",
    )
    rand_augment: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description=(
            "Magnitude of two changes of an image, drawn from rotation, shear, zoom, shift,"
            " contrast and brightness (RandAugment)."
        ),
    )

    @property
    def used(self) -> list[str]:
        """The names of the changes that are made."""
        return [name for name in type(self).model_fields if getattr(self, name) > 0]


class ParameterGroup(Section):
    """What differs for the parameters whose names match."""

    lr_factor: NonNegativeFloat = Field(
        default=1.0, description="Factor by which their learning rate is multiplied."
    )
    weight_decay: NonNegativeFloat | None = Field(
        default=None, description="Their weight decay; null for that of the optimizer."
    )
    frozen: bool = Field(default=False, description="Leave them as they are.")
    frozen_epochs: NonNegativeFloat = Field(
        default=0.0, description="Leave them as they are for this many epochs, then train them."
    )


def _check_patterns(groups: dict[str, ParameterGroup]) -> dict[str, ParameterGroup]:
    for pattern, group in groups.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ExperimentError(f"is not a regular expression: {error}", field=pattern) from error
        if group.frozen and (group.lr_factor != 1.0 or group.weight_decay is not None):
            raise ExperimentError(
                "frozen parameters have neither a learning rate nor a weight decay", field=pattern
            )
        if group.frozen and group.frozen_epochs:
            raise ExperimentError(
                "parameters are frozen either for some epochs or always",
                field=pattern,
                next_step="Remove frozen or frozen_epochs.",
            )
    return groups


ParameterGroups = Annotated[dict[str, ParameterGroup], AfterValidator(_check_patterns)]
"""By a regular expression that is found in the names.

For each parameter the first that fits counts.
"""


Initialisation = Literal["default", "he", "xavier", "orthogonal"]


EPSILON_METRIC = "epsilon"


PRIVATE_PREFIX = "private."


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

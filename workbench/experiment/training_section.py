"""The section `training`: what each setting means, its unit and its default.

It includes initial weights, parameter groups, augmentation and differential privacy, and names the
optimizers that cannot train every model. The package that reads a setting carries it out.
`experiment` checks whether sections fit together.
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
    WithJsonSchema,
    model_validator,
)
from typing_extensions import Self

from workbench.experiment.plan import PlanValue
from workbench.experiment.sections import PlanSettings, find_other_value
from workbench.experiment.setting_types import (
    Auto,
    Epochs,
    GradientHook,
    OpenSamples,
    OptionalSeconds,
    OptionalTokens,
    PositiveInt,
    Samples,
    Section,
    unit,
)
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError

_Share = Annotated[float, Field(ge=0, le=1)]
UNUSABLE_OPTIMIZERS = {
    "lbfgs": "it evaluates the loss several times in a step, and the training loop only once"
}
"""Optimizers that the training loop cannot use, in lower case, with the reason."""
OWN_MODELS_ONLY = {
    "sparseadam": "it requires sparse gradients, and the models of the zoo have dense ones",
}
"""Optimizers that can only train some custom models, in lower case, with the reason."""
BITSANDBYTES = {
    "adam_8bit": "Adam8bit",
    "adamw_8bit": "AdamW8bit",
    "ademamix_8bit": "AdEMAMix8bit",
    "lion_8bit": "Lion8bit",
    "paged_adamw": "PagedAdamW",
    "paged_adamw_8bit": "PagedAdamW8bit",
    "paged_ademamix_8bit": "PagedAdEMAMix8bit",
    "paged_lion_8bit": "PagedLion8bit",
}
"""Optimizers of bitsandbytes, whose state takes less GPU memory, with their classes."""
PLATEAU = "plateau"
SCHEDULES = ("constant", "cosine", "linear", "one_cycle", "wsd", PLATEAU)


def _check_name(schedule: str) -> str:
    if schedule in SCHEDULES or re.fullmatch(r"[^:\s]+:[^:\s]+", schedule):
        return schedule
    names = ", ".join(map(repr, SCHEDULES))
    raise ExperimentError(
        f"unknown schedule {schedule!r}",
        allowed=f"{names} or package.module:Class of a torch scheduler",
    )


Schedule = Annotated[
    str,
    AfterValidator(_check_name),
    WithJsonSchema(
        {"anyOf": [{"enum": list(SCHEDULES), "type": "string"}, {"pattern": ":", "type": "string"}]}
    ),
]


class Augmentation(Section):
    """Random changes of each training sample, drawn again in each epoch. 0 turns a change off."""

    mixup: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description=(
            "Mix a sample and its targets with another one, by a share drawn from "
            "Beta(mixup, mixup)."
        ),
    )
    noise: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description="Strength of added noise, as a share of the deviation of the sample's values.",
    )
    crop: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0,
        description=(
            "Shift an image by up to this share of its side. In a series, replace up to this "
            "share at the start by the value after it."
        ),
    )
    flip: _Share = Field(
        default=0.0, description="Probability that an image is mirrored left to right."
    )
    cutout: Annotated[float, Field(ge=0, le=0.9)] = Field(
        default=0.0,
        description="Blank a square whose side is this share of the image's side.",
    )
    rand_augment: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description=(
            "Strength of RandAugment: two random changes of an image, from rotation, shear, "
            "zoom, shift, contrast and brightness."
        ),
    )

    @property
    def used(self) -> list[str]:
        """The names of the changes that are turned on."""
        return [name for name in type(self).model_fields if getattr(self, name) > 0]


class ParameterGroup(Section):
    """Different settings for the parameters whose names match a pattern."""

    lr_factor: NonNegativeFloat = Field(
        default=1.0, description="Factor by which their learning rate is multiplied."
    )
    weight_decay: NonNegativeFloat | None = Field(
        default=None, description="Their weight decay. null uses the optimizer's."
    )
    frozen: bool = Field(default=False, description="Do not train them.")
    frozen_epochs: NonNegativeFloat = Field(
        default=0.0, description="Train them only after this many epochs."
    )


def _check_patterns(groups: dict[str, ParameterGroup]) -> dict[str, ParameterGroup]:
    for pattern, group in groups.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ExperimentError(
                f"this is not a regular expression: {error}",
                field=pattern,
                next_step="Escape special characters with a backslash.",
            ) from error
        if group.frozen and (group.lr_factor != 1.0 or group.weight_decay is not None):
            raise ExperimentError(
                "frozen parameters have neither a learning rate nor a weight decay",
                field=pattern,
                next_step="Remove frozen, or remove lr_factor and weight_decay.",
            )
        if group.frozen and group.frozen_epochs:
            raise ExperimentError(
                "parameters cannot be frozen both always and for some epochs",
                field=pattern,
                next_step="Remove frozen or frozen_epochs.",
            )
    return groups


ParameterGroups = Annotated[dict[str, ParameterGroup], AfterValidator(_check_patterns)]
"""Groups by a regular expression, which is searched in the names of parameters.

A parameter belongs to the first group that matches.
"""


Initialisation = Literal["default", "he", "xavier", "orthogonal"]


EPSILON_METRIC = "epsilon"
"""The metric under which a private training reports what it has spent."""


PRIVATE_PREFIX = "private."


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ExperimentError(
            f"{pattern!r} is not a regular expression: {error}",
            next_step="Escape special characters with a backslash.",
        ) from error
    return pattern


_Patterns = tuple[Annotated[str, AfterValidator(_check_pattern)], ...]


class PretrainedWeights(Section):
    """Weights from a local file, by the names of the model's parameters and buffers."""

    path: str = Field(
        min_length=1,
        description=(
            "A safetensors or torch.save file, or a folder that contains one, such as an export."
        ),
    )
    strict: bool = Field(
        default=True,
        description=(
            "Fail if names or shapes differ from the model. false loads the weights that fit."
        ),
    )
    strip: str | None = Field(
        default=None,
        min_length=1,
        description="Load only names in the file that have this prefix, and remove the prefix.",
    )
    prefix: str | None = Field(
        default=None, min_length=1, description="A prefix to add to the names in the file."
    )
    skip: _Patterns = Field(
        default=(),
        description=(
            "Regular expressions for parameters of the model that are not loaded, such as ^head."
        ),
    )


def _with_path(given: Any) -> Any:
    if isinstance(given, str):
        return {"path": given}
    return given


class LowRankAdapter(Section):
    """Train low-rank additions to linear layers in place of their weights (LoRA)."""

    method: Literal["lora"] = "lora"
    kind: Literal["lora", "dora", "rslora"] = Field(
        default="lora",
        description=(
            "dora also trains the size of each row of the weights. rslora scales by alpha /"
            " sqrt(rank)."
        ),
    )
    rank: PositiveInt = Field(default=8, description="Rank of the additions.")
    alpha: PositiveFloat | None = Field(
        default=None,
        description="The additions are scaled by alpha / rank. null uses twice the rank.",
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Dropout before the additions."
    )
    targets: tuple[str, ...] | Literal["auto", "all-linear"] = Field(
        default="auto",
        description=(
            "Names of the layers, or how they end, such as q_proj. auto and all-linear: all linear"
            " layers, without the head of a language model."
        ),
    )
    unfrozen: _Patterns = Field(
        default=(),
        description=(
            "Regular expressions for parameters that are trained directly, such as ^head."
        ),
    )


Weights = Annotated[PretrainedWeights | None, BeforeValidator(_with_path)]


Adapter = LowRankAdapter | None


# The guarantee holds only if a sample affects nothing but its own clipped gradient, and nobody
# sees gradients before the noise is added.
_NOT_PRIVATE = {
    "clip_norm": "in a private training, private.max_norm clips the gradient of each sample",
    "gradient_hook": "in a private training, it would see gradients before the noise is added",
}


# For each dimension: the values that a private training allows, and why no others.
_PRIVATE_PLAN: dict[str, tuple[tuple[PlanValue, ...], str]] = {
    "workers": ((1,), "a private training has one worker"),
    "precision": (("fp32",), "a private training computes in fp32"),
    "compile": (("none",), "a private training cannot be compiled"),
    "memory_format": (("contiguous",), "a private training cannot change the memory format"),
    "recompute": (("none",), "a private training keeps its activations"),
    "strategy": (("single", "ddp"), "a private training has one worker"),
}


class Private(Section):
    """How much a training may reveal about any one sample, and how gradients are bounded."""

    epsilon: PositiveFloat = Field(
        default=8.0,
        description="Privacy budget of the whole training. 1 is strong protection, 8 is usual.",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5,
        description="Probability that epsilon does not hold. Keep it below 1 / samples.",
    )
    max_norm: PositiveFloat = Field(
        default=1.0, description="Clip the gradient of each sample to this norm."
    )


def _no_duration(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    raise ExperimentError(
        f"{given!r} is not a number of epochs",
        allowed="a whole number from 1",
        next_step="To evaluate by the clock, set evaluate_after: 10m.",
    )


class Training(Section):
    """How a model is trained. Every field can be searched."""

    epochs: Epochs = Field(default=10, description="Passes over the training data.")
    samples: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="Share of the training samples to use. A seed always picks the same ones.",
    )
    tokens: OptionalTokens = Field(
        default=None,
        description=(
            "Train a language model on this many tokens, such as 20M. epochs then says in how many"
            " equal parts. An evaluation may follow each part."
        ),
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
            "How the rate scales with the global batch. auto decides by the optimizer and by "
            "whether the batch grows or shrinks. legw also warms up longer. adascale follows the "
            "measured gradient noise."
        ),
    )
    optimizer: str = Field(
        default="adamw",
        min_length=1,
        description=(
            "sgd, adamw, the name of a class in torch.optim, adamw_8bit or another one of"
            " bitsandbytes, or package.module:Class. With muon, AdamW updates the parameters that"
            " are no hidden matrices."
        ),
    )
    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="Momentum, for the optimizer sgd only."
    )
    weight_decay: float = Field(default=0.0, ge=0, description="Weight decay of the optimizer.")
    optimizer_options: dict[str, JsonValue] = Field(
        default_factory=dict, description="More arguments of the optimizer, by their torch names."
    )
    parameter_groups: ParameterGroups = Field(
        default_factory=dict,
        description=(
            "lr_factor, weight_decay or frozen for some parameters, by a pattern for their names."
        ),
    )
    initialisation: Initialisation = Field(
        default="default",
        description=(
            "Initial weights of linear and convolutional layers. default keeps the model's own. he "
            "and xavier are normal, with a deviation by the layer's width. orthogonal is also "
            "possible."
        ),
    )
    weights: Weights = Field(
        default=None,
        description=(
            "Start with the weights in a local file or folder: its path, or {path: P, skip:"
            " [head]}."
        ),
    )
    adapter: Adapter = Field(
        default=None,
        description=(
            "Train low-rank additions to frozen weights: {method: lora, rank: 8}. Needs peft."
        ),
    )
    base_weights: Literal["fp32", "bf16", "nf4"] = Field(
        default="fp32",
        description=(
            "How the weights below an adapter are stored. nf4 takes 4 bits for each, and needs"
            " bitsandbytes."
        ),
    )
    augment: Augmentation | None = Field(
        default=None,
        description=(
            "Change training samples at random: {mixup: 0.2, crop: 0.1}. Each option can be "
            "searched."
        ),
    )
    schedule: Schedule = Field(
        default="cosine",
        description=(
            "Schedule of the learning rate after warm-up: constant, cosine, linear, one_cycle, "
            "wsd, plateau, or package.module:Class of a torch scheduler."
        ),
    )
    schedule_options: dict[str, JsonValue] = Field(
        default_factory=dict,
        description=(
            "For plateau: options such as factor, patience and metric. For a custom schedule: its "
            "arguments, and interval: epoch or step."
        ),
    )
    warmup_epochs: Annotated[float | Auto, unit("epochs")] = Field(
        default="auto",
        description="Epochs of warm-up, in which the learning rate rises from near 0.",
    )
    clip_norm: PositiveFloat | None = Field(
        default=None, description="Scale gradients down if their norm is larger than this."
    )
    gradient_hook: GradientHook | None = Field(
        default=None,
        description=(
            "A function, package.module:function, that changes the gradients in place in each "
            "step, before they are clipped."
        ),
    )
    gradient_hook_options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Arguments of gradient_hook, by name."
    )
    private: Private | None = Field(
        default=None,
        description=(
            "Train with differential privacy: {epsilon: 8, delta: 1e-5, max_norm: 1}. Needs opacus."
        ),
    )
    average_decay: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description=("Evaluate and keep a moving average of the weights (EMA) with this decay."),
    )
    average_start: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description=(
            "Average the weights of the last epochs (SWA), and evaluate and keep the average. "
            "0.75 starts after three quarters of the training."
        ),
    )
    average_lr: PositiveFloat | None = Field(
        default=None,
        title="Learning rate of averaged epochs",
        description=(
            "Constant learning rate from average_start on, at the reference batch. null keeps "
            "following the schedule."
        ),
    )
    find_unused_parameters: bool | Auto = Field(
        default="auto",
        description=(
            "Let ddp look for unused parameters in each step. auto: only if the first step does "
            "not use all of them."
        ),
    )
    evaluate_every: Annotated[Epochs, BeforeValidator(_no_duration)] = Field(
        default=1, description="Epochs between evaluations."
    )
    evaluate_after: OptionalSeconds = Field(
        default=None,
        description="Time between evaluations within an epoch, such as 10m. null for none.",
    )
    checkpoint_every: Epochs = Field(default=1, description="Epochs between checkpoints.")
    checkpoint_after: OptionalSeconds = Field(
        default=600.0,
        description="Time between checkpoints within an epoch, such as 10m. null for none.",
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
                f"{self.warmup_epochs} epochs of warm-up do not fit into the training",
                field="warmup_epochs",
                allowed=f"from 0 to epochs = {self.epochs}, or auto",
            )
        return self

    def check_private(self, search: Space, plan: PlanSettings) -> None:
        """Check that no setting breaks the promise of a private training, or would be ignored.

        Args:
            search: What is searched.
            plan: How a trial uses hardware.

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
            if name in search.root:
                raise _cannot(reason, f"search.{name}")
            if getattr(self, name) is not None:
                raise _cannot(reason, f"training.{name}")
        if self.lr_rule == "adascale":
            raise _cannot("adascale needs gradients without noise", "training.lr_rule")
        augment = self.augment
        if "augment.mixup" in search.root or (augment is not None and augment.mixup):
            raise _cannot(
                "with mixup, a sample affects the gradients of other samples",
                "training.augment.mixup",
            )
        other = find_other_value(
            plan, search, {name: allowed for name, (allowed, _) in _PRIVATE_PLAN.items()}
        )
        if other is not None:
            dimension, field = other
            raise _cannot(_PRIVATE_PLAN[dimension][1], field)


def _cannot(reason: str, field: str) -> ExperimentError:
    return ExperimentError(reason, field=field, next_step="Remove it, or training.private.")


def why_unusable(optimizer: str, *, has_own_model: bool) -> str | None:
    """Return why an optimizer cannot be used, or None if it can, or might.

    Args:
        optimizer: The name in torch, in any case.
        has_own_model: Whether the model is a custom model, not one from the zoo.
    """
    name = optimizer.lower()
    return UNUSABLE_OPTIMIZERS.get(name) or (None if has_own_model else OWN_MODELS_ONLY.get(name))


def is_own_schedule(schedule: str) -> bool:
    """Return whether a schedule is a class or function of another package."""
    return ":" in schedule

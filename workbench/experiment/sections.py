"""The sections of an experiment: what each setting means, its unit, its range and its default.

Every section is frozen and refuses keys that it does not know. What a setting does is left to the room
that reads it; whether settings fit together is checked where an experiment is put together.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PositiveFloat,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from workbench.errors import ExperimentError

Auto = Literal["auto"]
PositiveInt = Annotated[int, Field(gt=0), BeforeValidator(lambda given: _no_truth_value(given))]


def _unit(name: str) -> Any:
    """Say in the schema in which unit a number is meant: forms show it."""
    return Field(json_schema_extra={"unit": name})


OptionalBytes = Annotated[
    PositiveInt | None, BeforeValidator(lambda given: parse_size_bytes(given)), _unit("bytes")
]
OptionalSeconds = Annotated[
    PositiveFloat | None, BeforeValidator(lambda given: parse_duration_s(given)), _unit("s")
]
Epochs = Annotated[PositiveInt, _unit("epochs")]
Samples = Annotated[PositiveInt, _unit("samples")]
OpenSamples = Annotated[PositiveInt | Auto, _unit("samples")]

SAMPLERS = ("tpe", "random", "grid", "qmc", "gp", "cmaes", "nsga2", "nsga3")
PRUNERS = ("none", "asha", "hyperband", "median", "percentile", "patience", "wilcoxon")

_LONGEST_S = 2**53
READ_BY = {
    "reduction_factor": ("asha", "hyperband"),
    "percentile": ("percentile",),
    "startup_trials": ("median", "percentile"),
    "patience": ("patience",),
    "p_threshold": ("wilcoxon",),
}

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i)?)?b?", re.IGNORECASE)
_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
)


def parse_duration_s(given: Any) -> Any:
    """Turn a duration such as `1h30m`, `90s` or `2d` into seconds.

    Args:
        given: Text with days, hours, minutes and seconds in this order, or a number of seconds.

    Returns:
        Seconds, or `given` itself where it is no text.

    Raises:
        ExperimentError: If the text has another form.
    """
    if not isinstance(given, str):
        return given
    match = _DURATION.fullmatch(given.replace(" ", ""))
    if not match or not any(match.groups()):
        raise ExperimentError(
            f"{given!r} is no duration", allowed="such as 90s, 10m, 1h30m, or a number of seconds"
        )
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def write_duration(seconds: Any) -> Any:
    """Turn seconds into a duration such as `1h30m`, where that says the same number.

    Args:
        seconds: A number of seconds.

    Returns:
        Text that `parse_duration_s` reads, or `seconds` itself where it is no whole number of seconds.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < _LONGEST_S:
        return seconds
    if seconds != int(seconds):
        return seconds
    rest_s, written = int(seconds), ""
    for unit, unit_s in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest_s = divmod(rest_s, unit_s)
        written += f"{count}{unit}" if count else ""
    return written


def parse_size_bytes(given: Any) -> Any:
    """Turn a size such as `500MB`, `10 GB` or `1.5TiB` into bytes.

    Args:
        given: Text with a number and a unit, or a number of bytes.

    Returns:
        Bytes, or `given` itself where it is no text.

    Raises:
        ExperimentError: If the text has another form.
    """
    if not isinstance(given, str | bool):
        return given
    match = _SIZE.fullmatch(str(given).strip())
    if not match:
        raise ExperimentError(f"{given!r} is no size", allowed="such as 500MB, 10GB, 1.5TiB, or bytes")
    number, prefix, binary = match.groups()
    exponent = " kmgt".index(prefix.lower()) if prefix else 0
    return round(float(number) * (1024 if binary else 1000) ** exponent)


def _no_truth_value(given: Any) -> Any:
    if isinstance(given, bool):
        raise PydanticCustomError("int_type", "a whole number")
    return given


class Section(BaseModel):
    """A part of an experiment: frozen, unknown keys refused, only what differs from the default written."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _write_what_differs(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        return {
            key: value
            for key, value in written.items()
            if fields[key].is_required()
            or getattr(self, key) != fields[key].get_default(call_default_factory=True)
        }


class Objective(Section):
    """What to improve. Several objectives make a multi-objective experiment."""

    metric: str = Field(min_length=1, description="Name of a reported metric.")
    goal: Literal["maximize", "minimize"]
    target: float | None = Field(default=None, description="The run ends when a trial reaches this value.")


class Constraint(Section):
    """A limit that a trial must keep to count as feasible."""

    metric: str = Field(min_length=1, description="Name of a reported metric.")
    at_most: float | None = Field(default=None, description="Infeasible above; either this or the other.")
    at_least: float | None = Field(default=None, description="Infeasible below; either this or the other.")

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_most is None) == (self.at_least is None):
            raise ExperimentError("needs exactly one bound", allowed="at_most or at_least")
        return self

    def violation(self, value: float) -> float:
        """Return by how much `value` breaks the limit; at most 0 where it keeps it."""
        if self.at_most is not None:
            return value - self.at_most
        assert self.at_least is not None
        return self.at_least - value


class Training(Section):
    """How a model is trained; every field may be searched."""

    epochs: Epochs = Field(default=10, description="Passes over the training data.")
    global_batch: OpenSamples = Field(
        default="auto", description="Samples per optimizer step, over all workers."
    )
    reference_batch: Samples = Field(default=128, description="The global batch at which `lr` is meant.")
    lr: PositiveFloat | Auto = Field(
        default="auto", title="Learning rate", description="Learning rate at the reference batch."
    )
    lr_rule: Literal["auto", "constant", "linear", "sqrt", "legw", "adascale"] = Field(
        default="auto",
        title="Learning rate rule",
        description="How the rate follows the global batch, as far as the rule holds; auto decides by "
        "optimizer and direction, legw warms up longer too, adascale follows the measured gradient noise.",
    )
    optimizer: str = Field(
        default="adamw", min_length=1, description="sgd, adamw, or any class of torch.optim by its name."
    )
    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="Momentum of sgd; no other optimizer reads it."
    )
    weight_decay: float = Field(default=0.0, ge=0, description="Weight decay of the optimizer.")
    optimizer_options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Further arguments of the optimizer, by their torch names."
    )
    schedule: Literal["constant", "cosine", "linear", "one_cycle"] = Field(
        default="cosine", description="Course of the learning rate after warm-up."
    )
    warmup_epochs: Annotated[float | Auto, _unit("epochs")] = Field(
        default="auto", description="Epochs over which the rate rises from near 0."
    )
    clip_norm: PositiveFloat | None = Field(
        default=None, description="Gradients are scaled down to at most this norm."
    )
    evaluate_every: Epochs = Field(default=1, description="Epochs between evaluations.")
    checkpoint_every: Epochs = Field(default=1, description="Epochs between checkpoints.")
    checkpoint_after: OptionalSeconds = Field(
        default=600.0,
        description="Within an epoch, a checkpoint is written when the last is so old; or null.",
    )
    measure_noise: bool = Field(
        default=True,
        description="Whether some steps measure the noise of gradients, which tells what a batch is worth.",
    )

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.warmup_epochs != "auto" and not 0 <= self.warmup_epochs <= self.epochs:
            raise ExperimentError(
                f"{self.warmup_epochs} epochs of warm-up do not fit", field="warmup_epochs",
                allowed=f"from 0 to epochs = {self.epochs}, or auto",
            )  # fmt: skip
        return self


class Plan(Section):
    """How a trial uses hardware: global_batch = micro_batch x accumulation x workers."""

    workers: PositiveInt | Auto = Field(default="auto", description="Data-parallel processes of a trial.")
    micro_batch: OpenSamples = Field(default="auto", description="Samples that one worker takes at once.")
    accumulation: PositiveInt | Auto = Field(default="auto", description="Micro batches per optimizer step.")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto", description="Type of the arithmetic."
    )
    recompute: Literal["auto", "none", "blocks"] = Field(
        default="auto",
        description="What of the forward pass is computed again in the backward pass, to save memory.",
    )
    strategy: str = Field(
        default="auto", min_length=1, description="How workers make one step: single, ddp, fsdp, or auto."
    )


class Budget(Section):
    """When a run ends: at whichever limit is met first."""

    trials: PositiveInt | None = Field(
        default=None, description="Configurations to try; each is trained `repeats` times."
    )
    time: OptionalSeconds = Field(default=None, description="Wall time of the run, such as 30m, or seconds.")
    plateau: PositiveInt | None = Field(
        default=None, description="End after this many configurations in a row without a better one."
    )


class EarlyStop(Section):
    """Which trials are stopped early, in units of epochs, or of steps for a `train` function."""

    pruner: Literal["none", "asha", "hyperband", "median", "percentile", "patience", "wilcoxon"] = "none"
    grace: Epochs = Field(default=1, description="No trial is stopped before this many epochs.")
    reduction_factor: int = Field(
        default=3, ge=2, description="asha, hyperband: one in this many goes on at each rung."
    )
    percentile: float = Field(
        default=25.0, gt=0, le=100, description="percentile: the part of trials, in %, that goes on."
    )
    startup_trials: int = Field(
        default=5, ge=0, description="median, percentile: trials that are never stopped."
    )
    patience: Epochs = Field(
        default=5, description="patience: epochs without improvement before a trial is stopped."
    )
    p_threshold: float = Field(default=0.1, gt=0, lt=1, description="wilcoxon: stop where p is below this.")

    @model_validator(mode="after")
    def _check_that_the_pruner_reads_it(self) -> Self:
        for name, pruners in READ_BY.items():
            if self.pruner not in pruners and name in self.model_dump():
                raise ExperimentError(
                    f"the pruner {self.pruner} does not read it", field=name,
                    next_step=f"Remove it, or choose {' or '.join(pruners)}.",
                )  # fmt: skip
        return self


class Sampler(Section):
    """What proposes configurations."""

    name: Literal["tpe", "random", "grid", "qmc", "gp", "cmaes", "nsga2", "nsga3"] = "tpe"
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Further arguments of the sampler, by their Optuna names."
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


class Resources(Section):
    """How much hardware the run may use."""

    concurrency: PositiveInt | Auto = Field(
        default="auto", description="Trials at once; auto fills the hardware."
    )
    autoscaling: bool = Field(
        default=False,
        description="Whether the cluster starts machines when asked: trials then wait for workers that do "
        "not fit yet. Needs concurrency as a number; plans are not measured first.",
    )
    cpus_per_worker: PositiveInt = Field(
        default=1, title="CPU cores per worker", description="CPU cores, and torch threads, of one worker."
    )
    gpus_per_worker: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto",
        title="GPUs per worker",
        description="GPUs of one worker; auto: 1 where there are any.",
    )
    placement: Literal["auto", "pack", "spread"] = Field(
        default="auto",
        description="Workers of a trial on few (pack) or many nodes; auto: few, unless an advice measured "
        "that many are faster.",
    )
    priority: int = Field(
        default=0, description="Runs of a higher priority get workers first; among equals who holds fewest."
    )
    max_retries: int = Field(
        default=2, ge=0, description="How often a trial whose worker was lost is tried again."
    )
    keep_best: PositiveInt | Literal["all"] = Field(
        default=10,
        description="How many finished trials keep their checkpoints: the best, or the whole front.",
    )
    max_checkpoints_size: OptionalBytes = Field(
        default=None,
        description="Limit on all checkpoints of a run, such as 10GB; the worst finished ones go.",
    )
    trial_time: OptionalSeconds = Field(
        default=None, description="A trial that takes longer fails with reason timeout."
    )
    advice: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether plans are measured before the first trial, to answer what `plan` leaves auto; "
        "auto: where budget.time is 10 minutes or more.",
    )
    elastic: bool = Field(
        default=False,
        description="Whether trials may grow onto workers that nobody waits for, at a checkpoint, where the "
        "speeds measured so far say that it pays; global batch and learning rate stay.",
    )

"""The sections of an experiment: what each setting means, its unit, its range and its default.

Every section is frozen and refuses keys that it does not know. What a setting does is left to the package
that reads it; whether settings fit together is checked where an experiment is put together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
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

from workbench.domain import MAX_EXACT
from workbench.errors import ExperimentError
from workbench.experiment.pruners import PRUNERS, SHARED_SETTINGS, PrunerOptions, readers_of
from workbench.experiment.samplers import SAMPLERS, SamplerOptions
from workbench.formatting import parse_bytes, parse_duration_s
from workbench.refusals import Checked
from workbench.registry import Registry

if TYPE_CHECKING:
    from workbench.events import TrialReported

Auto = Literal["auto"]
no_truth_value = BeforeValidator(lambda given: _no_truth_value(given))
exact_number = AfterValidator(lambda given: _exact(given))
ExactInt = Annotated[int, exact_number]
PositiveInt = Annotated[int, Field(gt=0), no_truth_value, exact_number]


def in_unit(name: str) -> Any:
    """Add the unit of a number to the schema, where forms read it."""
    return Field(json_schema_extra={"unit": name})


OptionalBytes = Annotated[PositiveInt | None, BeforeValidator(parse_bytes), in_unit("bytes")]
OptionalSeconds = Annotated[PositiveFloat | None, BeforeValidator(parse_duration_s), in_unit("s")]
Epochs = Annotated[PositiveInt, in_unit("epochs")]
Samples = Annotated[PositiveInt, in_unit("samples")]
OpenSamples = Annotated[PositiveInt | Auto, in_unit("samples")]


def _check_registered(registry: Registry) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in registry:
            raise ExperimentError(f"unknown {registry.kind} {name!r}", allowed=registry.names())
        return name

    return check


def _list_names(registry: Registry) -> Callable[[dict[str, Any]], None]:
    """Return a function that lists the names of a registry in a schema: forms and editors offer them."""
    return lambda schema: schema.update(enum=registry.names())


SamplerName = Annotated[
    str, AfterValidator(_check_registered(SAMPLERS)), Field(json_schema_extra=_list_names(SAMPLERS))
]
PrunerName = Annotated[
    str, AfterValidator(_check_registered(PRUNERS)), Field(json_schema_extra=_list_names(PRUNERS))
]


def _no_truth_value(given: Any) -> Any:
    if isinstance(given, bool):
        raise PydanticCustomError("int_type", "a whole number")
    return given


def _exact(given: int) -> int:
    """Refuse a whole number that computations with floats would change, or could not represent at all."""
    if abs(given) > MAX_EXACT:
        raise ExperimentError("the number is too large", allowed=f"at most {MAX_EXACT:,}")
    return given


class Section(Checked):
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


class MeanLast(Section):
    """The mean of the last reports, for metrics that are noisy."""

    mean_last: PositiveInt = Field(description="How many of the last reports are averaged.")


_VALUES = ("returned", "last", "best")
_MEAN_LAST = re.compile(r"\s*\{?\s*mean_last\s*:\s*(-?\d+)\s*\}?\s*")


def _parse_value(given: Any) -> Any:
    """Return how a trial's value is read, from its name, `mean_last: 3` as text, or that as a mapping."""
    allowed = f"{', '.join(_VALUES)}, or {{mean_last: 3}}"
    if isinstance(given, MeanLast) or (isinstance(given, str) and given in _VALUES):
        return given
    if isinstance(given, str) and (match := _MEAN_LAST.fullmatch(given)):
        given = {"mean_last": int(match[1])}
    if not isinstance(given, Mapping) or set(given) != {"mean_last"}:
        raise ExperimentError(f"{given!r} is not a way to choose the value of a trial", allowed=allowed)
    count = given["mean_last"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ExperimentError(f"{count!r} is refused", field="mean_last", allowed="a whole number above 0")
    return MeanLast(mean_last=count)


class Objective(Section):
    """What to improve. Several objectives make a multi-objective experiment.

    Example:
        >>> wb.Objective(metric="val_accuracy", goal="maximize", target=0.98).target
        0.98
    """

    metric: str = Field(min_length=1, description="Name of a reported metric.")
    goal: Literal["maximize", "minimize"]
    target: float | None = Field(default=None, description="End the run when a trial reaches this value.")
    value: Annotated[Literal["returned", "last", "best"] | MeanLast, BeforeValidator(_parse_value)] = Field(
        default="returned",
        description="Which value counts for a trial: what the function returned, else its last report; its "
        "last report; its best one; or the mean of the last, as mean_last: 3. A model returns the value of "
        "its best checkpoint, which is exported.",
    )


class Constraint(Section):
    """A limit that a trial must keep to count as feasible.

    Example:
        >>> wb.Constraint(metric="latency_ms", at_most=5).violation(7)
        2.0
    """

    metric: str = Field(min_length=1, description="Name of a reported metric.")
    at_most: float | None = Field(default=None, description="Upper limit; give this or at_least.")
    at_least: float | None = Field(default=None, description="Lower limit; give this or at_most.")

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
    reference_batch: Samples = Field(default=128, description="The global batch to which `lr` refers.")
    lr: PositiveFloat | Auto = Field(
        default="auto", title="Learning rate", description="Learning rate at the reference batch."
    )
    lr_rule: Literal["auto", "constant", "linear", "sqrt", "legw", "adascale"] = Field(
        default="auto",
        title="Learning rate rule",
        description="How the rate scales with the global batch, where the rule is valid; auto decides "
        "by optimizer and direction, legw warms up longer too, adascale follows the measured gradient noise.",
    )
    optimizer: str = Field(
        default="adamw", min_length=1, description="sgd, adamw, or the name of a class in torch.optim."
    )
    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="Momentum of sgd; other optimizers do not use it."
    )
    weight_decay: float = Field(default=0.0, ge=0, description="Weight decay of the optimizer.")
    optimizer_options: dict[str, JsonValue] = Field(
        default_factory=dict, description="More arguments of the optimizer, by their torch names."
    )
    schedule: Literal["constant", "cosine", "linear", "one_cycle"] = Field(
        default="cosine", description="Schedule of the learning rate after warm-up."
    )
    warmup_epochs: Annotated[float | Auto, in_unit("epochs")] = Field(
        default="auto", description="Epochs of warm-up, in which the learning rate rises from near 0."
    )
    clip_norm: PositiveFloat | None = Field(
        default=None, description="Largest norm of the gradients; larger ones are scaled down."
    )
    evaluate_every: Epochs = Field(default=1, description="Epochs between evaluations.")
    checkpoint_every: Epochs = Field(default=1, description="Epochs between checkpoints.")
    checkpoint_after: OptionalSeconds = Field(
        default=600.0,
        description="Time between checkpoints within an epoch, such as 10m; null for none.",
    )
    measure_noise: bool = Field(
        default=True,
        description="Measure the gradient noise in some steps, to estimate the efficient batch size.",
    )

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.warmup_epochs != "auto" and not 0 <= self.warmup_epochs <= self.epochs:
            raise ExperimentError(
                f"{self.warmup_epochs} epochs of warm-up do not fit", field="warmup_epochs",
                allowed=f"from 0 to epochs = {self.epochs}, or auto",
            )  # fmt: skip
        return self


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

    pruner: PrunerName = "none"
    unit: str | None = Field(
        default=None,
        min_length=1,
        description="What grace and patience count for a train function: steps, or a metric that it reports "
        "with each objective, such as samples or epochs. Models count epochs.",
    )
    grace: Epochs = Field(
        default=1, description="Epochs that every trial completes before it may be stopped."
    )
    reduction_factor: ExactInt = Field(
        default=3, ge=2, description="asha, hyperband: one in this many trials continues at each rung."
    )
    percentile: float = Field(
        default=25.0, gt=0, le=100, description="percentile: percentage of trials that continue."
    )
    startup_trials: ExactInt = Field(
        default=5, ge=0, description="median, percentile: number of first trials that are never stopped."
    )
    patience: Epochs = Field(
        default=5, description="patience: epochs without improvement before a trial is stopped."
    )
    p_threshold: float = Field(
        default=0.1, gt=0, lt=1, description="wilcoxon: stop if p is below this value."
    )

    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Options of a pruner that another package registers."
    )

    @property
    def kind(self) -> type[PrunerOptions]:
        """The type of the pruner: its options, what it reads and can handle."""
        return PRUNERS.load(self.pruner, field="early_stop.pruner")

    @property
    def counted_metric(self) -> str | None:
        """The metric by which a function states its progress; None where steps or epochs do."""
        return None if self.unit in (None, "steps") else self.unit

    def rung_of(self, report: TrialReported) -> int | None:
        """Return how far a trial was at a report, in the unit of `grace`; None if the report does not say.

        Trials with different batch sizes report at different numbers of samples. To be comparable, a report
        counts for the last multiple of `grace` that it has reached.
        """
        if self.counted_metric is None or report.epoch is not None:
            return report.rung
        count = report.values.get(self.counted_metric, math.nan)
        return int(count // self.grace) * self.grace if math.isfinite(count) else None

    @model_validator(mode="after")
    def _check_that_the_pruner_reads_it(self) -> Self:
        given = self.model_dump()
        for name in SHARED_SETTINGS:
            if name in given and name not in self.kind.reads:
                readers = readers_of(name) or ()
                raise ExperimentError(
                    f"the pruner {self.pruner} does not read it", field=name,
                    next_step=f"Remove it, or choose {' or '.join(readers)}.",
                )  # fmt: skip
        for name in self.options:
            if name not in self.kind.model_fields:
                raise ExperimentError(
                    f"the pruner {self.pruner} has no such option", field=f"options.{name}",
                    allowed=list(self.kind.model_fields) or "no options",
                )  # fmt: skip
        self.kind.model_validate(self.options)
        return self


class Sampler(Section):
    """The algorithm that proposes configurations."""

    name: SamplerName = "tpe"
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="More arguments of the sampler, by their Optuna names."
    )

    @property
    def kind(self) -> type[SamplerOptions]:
        """The type of the sampler: its options, and what it can handle."""
        return SAMPLERS.load(self.name, field="sampler.name")

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given

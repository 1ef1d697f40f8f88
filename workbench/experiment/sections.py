"""How an experiment uses hardware, when it ends, and how much of the hardware it may use.

The fields of the section `plan` follow from the dimensions that `experiment.plan` declares. What a
setting does is left to the package that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    WithJsonSchema,
    create_model,
    model_validator,
)
from typing_extensions import Self

from workbench.experiment.budget_units import parse_price
from workbench.experiment.plan import DIMENSIONS, Dimension, PartialPlan, PlanValue
from workbench.experiment.plan.dimensions import size_bytes
from workbench.experiment.setting_types import (
    Auto,
    ExactInt,
    OptionalBytes,
    OptionalEnergy,
    OptionalMoney,
    OptionalPrice,
    OptionalSeconds,
    PositiveInt,
    Section,
    exact_number,
    no_truth_value,
    unit,
)
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_bytes, parse_duration_s


def _fields() -> Iterator[tuple[str, Any]]:
    for dimension in DIMENSIONS:
        yield dimension.name, (_type(dimension), _field(dimension))


def _type(dimension: Dimension) -> Any:
    if dimension.choices is not None:
        named = ("auto", *dimension.choices)
        return Literal[named] if dimension.size_wording is None else _name_or_size(named)
    if not dimension.is_number:
        return str
    number = Annotated[int, Field(ge=dimension.minimum), no_truth_value, exact_number]
    if dimension.minimum == 1:
        number = Annotated[int, Field(gt=0), no_truth_value, exact_number]
    return number | Auto


def _name_or_size(names: tuple[PlanValue, ...]) -> Any:
    def checked(written: str) -> str:
        if written not in names and size_bytes(written) is None:
            raise ExperimentError(
                f"{written!r} is neither a size nor one of its names",
                allowed=(
                    f"{', '.join(map(str, names))}, or a size such as 500MB, 1.5GiB or a number of"
                    " bytes"
                ),
            )
        return written

    def as_size(written: object) -> object:
        is_number = isinstance(written, int) and not isinstance(written, bool)
        return f"{written}B" if is_number else written

    schema = {"anyOf": [{"type": "string", "enum": list(names)}, {"type": "string"}]}
    return Annotated[str, BeforeValidator(as_size), AfterValidator(checked), WithJsonSchema(schema)]


def _field(dimension: Dimension) -> Any:
    is_name = dimension.choices is None and not dimension.is_number
    return Field(
        default="auto",
        description=dimension.help,
        min_length=1 if is_name else None,
        json_schema_extra={"unit": dimension.unit} if dimension.unit else None,
    )


_Fields: Any = create_model("_Fields", __base__=Section, **dict(_fields()))


class PlanSettings(_Fields):
    """How a trial uses hardware: global_batch = micro_batch x accumulation x replicas."""

    @property
    def decided(self) -> PartialPlan:
        """What is written; what is `auto` is open."""
        values = {dimension.name: getattr(self, dimension.name) for dimension in DIMENSIONS}
        return PartialPlan.of(**{name: value for name, value in values.items() if value != "auto"})


def find_other_value(
    plan: PlanSettings, search: Space, allowed: Mapping[str, Collection[PlanValue]]
) -> tuple[str, str] | None:
    """Return the first dimension that is written or searched with another value, and its dotted
    field.

    Args:
        plan: What is written.
        search: What is searched.
        allowed: The values that a dimension may have besides auto, by its name.
    """
    for name, values in allowed.items():
        searched, written = search.root.get(name), plan.decided.get(name)
        given = [written] if searched is None else searched.values() or []
        if any(value is not None and value not in values for value in given):
            return name, f"{'plan' if searched is None else 'search'}.{name}"
    return None


"""The metric under which a private training reports what it has spent."""
_RAY_UNITS = 10_000
"""Ray counts parts of a GPU in ten-thousandths.

Rounded up, they would not fit beside each other.
"""


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

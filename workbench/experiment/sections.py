"""The sections `plan`, `budget` and `resources`.

The fields of `plan` follow from the dimensions in `experiment.plan`. The package that reads a
setting carries it out.
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

from workbench.experiment.budget_units import parse_amount, parse_price
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
from workbench.experiment.space import Space, possible_values
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_bytes, parse_duration_s


def _fields() -> Iterator[tuple[str, Any]]:
    for dimension in DIMENSIONS:
        yield dimension.name, (_type(dimension), _field(dimension))


def _type(dimension: Dimension) -> Any:
    if dimension.choices is not None:
        names = ("auto", *dimension.choices)
        if dimension.size_wording is not None:
            return _name_or_size(names)
        return Literal[names]
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
                f"{written!r} is neither a size nor a known name",
                allowed=(
                    f"{', '.join(map(str, names))}, or a size such as 500MB, 1.5GiB or a number of"
                    " bytes"
                ),
            )
        return written

    def as_size(written: object) -> object:
        if isinstance(written, int) and not isinstance(written, bool):
            return f"{written}B"
        return written

    schema = {"anyOf": [{"type": "string", "enum": list(names)}, {"type": "string"}]}
    return Annotated[str, BeforeValidator(as_size), AfterValidator(checked), WithJsonSchema(schema)]


def _field(dimension: Dimension) -> Any:
    options: dict[str, Any] = {}
    if dimension.choices is None and not dimension.is_number:
        options["min_length"] = 1
    if dimension.unit:
        options["json_schema_extra"] = {"unit": dimension.unit}
    return Field(default="auto", description=dimension.help, **options)


_Fields: Any = create_model("_Fields", __base__=Section, **dict(_fields()))


class PlanSettings(_Fields):
    """How a trial uses hardware: global_batch = micro_batch x accumulation x replicas."""

    @property
    def decided(self) -> PartialPlan:
        """The dimensions that the file decides. Dimensions that are `auto` stay open."""
        values = {dimension.name: getattr(self, dimension.name) for dimension in DIMENSIONS}
        return PartialPlan.of(**{name: value for name, value in values.items() if value != "auto"})


def find_other_value(
    plan: PlanSettings, search: Space, allowed: Mapping[str, Collection[PlanValue]]
) -> tuple[str, str] | None:
    """Return the first dimension with a value that is not allowed.

    Args:
        plan: The section of the experiment.
        search: What is searched.
        allowed: The values that a dimension may have besides auto, by its name.

    Returns:
        The name of the dimension and its dotted field, or None if all values are allowed.
    """
    for name, values in allowed.items():
        given = possible_values(search, name, plan.decided.get(name))
        if any(value is not None and value not in values for value in given):
            section = "search" if name in search.root else "plan"
            return name, f"{section}.{name}"
    return None


_RAY_UNITS = 10_000
"""Ray counts parts of a GPU in ten-thousandths."""


class Gain(Section):
    """The least improvement that an amount of time, energy or money must buy."""

    at_least: PositiveFloat = Field(
        description="The least improvement of the objective, in its unit."
    )
    per: str = Field(
        description="What it may take: a time such as 1h, an energy such as 1kWh, or 2 EUR."
    )


class Budget(Section):
    """When a run ends. The first limit that is reached ends it."""

    trials: PositiveInt | None = Field(
        default=None,
        description="Number of configurations to try. Each is trained `repeats` times.",
    )
    time: OptionalSeconds = Field(
        default=None, description="Wall time of the run, such as 30m, or seconds."
    )
    gpu_time: OptionalSeconds = Field(
        default=None,
        title="GPU time",
        description=(
            "GPU time of all trials, such as 50h, or seconds. Two GPUs for 1h count as 2h."
        ),
    )
    energy: OptionalEnergy = Field(
        default=None,
        description="Energy of all trials, such as 2kWh, or watt-hours. Needs a meter.",
    )
    price: OptionalPrice = Field(
        default=None,
        description=(
            "Price of the hardware: 2.50 EUR/h for the run while it is active, or 1.80 EUR/GPU-h "
            "for each GPU that trials hold."
        ),
    )
    money: OptionalMoney = Field(
        default=None, description="The most that the run may cost, such as 20 EUR. Needs a price."
    )
    plateau: PositiveInt | None = Field(
        default=None,
        description="End after this many configurations in a row without an improvement.",
    )
    gain: Gain | None = Field(
        default=None,
        description=(
            "End when the last hour, kilowatt-hour or euro has bought less than this: {at_least: "
            "0.001, per: 1kWh}."
        ),
    )

    @model_validator(mode="after")
    def _check_money(self) -> Self:
        if self.gain is not None:
            try:
                parse_amount(self.gain.per, self.price)
            except ExperimentError as error:
                raise ExperimentError(
                    error.problem,
                    field="gain.per",
                    allowed=error.allowed,
                    next_step=error.next_step,
                ) from error
        if self.money is not None and self.price is None:
            raise ExperimentError(
                "a limit on money needs the price of the hardware",
                field="price",
                next_step="Set budget.price, such as 2.50 EUR/h or 1.80 EUR/GPU-h.",
            )
        return self

    def limit_on_gpus(self) -> str | None:
        """Return the field that limits how long GPUs are held, or None."""
        if self.gpu_time is not None:
            return "budget.gpu_time"
        if self.money is None or self.price is None or not parse_price(self.price).is_per_gpu:
            return None
        return "budget.money"

    def limit_on_energy(self) -> str | None:
        """Return the field that needs metered energy, or None."""
        if self.energy is not None:
            return "budget.energy"
        if self.gain is not None and parse_amount(self.gain.per, self.price).kind == "energy":
            return "budget.gain.per"
        return None


class Resources(Section):
    """How much hardware the run may use."""

    concurrency: PositiveInt | Auto = Field(
        default="auto",
        description="Run at most this many trials at once. auto fills the hardware.",
    )
    autoscaling: bool = Field(
        default=False,
        description=(
            "Let the cluster start machines on demand: trials wait for workers that do not fit "
            "yet. Needs a number for concurrency. Plans are not measured first."
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
        description="GPUs of one worker. auto: 1 if there are any.",
    )
    per_gpu: Annotated[PositiveInt, Field(le=100)] | Auto = Field(
        default=1,
        title="Trials per GPU",
        description=(
            "Number of trials that share a GPU, each with one worker and its part of the memory. "
            "auto measures before the first trial how many fit and are faster together."
        ),
    )
    placement: Literal["auto", "pack", "spread"] = Field(
        default="auto",
        description=(
            "Place the workers of a trial on few nodes (pack) or many (spread). auto: few, unless "
            "advice measured that many are faster."
        ),
    )
    priority: ExactInt = Field(
        default=0,
        description=(
            "Runs with a higher priority get workers first. Among equals, the run with the fewest "
            "workers comes first."
        ),
    )
    max_retries: ExactInt = Field(
        default=2, ge=0, description="How often to retry a trial whose worker was lost."
    )
    keep_best: PositiveInt | Literal["all"] = Field(
        default=10,
        description="Keep the checkpoints of this many of the best trials, or of all.",
    )
    max_checkpoints_size: OptionalBytes = Field(
        default=None,
        description=(
            "Limit on all checkpoints of a run, such as 10GB. The worst trials lose theirs first."
        ),
    )
    trial_time: OptionalSeconds = Field(
        default=None,
        description="Time limit of a trial. A trial that takes longer fails with reason timeout.",
    )
    stop_grace: Annotated[PositiveFloat, BeforeValidator(parse_duration_s), unit("s")] = Field(
        default=10.0,
        description=(
            "Time that a command gets to end after SIGTERM, before SIGKILL. After a timeout it "
            "gets at most a tenth of trial_time, but at least 1 second."
        ),
    )
    max_log_size: Annotated[PositiveInt, BeforeValidator(parse_bytes), unit("bytes")] = Field(
        default=100_000_000,
        description="Keep at most this much of a command's output per attempt, such as 100MB.",
    )
    advice: Literal["auto", "always", "never"] = Field(
        default="auto",
        description=(
            "Measure plans before the first trial, to choose values for everything in `plan` that "
            "is auto. auto: measure if budget.time is at least 10 minutes."
        ),
    )
    worker: Literal["warm", "fresh"] = Field(
        default="warm",
        description=(
            "warm: a process trains one trial after another, and its state is restored in between. "
            "fresh: each trial gets a new process, which takes a few seconds."
        ),
    )
    elastic: bool = Field(
        default=False,
        description=(
            "Let trials grow onto idle workers at a checkpoint, if speeds measured so far predict "
            "a benefit, and shrink if another run waits for workers. Global batch and learning "
            "rate stay the same."
        ),
    )

    @property
    def gpus_of_worker(self) -> float | Auto:
        """The GPUs of one worker, or its part of a GPU that trials share."""
        if self.per_gpu in (1, "auto"):
            return self.gpus_per_worker
        # Three parts of a third, each rounded up to 0.3334, would no longer fit on one GPU.
        return math.floor(_RAY_UNITS / self.per_gpu) / _RAY_UNITS

    @property
    def gpu_share(self) -> float:
        """The part of each of its GPUs that a worker has: 1 unless trials share it."""
        if self.gpus_of_worker == "auto":
            return 1.0
        return min(1.0, self.gpus_of_worker)

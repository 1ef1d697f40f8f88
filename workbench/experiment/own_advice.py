"""The section `advise`: which parameters of a function or command are the batch and the rate.

It also says how the function or command reports its speed. The advisor measures the speed and draws
its conclusions.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, model_validator
from typing_extensions import Self

from workbench.experiment.domain import Domain, Float, Int
from workbench.experiment.sections import PlanSettings
from workbench.experiment.setting_types import Section
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError

SpeedUnit = Literal["samples/s", "steps/s", "s/step", "ms/step"]
UNITS: dict[str, SpeedUnit] = {
    "samples_per_s": "samples/s",
    "samples_per_second": "samples/s",
    "samples_per_sec": "samples/s",
    "samples/s": "samples/s",
    "images_per_s": "samples/s",
    "train_samples_per_second": "samples/s",
    "steps_per_s": "steps/s",
    "steps_per_second": "steps/s",
    "steps_per_sec": "steps/s",
    "steps/s": "steps/s",
    "it/s": "steps/s",
    "train_steps_per_second": "steps/s",
    "step_time_s": "s/step",
    "s_per_step": "s/step",
    "s/it": "s/step",
    "s/step": "s/step",
    "step_time_ms": "ms/step",
    "ms_per_step": "ms/step",
    "ms/step": "ms/step",
    "ms/batch": "ms/step",
}
"""Metrics by which programs usually report their speed, and their units."""


class OwnAdvice(Section):
    """The parameters of a function or command that the advisor may choose, and its speed.

    Example:
        >>> from workbench.experiment.own_advice import OwnAdvice
        >>> advise = OwnAdvice(batch="batch_size")
        >>> advise.step_time_s({"loss": 0.5, "steps_per_s": 4.0}, micro_batch=32)
        0.25
    """

    batch: str = Field(
        min_length=1,
        description="The searched parameter that sets the samples of a worker in each step.",
    )
    lr: str | None = Field(
        default=None, min_length=1, description="The searched parameter with the learning rate."
    )
    workers: bool = Field(
        default=False, description="Also recommend the number of workers, plan.workers."
    )
    speed: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "The metric with the speed of a worker. By default one with a usual name, such as "
            "samples_per_s or steps_per_s."
        ),
    )
    unit: SpeedUnit | None = Field(
        default=None,
        description="The unit of speed. Only needed if the metric does not have a usual name.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.speed is not None and self.unit is None and self.speed.lower() not in UNITS:
            raise ExperimentError(
                f"the unit of {self.speed} is not known",
                field="unit",
                allowed=["samples/s", "steps/s", "s/step", "ms/step"],
                next_step="Add advise.unit.",
            )
        if self.speed is None and self.unit is not None:
            raise ExperimentError(
                "missing, but unit is given",
                field="speed",
                next_step="Set advise.speed to the metric that has this unit, or remove unit.",
            )
        if self.lr == self.batch:
            raise ExperimentError(
                f"{self.lr} is already the batch", field="lr", next_step="Choose another parameter."
            )
        return self

    def step_time_s(self, values: dict[str, float], *, micro_batch: int) -> float | None:
        """Return the time of a step according to a report, in seconds. None if it has no speed.

        Args:
            values: The metrics of the report, by name.
            micro_batch: Samples that the worker takes in a step.
        """
        for name, value in values.items():
            if self._is_speed(name) and 0.0 < value < float("inf"):
                match self.unit or UNITS[name.lower()]:
                    case "samples/s":
                        return micro_batch / value
                    case "steps/s":
                        return 1.0 / value
                    case "s/step":
                        return value
                    case "ms/step":
                        return value / 1e3
        return None

    def _is_speed(self, metric: str) -> bool:
        if self.speed is None:
            return metric.lower() in UNITS
        return metric == self.speed

    def check(self, search: Space, plan: PlanSettings) -> None:
        """Check the parameters against the rest of the experiment.

        Args:
            search: What is searched.
            plan: How a trial uses hardware.

        Raises:
            ExperimentError: If a parameter is not searched, if it has conditions or values that are
                not numbers, or if the number of workers is fixed.
        """
        for field, name in (("batch", self.batch), ("lr", self.lr)):
            if name is None:
                continue
            domain = search.root.get(name)
            if domain is None:
                raise ExperimentError(
                    f"{name} is not a searched parameter",
                    field=f"advise.{field}",
                    allowed=[*search.root],
                    next_step=f"Add it under search: {name}.",
                )
            if domain.when or any(name in other.when for other in search.root.values()):
                raise ExperimentError(
                    f"{name} has a condition, or another parameter depends on it",
                    field=f"advise.{field}",
                    allowed="a parameter without conditions",
                    next_step="Remove `when`.",
                )
            words, is_valid = _NUMBERS[field]
            if not all(is_valid(value) for value in _ends(domain)):
                raise ExperimentError(
                    f"{name} has values that are not {words} above 0",
                    field=f"advise.{field}",
                    allowed=f"a parameter whose values are {words} above 0",
                )
        if self.workers and plan.workers != "auto":
            raise ExperimentError(
                "plan.workers already fixes the number of workers",
                field="advise.workers",
                next_step="Remove one of the two.",
            )


def _is_positive(value: JsonValue) -> bool:
    return isinstance(value, int | float) and value > 0


def _is_positive_whole(value: JsonValue) -> bool:
    return isinstance(value, int) and value > 0


_NUMBERS = {"batch": ("whole numbers", _is_positive_whole), "lr": ("numbers", _is_positive)}


def _ends(domain: Domain) -> list[JsonValue]:
    """Return both ends of a range, or all values of choices."""
    if isinstance(domain, Float | Int):
        return [domain.low, domain.high]
    return list(domain.values())

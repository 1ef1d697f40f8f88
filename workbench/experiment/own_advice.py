"""What advice on a function or program needs.

Which parameters are the batch and the rate, and its speed.

How a speed is measured and what follows from it is left to the advisor.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, model_validator
from typing_extensions import Self

from workbench.experiment.domain import Domain
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
"""Names by which programs report their speed, and what they mean."""


class OwnAdvice(Section):
    """What the advisor may choose of a function or a command, and how it reports its speed.

    Example:
        >>> from workbench.experiment.own_advice import OwnAdvice
        >>> advise = OwnAdvice(batch="batch_size")
        >>> advise.step_time_s({"loss": 0.5, "steps_per_s": 4.0}, micro_batch=32)
        0.25
    """

    batch: str = Field(
        min_length=1,
        description="The searched parameter that sets how many samples a worker takes in a step.",
    )
    lr: str | None = Field(
        default=None, min_length=1, description="The searched parameter that is the learning rate."
    )
    workers: bool = Field(
        default=False, description="Recommend the number of workers; otherwise plan.workers stays."
    )
    speed: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Name of the metric that states the speed of a worker; without it, a usual name such as"
            " samples_per_s or steps_per_s."
        ),
    )
    unit: SpeedUnit | None = Field(
        default=None,
        description="What the speed counts; where its name is a usual one, that is known.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.speed is not None and self.unit is None and self.speed.lower() not in UNITS:
            raise ExperimentError(
                f"the unit of {self.speed} is not known",
                field="unit",
                allowed=["samples/s", "steps/s", "s/step", "ms/step"],
            )
        if self.speed is None and self.unit is not None:
            raise ExperimentError(
                "a unit belongs to a metric",
                field="speed",
                next_step="Name the metric in advise.speed.",
            )
        if self.lr == self.batch:
            raise ExperimentError(
                f"{self.lr} is the batch already", field="lr", next_step="Name another."
            )
        return self

    def step_time_s(self, values: dict[str, float], *, micro_batch: int) -> float | None:
        """Return the seconds of a step that a report states; None where it states no speed.

        Args:
            values: Numbers by name.
            micro_batch: Samples that the worker takes in a step.
        """
        for name, value in values.items():
            is_named = name.lower() in UNITS if self.speed is None else name == self.speed
            if is_named and 0.0 < value < float("inf"):
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

    def check(self, search: Space, plan: PlanSettings) -> None:
        """Check what it names against what is searched and planned.

        Raises:
            ExperimentError: If a parameter is not searched, or has values that nothing can be
                computed with, or if the number of workers is fixed.
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
                    f"{name} and another parameter depend on each other",
                    field=f"advise.{field}",
                    allowed="a parameter without conditions",
                    next_step="Remove `when`.",
                )
            kinds = int if field == "batch" else (int, float)
            if not all(isinstance(value, kinds) and value > 0 for value in _ends(domain)):
                kind = "whole numbers" if field == "batch" else "numbers"
                raise ExperimentError(
                    f"{name} has other values than {kind} above 0", field=f"advise.{field}"
                )
        if self.workers and plan.workers != "auto":
            raise ExperimentError(
                "advise.workers leaves the number of workers open, and plan.workers fixes it",
                field="advise.workers",
                next_step="Remove one of the two.",
            )


def _ends(domain: Domain) -> list[JsonValue]:
    """Return the values of a domain that bound all others."""
    low, high = getattr(domain, "low", None), getattr(domain, "high", None)
    return [low, high] if low is not None else list(domain.values() or [])

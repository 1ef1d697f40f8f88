"""Objectives and constraints: what an experiment improves, and what it must not exceed.

`trial_value` computes a trial's values from its reports.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from workbench.experiment.setting_types import PositiveInt, Section
from workbench.foundation.errors import ExperimentError

Goal: TypeAlias = Literal["maximize", "minimize"]
SIZE = "size_bytes"
LATENCY = "latency_s"
MODEL_COSTS = (SIZE, LATENCY)
"""Metrics of a model that are measured only if an objective or a constraint uses them.

The size is in bytes, the latency in seconds per sample.
"""
SPEED = "samples_per_s"
ENERGY_USED = "energy_wh"
MONEY_SPENT = "money"
RESOURCES = (SPEED, ENERGY_USED, MONEY_SPENT)
"""What a trial achieves or uses of the hardware. The run measures it, not the training.

These are the samples per second, the watt-hours, and the cost in the currency of `budget.price`.
"""


def sign_of(goal: str | None) -> float:
    """Return the factor that makes higher values better: 1.0 to maximize, else -1.0."""
    if goal == "maximize":
        return 1.0
    return -1.0


def better_side(goal: str | None) -> str:
    """Return the word for better values: "higher" to maximize, else "lower"."""
    if goal == "maximize":
        return "higher"
    return "lower"


def better_of(goal: str | None) -> Callable[..., float]:
    """Return the function that picks the best of values: `max` to maximize, else `min`."""
    if goal == "maximize":
        return max
    return min


class MeanLast(Section):
    """The mean of the last reports, for a noisy metric."""

    mean_last: PositiveInt = Field(description="Number of reports to average.")


_VALUES = ("returned", "last", "best")
_MEAN_LAST = re.compile(r"\s*\{?\s*mean_last\s*:\s*(-?\d+)\s*\}?\s*")


def _parse_value(given: Any) -> Any:
    """Return a value setting from its name, or from `mean_last: 3` as text or as a mapping."""
    allowed = f"{', '.join(_VALUES)}, or {{mean_last: 3}}"
    if isinstance(given, MeanLast) or (isinstance(given, str) and given in _VALUES):
        return given
    if isinstance(given, str) and (match := _MEAN_LAST.fullmatch(given)):
        given = {"mean_last": int(match[1])}
    if not isinstance(given, Mapping) or set(given) != {"mean_last"}:
        raise ExperimentError(
            f"{given!r} does not say which value of a trial counts", allowed=allowed
        )
    count = given["mean_last"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ExperimentError(
            f"{count!r} is not a number of reports",
            field="mean_last",
            allowed="a whole number above 0",
        )
    return MeanLast(mean_last=count)


class Objective(Section):
    """A metric to improve. Several objectives make a multi-objective experiment.

    Example:
        >>> wb.Objective(metric="val_accuracy", goal="maximize", target=0.98).target
        0.98
    """

    metric: str = Field(min_length=1, description="Name of a reported metric.")
    goal: Goal
    target: float | None = Field(
        default=None, description="End the run when a trial reaches this value."
    )
    value: Annotated[
        Literal["returned", "last", "best"] | MeanLast, BeforeValidator(_parse_value)
    ] = Field(
        default="returned",
        description=(
            "Which value counts for a trial. returned: what the function returned, or else its "
            "last report. last: the last report. best: the best one. {mean_last: 3}: the mean of "
            "the last three. A model returns the value of its best checkpoint, which is exported."
        ),
    )


def trained_metrics(objectives: Sequence[Objective]) -> list[str]:
    """Return the metrics of objectives that the training must report.

    Args:
        objectives: The objectives. The first one is always reported by the training. A function may
            count its own samples per second.
    """
    first, *others = [item.metric for item in objectives]
    return [first, *(metric for metric in others if metric not in RESOURCES)]


def describe_other_metric(
    objectives: Sequence[Objective], missing: str, reported: Collection[str]
) -> str:
    """Return a hint how to improve a metric that exists instead of one that was never reported.

    Args:
        objectives: The objectives.
        missing: The metric that was never reported.
        reported: The metrics that were reported.

    Returns:
        The hint. Empty if no other metric was reported.

    Example:
        >>> objective = wb.Objective(metric="val_accuracy", goal="maximize")
        >>> describe_other_metric([objective], "val_accuracy", ["loss", "accuracy"])
        'to improve accuracy instead: --set objectives.0.metric=accuracy'
    """
    metrics = [objective.metric for objective in objectives]
    others = [name for name in reported if name not in metrics]
    if missing not in metrics or not others:
        return ""
    setting = f"--set objectives.{metrics.index(missing)}.metric"
    close = difflib.get_close_matches(missing, others, n=1)
    if close:
        return f"to improve {close[0]} instead: {setting}={close[0]}"
    return f"to improve one of these instead: {setting}=NAME"


class Constraint(Section):
    """A limit on a metric. A trial that breaks it is not feasible.

    Example:
        >>> wb.Constraint(metric="latency_ms", at_most=5).violation(7)
        2.0
    """

    metric: str = Field(min_length=1, description="Name of a reported metric.")
    at_most: float | None = Field(default=None, description="Upper limit. Give this or at_least.")
    at_least: float | None = Field(default=None, description="Lower limit. Give this or at_most.")

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_most is None) == (self.at_least is None):
            raise ExperimentError(
                "a limit needs exactly one bound", allowed="at_most or at_least, not both"
            )
        return self

    def violation(self, value: float) -> float:
        """Return by how much `value` breaks the limit. 0 or less: it keeps the limit."""
        if self.at_most is not None:
            return value - self.at_most
        assert self.at_least is not None
        return self.at_least - value

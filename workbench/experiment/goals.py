"""What an experiment wants.

Its objectives, how the value of a trial is read from them, and its constraints.

Reading the values from the reports of a trial is left to `trial_value`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from workbench.experiment.setting_types import PositiveInt, Section
from workbench.foundation.errors import ExperimentError

Goal: TypeAlias = Literal["maximize", "minimize"]
SIZE = "size_bytes"
LATENCY = "latency_s"
MODEL_COSTS = (SIZE, LATENCY)
"""What is measured of a model where an objective or a constraint names it.

Bytes, seconds for a sample.
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


class MeanLast(Section):
    """The mean of the last reports, for metrics that are noisy."""

    mean_last: PositiveInt = Field(description="How many of the last reports are averaged.")


_VALUES = ("returned", "last", "best")
_MEAN_LAST = re.compile(r"\s*\{?\s*mean_last\s*:\s*(-?\d+)\s*\}?\s*")


def _parse_value(given: Any) -> Any:
    """Return how a trial's value is read, from its name, `mean_last: 3` as text, or that as a
    mapping.
    """
    allowed = f"{', '.join(_VALUES)}, or {{mean_last: 3}}"
    if isinstance(given, MeanLast) or (isinstance(given, str) and given in _VALUES):
        return given
    if isinstance(given, str) and (match := _MEAN_LAST.fullmatch(given)):
        given = {"mean_last": int(match[1])}
    if not isinstance(given, Mapping) or set(given) != {"mean_last"}:
        raise ExperimentError(
            f"{given!r} is not a way to choose the value of a trial", allowed=allowed
        )
    count = given["mean_last"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ExperimentError(
            f"{count!r} is not valid", field="mean_last", allowed="a whole number above 0"
        )
    return MeanLast(mean_last=count)


class Objective(Section):
    """What to improve. Several objectives make a multi-objective experiment.

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
            "Which value counts for a trial: what the function returned, else its last report; its"
            " last report; its best one; or the mean of the last, as mean_last: 3. A model returns"
            " the value of its best checkpoint, which is exported."
        ),
    )


def describe_other_metric(
    objectives: Sequence[Objective], missing: str, reported: Collection[str]
) -> str:
    """Return how to improve another metric than one that was never reported.

    Empty if there is no other.

    Args:
        objectives: The objectives.
        missing: The metric of one of them.
        reported: The metrics that were reported.

    Example:
        >>> objective = wb.Objective(metric="val_accuracy", goal="maximize")
        >>> describe_other_metric([objective], "val_accuracy", ["loss", "accuracy"])
        'to improve accuracy instead: --set objectives.0.metric=accuracy'
    """
    metrics = [objective.metric for objective in objectives]
    others = [name for name in reported if name not in metrics]
    if missing not in metrics or not others:
        return ""
    close = difflib.get_close_matches(missing, others, n=1)
    lead, name = (close[0], close[0]) if close else ("one of these", "NAME")
    return f"to improve {lead} instead: --set objectives.{metrics.index(missing)}.metric={name}"


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

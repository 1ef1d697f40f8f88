"""What came of a run so far, as a front end shows it.

Its best trial or its front, and its failures.

Part of the messages in `protocol`; filling them in is left to `run_summaries`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True)


class Best(_Response):
    """The best trial of a run so far, with the mean values of its configuration where that is
    repeated.
    """

    trial: int
    values: dict[str, float | str] = Field(description="NaN and infinities are strings.")
    params: dict[str, Any]
    num_repeats: int = Field(default=1, description="Over how many trials the values are means.")
    certainty: tuple[str, ...] = Field(
        default=(),
        description="On how many samples the value rests and how sure it is, in sentences.",
    )


class Chosen(_Response):
    """The trial that a user chose by hand."""

    trial: int
    words: str = Field(description="Its objectives beside the best values.")


class Failure(_Response):
    """Trials that failed with one message."""

    reason: str
    message: str
    num_trials: int
    trials: tuple[int, ...] = Field(description="The first of them.")


class EndedAttempt(_Response):
    """An attempt of a trial that ended early."""

    attempt: int
    reason: str
    message: str
    next_plan: dict[str, Any]


class Extreme(_Response):
    """The best value of one of several objectives."""

    metric: str
    value: float
    trial: int


class Front(_Response):
    """The trials that no other beats in every objective."""

    num_trials: int
    extremes: tuple[Extreme, ...]


class ObjectiveSummary(_Response):
    """What a run optimises."""

    metric: str
    goal: Literal["maximize", "minimize"]
    target: float | None

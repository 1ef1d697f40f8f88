"""The fields that every event has."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from workbench.foundation.events.clock import steady_unix_s
from workbench.foundation.outside_text import storable

OutsideText = Annotated[str, AfterValidator(storable)]
"""Text that may come from outside, such as the message of another library."""


class EventHeader(BaseModel):
    """The fields of every event."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    time_unix_s: float = Field(default_factory=steady_unix_s)


class TrialEventHeader(EventHeader):
    """The fields of every event of a trial."""

    trial: int = Field(description="Number of the trial, from 0.")

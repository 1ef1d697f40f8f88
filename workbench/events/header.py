"""The fields that every event has."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from workbench.events.clock import steady_unix_s


class EventHeader(BaseModel):
    """The fields of every event."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    time_unix_s: float = Field(default_factory=steady_unix_s)


class TrialEventHeader(EventHeader):
    """The fields of every event of a trial."""

    trial: int = Field(description="Number of the trial, from 0.")

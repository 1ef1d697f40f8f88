"""What every event carries, whatever it tells."""

from __future__ import annotations

import time

from pydantic import BaseModel, ConfigDict, Field


class EventHeader(BaseModel):
    """What every event carries."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    time_unix_s: float = Field(default_factory=time.time)


class TrialEventHeader(EventHeader):
    """What every event of a trial carries."""

    trial: int = Field(description="Number of the trial that it happened to, from 0.")

"""The fields of all events, their clock, and the states of runs and trials.

The clock of the machine may be set during a run. Times of events are compared with each other, so
they need a clock that does not jump. If a run continues in another process, its clock continues
from the last event. Leases and files use the clock of the machine, because other processes compare
them with their own.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from workbench.foundation.outside_text import storable


def _passed_s() -> float:
    """Return seconds since a fixed moment."""
    # On Linux this clock also counts while the machine is suspended.
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


_BEGAN_S = time.time() - _passed_s()
_ahead_s = 0.0


def process_unix_s() -> float:
    """Return the time in seconds since 1970, even if the machine's clock was set meanwhile."""
    return _BEGAN_S + _passed_s()


def steady_unix_s() -> float:
    """Return the time for a new event, which is later than all events that came before it."""
    return process_unix_s() + _ahead_s


def continue_from(unix_s: float) -> None:
    """Make all further events of this process later than a time, such as the run's last event.

    Args:
        unix_s: Seconds since 1970. A time that has passed changes nothing.
    """
    global _ahead_s
    _ahead_s = max(0.0, unix_s - process_unix_s())


OutsideText = Annotated[str, AfterValidator(storable)]
"""Text that may come from outside, such as the message of another library."""


class EventHeader(BaseModel):
    """The fields of every event."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    time_unix_s: float = Field(default_factory=steady_unix_s)


class TrialEventHeader(EventHeader):
    """The fields of every event of a trial."""

    trial: int = Field(description="Number of the trial, from 0.")


TrialState = Literal["waiting", "running", "complete", "pruned", "stopped", "failed"]
RunState = Literal["waiting", "running", "stopping", "complete", "stopped", "failed", "lost"]
Reason = Literal["oom", "diverged", "error", "lost", "timeout", "storage"]

FINISHED_TRIAL_STATES: frozenset[TrialState] = frozenset(
    {"complete", "pruned", "stopped", "failed"}
)
FINISHED_RUN_STATES: frozenset[RunState] = frozenset({"complete", "stopped", "failed"})

"""The events of a run as typed classes, with conversion to and from JSON.

An event is one fact, stored once and never changed. Fields are only ever added, and a reader
ignores unknown fields, so new versions read old stores and old versions read new ones. Non-finite
numbers are written as the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from workbench.foundation.errors import StoreError
from workbench.foundation.events.advice import (
    AdviceGiven,
    AdviceRequested,
    CandidateTried,
    PlanMeasured,
    RatesTested,
    SharingMeasured,
)
from workbench.foundation.events.header import (
    FINISHED_RUN_STATES,
    FINISHED_TRIAL_STATES,
    Reason,
    RunState,
    TrialState,
    continue_from,
    process_unix_s,
    steady_unix_s,
)
from workbench.foundation.events.proposals import (
    Clone,
    LowFidelity,
    MemoryPredicted,
    PriorTrialAdded,
    RepeatedTraining,
    RepeatsInherited,
    ReplayPlanned,
    Segment,
    TrialEnqueued,
    TrialProposed,
    continued_trial,
)
from workbench.foundation.events.runs import (
    AlertCleared,
    AlertDelivered,
    AlertRaised,
    AlertsArmed,
    CommandHandled,
    DriverStarted,
    EnergyMetered,
    KeptVersion,
    LogMatched,
    ModelChosen,
    Noted,
    ProgramKept,
    RunsImported,
    RunStateChanged,
    SettingsChanged,
    VersionDecided,
    VersionJudged,
)
from workbench.foundation.events.trials import (
    AttachmentSaved,
    AttemptEnded,
    CheckpointSaved,
    CheckpointsDeleted,
    PeakRate,
    PredictedMemory,
    ResizeMeasured,
    TokenCounts,
    TrialEnded,
    TrialImported,
    TrialPlanned,
    TrialReported,
    TrialResized,
    TrialStarted,
    TrialTested,
)
from workbench.foundation.outside_text import storable_document

__all__ = [
    "FINISHED_RUN_STATES",
    "FINISHED_TRIAL_STATES",
    "AdviceGiven",
    "AdviceRequested",
    "AlertCleared",
    "AlertDelivered",
    "AlertRaised",
    "AlertsArmed",
    "AttachmentSaved",
    "AttemptEnded",
    "CandidateTried",
    "CheckpointSaved",
    "CheckpointsDeleted",
    "Clone",
    "CommandHandled",
    "DriverStarted",
    "EnergyMetered",
    "Event",
    "KeptVersion",
    "LogMatched",
    "LowFidelity",
    "MemoryPredicted",
    "ModelChosen",
    "Noted",
    "PeakRate",
    "PlanMeasured",
    "PredictedMemory",
    "PriorTrialAdded",
    "ProgramKept",
    "RatesTested",
    "Reason",
    "RepeatedTraining",
    "RepeatsInherited",
    "ReplayPlanned",
    "ResizeMeasured",
    "RunState",
    "RunStateChanged",
    "RunsImported",
    "Segment",
    "SettingsChanged",
    "SharingMeasured",
    "Sink",
    "TokenCounts",
    "TrialEnded",
    "TrialEnqueued",
    "TrialImported",
    "TrialPlanned",
    "TrialProposed",
    "TrialReported",
    "TrialResized",
    "TrialStarted",
    "TrialState",
    "TrialTested",
    "VersionDecided",
    "VersionJudged",
    "continue_from",
    "continued_trial",
    "from_json",
    "process_unix_s",
    "steady_unix_s",
    "to_json",
]

Event = (
    DriverStarted
    | RunStateChanged
    | TrialEnqueued
    | PriorTrialAdded
    | RepeatsInherited
    | MemoryPredicted
    | SettingsChanged
    | RunsImported
    | ProgramKept
    | EnergyMetered
    | ReplayPlanned
    | TrialProposed
    | TrialImported
    | TrialStarted
    | TrialPlanned
    | TrialReported
    | TrialTested
    | CheckpointSaved
    | AttachmentSaved
    | CheckpointsDeleted
    | AttemptEnded
    | TrialResized
    | ResizeMeasured
    | TrialEnded
    | AdviceRequested
    | PlanMeasured
    | SharingMeasured
    | RatesTested
    | CandidateTried
    | AdviceGiven
    | ModelChosen
    | VersionDecided
    | VersionJudged
    | CommandHandled
    | Noted
    | AlertsArmed
    | LogMatched
    | AlertRaised
    | AlertCleared
    | AlertDelivered
)
Sink = Callable[[Event], None]

_REPLACED = "\ufffd"
"""pydantic writes this for half a character in a key, so that two keys may become one."""
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])


def to_json(event: Event) -> str:
    """Write an event as one line of JSON.

    Args:
        event: Any event.

    Returns:
        JSON text without line breaks. Non-finite numbers are texts, and characters that JSON cannot
        hold are escaped.
    """
    try:
        text = event.model_dump_json(exclude_defaults=False)
        if _REPLACED not in text:
            return text
    except PydanticSerializationError:
        pass
    # A value or a name with a lone surrogate, in a field that is not declared as text from outside.
    plain = storable_document(event.model_dump())
    return type(event).model_validate(plain).model_dump_json(exclude_defaults=False)


def from_json(text: str | bytes) -> Event:
    """Read what `to_json` wrote.

    Args:
        text: One JSON document.

    Returns:
        The event.

    Raises:
        StoreError: If the text is not an event that this version knows.
    """
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise StoreError(
            f"an event cannot be read: {error.errors(include_url=False)[0]['msg']}",
            next_step="A newer version of the workbench may have written it: update this one.",
        ) from error

"""The names of learning rate schedules. Their options are in `schedules`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from workbench.foundation.errors import ExperimentError

PLATEAU = "plateau"
NAMES = ("constant", "cosine", "linear", "one_cycle", PLATEAU)


def _check_name(schedule: str) -> str:
    if schedule in NAMES or re.fullmatch(r"[^:\s]+:[^:\s]+", schedule):
        return schedule
    names = ", ".join(map(repr, NAMES))
    raise ExperimentError(
        f"unknown schedule {schedule!r}",
        allowed=f"{names} or package.module:Class of a torch scheduler",
    )


Schedule = Annotated[
    str,
    AfterValidator(_check_name),
    WithJsonSchema(
        {"anyOf": [{"enum": list(NAMES), "type": "string"}, {"pattern": ":", "type": "string"}]}
    ),
]


def is_own_schedule(schedule: str) -> bool:
    """Return whether a schedule is a class or function of another package."""
    return ":" in schedule

"""Rules that watch a run: what each detects, and who is notified.

They are set in an experiment, for its runs, or in a user's settings, for all runs; those about
served models in the settings only. When a rule fires, and how sinks are notified, is left to
`workbench.store.alerts`.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat

from workbench.experiment.setting_types import PositiveInt, Section
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_duration_s

Seconds = Annotated[
    PositiveFloat, BeforeValidator(parse_duration_s), Field(json_schema_extra={"unit": "s"})
]

_MAX_PATTERN_CHARS = 500
_MAX_VARYING, _MAX_ENDLESS, _ENDLESS = 6, 2, 10
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "IN", "ANY", "CATEGORY", "AT"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})


class _Rule(Section):
    to: tuple[str, ...] | None = Field(
        default=None,
        description="Names of the sinks that are notified; by default, all sinks of the settings.",
    )
    at_most: PositiveInt = Field(
        default=20,
        description=(
            "Maximum number of alerts of this rule per run or server; the last one states that."
        ),
    )


class TargetReached(_Rule):
    """The run has reached its target, and ends."""

    on: Literal["target_reached"]


class RunEnded(_Rule):
    """The run has ended, or its driver was gone and another one took over (lost)."""

    on: Literal["run_ended"]
    states: tuple[Literal["complete", "stopped", "failed", "lost"], ...] = Field(
        default=("complete", "stopped", "failed", "lost"),
        min_length=1,
        description="Which ends raise an alert.",
    )


class Diverged(_Rule):
    """An objective of a trial became NaN or infinite; reported once per trial."""

    on: Literal["diverged"]


class NoProgress(_Rule):
    """No trial began, reported, saved a checkpoint or ended for a while."""

    on: Literal["no_progress"]
    within: Seconds = Field(
        default=1800.0, description="How long a run makes no progress before the alert."
    )


class QueueWaiting(_Rule):
    """Trials wait for workers, and none has any."""

    on: Literal["queue"]
    waiting: Seconds = Field(default=600.0, description="How long trials wait before the alert.")


class GpuLost(_Rule):
    """A GPU has dropped off its node; reported once until it is back."""

    on: Literal["gpu_lost"]


class Temperature(_Rule):
    """A GPU is hot; reported once until it is 5 °C below the limit again."""

    on: Literal["temperature"]
    above: float = Field(
        default=85.0, gt=0, json_schema_extra={"unit": "°C"}, description="The limit."
    )


class DiskFull(_Rule):
    """A disk that the run writes to is nearly full.

    Reported once until it is 2 % below the limit again.
    """

    on: Literal["disk"]
    above: float = Field(
        default=0.95, gt=0, le=1, description="The limit, as a fraction of the disk."
    )


class LogLine(_Rule):
    """A worker printed a line that matches a pattern; reported once per attempt of a trial."""

    on: Literal["log"]
    pattern: Annotated[str, AfterValidator(lambda given: check_pattern(given))] = Field(
        min_length=1,
        description="A regular expression; the first 1,000 characters of a line are searched.",
    )
    action: Literal["notify", "retry", "stop", "exclude_node"] = Field(
        default="notify",
        description=(
            "Additional action: retry continues from the last checkpoint, as often as"
            " resources.max_retries allows; stop ends the trial; exclude_node continues elsewhere,"
            " and nothing of the run is placed on that node again."
        ),
    )


class Drift(_Rule):
    """The data or the answers of a served model have drifted.

    Reported once until that has passed.
    """

    on: Literal["drift"]


AlertRule = Annotated[
    TargetReached
    | RunEnded
    | Diverged
    | NoProgress
    | QueueWaiting
    | GpuLost
    | Temperature
    | DiskFull
    | LogLine,
    Field(discriminator="on"),
]
SettingsRule = Annotated[AlertRule | Drift, Field(discriminator="on")]
"""A rule in a user's settings: about their runs, or about the models that they serve."""
RULES: dict[str, type[Section]] = {
    "target_reached": TargetReached,
    "run_ended": RunEnded,
    "diverged": Diverged,
    "no_progress": NoProgress,
    "queue": QueueWaiting,
    "gpu_lost": GpuLost,
    "temperature": Temperature,
    "disk": DiskFull,
    "log": LogLine,
}
KINDS = frozenset(RULES)
SETTINGS_KINDS = KINDS | {"drift"}


def check_pattern(pattern: str) -> str:
    """Refuse a pattern that is invalid, or that could keep a worker busy for very long on some
    lines.

    Python's expressions cannot be interrupted: what repeats within a repetition may try every way
    of dividing a line, so a repetition must be of single characters, or of something that does not
    vary.

    Args:
        pattern: A regular expression.

    Returns:
        The pattern.

    Raises:
        ExperimentError: If it is refused.
    """
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise ExperimentError(
            f"the pattern has {len(pattern)} characters", allowed=f"at most {_MAX_PATTERN_CHARS}"
        )
    try:
        re.compile(pattern)
        parsed: Any = importlib.import_module(
            "sre_parse" if sys.version_info < (3, 11) else "re._parser"
        )
        parts = parsed.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ExperimentError(f"{pattern!r} is not a regular expression: {error}") from error
    varying, endless = _count(parts)
    if varying > _MAX_VARYING or endless > _MAX_ENDLESS:
        raise ExperimentError(
            "it could take very long on some lines",
            allowed=(
                f"at most {_MAX_VARYING} variable parts, {_MAX_ENDLESS} of them unbounded, such"
                " as .*"
            ),
            next_step="Simplify the pattern.",
        )
    return pattern


def _count(parts: Iterable[tuple[Any, Any]]) -> tuple[int, int]:
    """Return how many parts of an expression vary in what they take, and how many of them without
    end.
    """
    varying = endless = 0
    for operation, argument in parts:
        kind = str(operation)
        if kind in _SINGLE:
            continue
        if kind in _REPEATS:
            least, most, body = argument
            if most > 1 and any(_count(body)):
                raise ExperimentError(
                    "a repetition within a repetition could take very long on some lines",
                    allowed="repetitions of single characters, such as .* or [0-9]+",
                    next_step="Simplify the pattern.",
                )
            inner = (0, 0) if most > 1 else _count(body)
            varying += inner[0] + (least != most)
            endless += inner[1] + (least != most and most > _ENDLESS)
            continue
        inside = _inside(kind, argument)
        found = [_count(part) for part in inside]
        varying += sum(each[0] for each in found) + (len(inside) if len(inside) > 1 else 0)
        endless += sum(each[1] for each in found)
    return varying, endless


def _inside(kind: str, argument: Any) -> list[Any]:
    """Return the expressions within one that is no single character."""
    match kind:
        case "SUBPATTERN":
            return [argument[-1]]
        case "ATOMIC_GROUP":
            return [argument]
        case "ASSERT" | "ASSERT_NOT":
            return [argument[1]]
        case "BRANCH":
            return list(argument[1])
        case _:
            raise ExperimentError(
                "it contains a backreference or a condition",
                allowed="characters, repetitions, groups and alternatives",
                next_step="Simplify the pattern.",
            )

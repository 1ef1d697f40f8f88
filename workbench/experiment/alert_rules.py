"""The rules of alerts: what each rule detects, and who is notified.

You write rules in an experiment, for its runs, or in your settings, for all runs. Rules about
served models are only possible in the settings. `workbench.store.alerts` decides when a rule fires,
and notifies the sinks.
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
        description="Names of the sinks to notify. By default all sinks in the settings.",
    )
    at_most: PositiveInt = Field(
        default=20,
        description=(
            "Send at most this many alerts of this rule per run or server. The last one says so."
        ),
    )


class TargetReached(_Rule):
    """The run has reached its target, and ends."""

    on: Literal["target_reached"]


class RunEnded(_Rule):
    """The run has ended, or its driver disappeared and another one took over (lost)."""

    on: Literal["run_ended"]
    states: tuple[Literal["complete", "stopped", "failed", "lost"], ...] = Field(
        default=("complete", "stopped", "failed", "lost"),
        min_length=1,
        description="The states that raise an alert.",
    )


class Diverged(_Rule):
    """An objective of a trial became NaN or infinite. Reported once per trial."""

    on: Literal["diverged"]


class NoProgress(_Rule):
    """For a while, no trial started, reported, saved a checkpoint or ended."""

    on: Literal["no_progress"]
    within: Seconds = Field(
        default=1800.0, description="How long a run makes no progress before the alert."
    )


class QueueWaiting(_Rule):
    """All trials wait for workers."""

    on: Literal["queue"]
    waiting: Seconds = Field(default=600.0, description="How long trials wait before the alert.")


class GpuLost(_Rule):
    """A GPU has disappeared from its node. Reported once until it is back."""

    on: Literal["gpu_lost"]


class Temperature(_Rule):
    """A GPU is hot. Reported once until it is 5 °C below the limit again."""

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
    """A worker printed a line that matches a pattern. Reported once per attempt of a trial."""

    on: Literal["log"]
    pattern: Annotated[str, AfterValidator(lambda given: check_pattern(given))] = Field(
        min_length=1,
        description="A regular expression. Only the first 1,000 characters of a line are searched.",
    )
    action: Literal["notify", "retry", "stop", "exclude_node"] = Field(
        default="notify",
        description=(
            "What to do besides notifying. retry continues from the last checkpoint, as often as "
            "resources.max_retries allows. stop ends the trial. exclude_node continues on another "
            "node, and the run never uses that node again."
        ),
    )


class Drift(_Rule):
    """The data or the answers of a served model have drifted. Reported once until it is over."""

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
"""A rule in a user's settings, about their runs or about the models that they serve."""
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
    """Check that a pattern is valid and fast on every line.

    Python cannot interrupt a regular expression, so a slow pattern would block a worker. A
    repetition within a repetition may try every way to divide a line. So a repetition may contain
    only single characters, or parts that do not vary.

    Args:
        pattern: A regular expression.

    Returns:
        The pattern.

    Raises:
        ExperimentError: If it is invalid or could be slow.
    """
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise ExperimentError(
            f"the pattern has {len(pattern)} characters",
            allowed=f"at most {_MAX_PATTERN_CHARS} characters",
            next_step="Shorten it.",
        )
    try:
        re.compile(pattern)
        # Python 3.11 moved its parser of regular expressions.
        parser: Any = importlib.import_module(
            "sre_parse" if sys.version_info < (3, 11) else "re._parser"
        )
        parts = parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ExperimentError(
            f"{pattern!r} is not a regular expression: {error}",
            next_step="Escape special characters with a backslash.",
        ) from error
    varying, endless = _count(parts)
    if varying > _MAX_VARYING or endless > _MAX_ENDLESS:
        raise ExperimentError(
            "the pattern could take very long on some lines",
            allowed=(
                f"at most {_MAX_VARYING} variable parts, {_MAX_ENDLESS} of them unbounded, such"
                " as .*"
            ),
            next_step="Simplify the pattern.",
        )
    return pattern


def _count(parts: Iterable[tuple[Any, Any]]) -> tuple[int, int]:
    """Return how many parts of an expression vary, and how many of these are unbounded.

    A part varies if it can match different numbers of characters. The time on the worst line grows
    like the length of the line to the power of the number of unbounded parts.

    Args:
        parts: The expression as Python's parser returns it.

    Raises:
        ExperimentError: If the expression has a nested repetition, or something that cannot be
            judged.
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
            inner_varying = inner_endless = 0
            if most <= 1:
                inner_varying, inner_endless = _count(body)
            varying += inner_varying + (least != most)
            endless += inner_endless + (least != most and most > _ENDLESS)
            continue
        inner_parts = _inside(kind, argument)
        if len(inner_parts) > 1:  # each alternative is a way to match
            varying += len(inner_parts)
        for inner_varying, inner_endless in map(_count, inner_parts):
            varying += inner_varying
            endless += inner_endless
    return varying, endless


def _inside(kind: str, argument: Any) -> list[Any]:
    """Return the expressions within a group, an assertion or alternatives."""
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
                "the pattern contains a backreference or a condition",
                allowed="characters, repetitions, groups and alternatives",
                next_step="Simplify the pattern.",
            )

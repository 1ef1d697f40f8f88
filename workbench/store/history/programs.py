"""Describe which trials of a run ran which version of its code, if there are several versions."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Protocol

from pydantic import JsonValue

from workbench.experiment.code_versions import CODE
from workbench.foundation.events import KeptVersion, ProgramKept
from workbench.foundation.formatting import format_count
from workbench.store.history.trial import Trial

_MAX_NAMED = 3


class Programs(Protocol):
    """The part of a history with the trials of a run and the versions of its code."""

    @property
    def programs(self) -> list[ProgramKept]:
        """The versions, oldest first."""
        ...

    @property
    def trials(self) -> dict[int, Trial]:
        """The trials by number."""
        ...


def code_of(history: Programs, trial: Trial) -> str | None:
    """Return the hash of the kept code that a trial ran, or None if it was not recorded."""
    return code_sha256_of(history, trial.program, trial.params)


def code_sha256_of(history: Programs, version: int, params: Mapping[str, JsonValue]) -> str | None:
    """Return the hash of the kept code that a configuration runs, or None if it is not known.

    Args:
        history: The run.
        version: The version of its code, by number.
        params: The configuration, which chooses between versions if the code is searched.
    """
    event = next((event for event in history.programs if event.version == version), None)
    if event is None:
        return None
    chosen = version_of(event, params)
    return event.code_sha256 if chosen is None else chosen.code_sha256


def version_of(event: ProgramKept, params: Mapping[str, JsonValue]) -> KeptVersion | None:
    """Return the searched version of the code that a configuration runs, if there are several."""
    return next((item for item in event.choices if item.name == params.get(CODE)), None)


def describe_versions(history: Programs) -> list[str]:
    """Return a line for each searched version of the code: how it differs, and its trials.

    Args:
        history: The run. Without searched versions, there are no lines.
    """
    if not history.programs:
        return []
    choices = history.programs[0].choices
    lines: list[str] = []
    for version in choices:
        numbers = [
            trial.number
            for trial in history.trials.values()
            if trial.attempts and trial.params.get(CODE) == version.name
        ]
        source = "" if version.source == version.name else f" ({version.source})"
        who = format_trials(numbers) if numbers else "no trial yet"
        lines.append(f"code {version.name}{source}: {version.describe_difference()}; {who}")
    return lines


def describe_program(history: Programs, trial: Trial) -> str | None:
    """Describe which version of the code a trial ran, or return None if there is only one."""
    if len(history.programs) < 2:
        return None
    return (
        f"It ran version {trial.program} of {len(history.programs)} of the code. Results of other"
        " versions are not comparable, because they come from other code or data."
    )


def describe_programs(history: Programs) -> list[str]:
    """Return a line for each version of the code: which trials ran it, and what has changed.

    Args:
        history: The run. With only one version, there are no lines.
    """
    if len(history.programs) < 2:
        return describe_versions(history)
    return describe_versions(history) + [
        _describe(event, _trials_of(history, event)) for event in history.programs
    ]


def _trials_of(history: Programs, event: ProgramKept) -> list[int]:
    return [
        trial.number
        for trial in history.trials.values()
        if trial.attempts and trial.program == event.version
    ]


def _describe(event: ProgramKept, trials: list[int]) -> str:
    at = datetime.datetime.fromtimestamp(event.time_unix_s).strftime("%Y-%m-%d %H:%M:%S")
    who = format_trials(trials) if trials else "no trial yet"
    why = {
        "start": "from the start",
        "current": f"from {at}, as requested",
        "changed": f"from {at}, because data or packages have changed",
    }[event.why]
    changed = f": {_named(event.changed)}" if event.changed else ""
    return f"version {event.version} of the code ({why}{changed}): {who}"


def format_trials(numbers: Iterable[int]) -> str:
    """Write the numbers of trials, given in ascending order, such as `trials 0 to 3, 5`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    ranges = ", ".join(
        f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts
    )
    return f"{'trial' if ranges.isdecimal() else 'trials'} {ranges}"


def _named(paths: Iterable[str]) -> str:
    names = list(paths)
    more = len(names) - _MAX_NAMED
    shown = ", ".join(names[:_MAX_NAMED])
    if more > 0:
        return f"{shown} and {format_count(more, 'other file')}"
    return shown

"""Group the failures of a run by kind, and say why trials were pruned.

This module also decides whether a run had only failures, and whether all further trials would fail
in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.experiment.space import Choice
from workbench.foundation.formatting import format_count
from workbench.store.history.failure_text import (
    cause_in,
    exceptions_in,
    headline,
    within_trial,
    without_variable_parts,
)
from workbench.store.history.history import History
from workbench.store.history.trial import Trial

USED_UP = ("time", "gpu_time", "energy", "money")
"""The reasons of runs that ended at a limit."""
NUM_ALIKE = 3
"""How many configurations must fail in the same way before that ends a run."""
NUM_OF_ONE_CHOICE = 6
"""The same if all of them share a value of a categorical parameter, which may be the cause."""


@dataclass(frozen=True)
class FailureGroup:
    """The trials that failed with one error at one place."""

    reason: str
    message: str
    """The type, the first line of the message, and the cause of the first trial's error.

    It says so if the errors of the others have other numbers or values.
    """
    place: str | None
    """The line of the user's code as file:line, or None if it is unknown."""
    trials: list[Trial]


def failure_groups(history: History) -> list[FailureGroup]:
    """Return the failed trials, grouped by reason, error and place, the most frequent first.

    Errors count as the same if they differ only in numbers, in the values of the trials' own
    parameters, in memory addresses, or in the folders of files. Their causes must be the same as
    well.
    """
    groups: dict[tuple[str, str, str | None], list[Trial]] = {}
    for trial in history.in_state("failed"):
        line = without_variable_parts(_without_params(failure_line(trial), trial))
        kind = trial.reason or "error", line, trial.failed_at
        groups.setdefault(kind, []).append(trial)
    by_kind = [
        FailureGroup(reason, _line_of_all(trials), place, trials)
        for (reason, _, place), trials in groups.items()
    ]
    return sorted(by_kind, key=lambda group: -len(group.trials))


def _line_of_all(trials: Sequence[Trial]) -> str:
    first, *others = map(failure_line, trials)
    return first if all(line == first for line in others) else f"{first} (values differ)"


def _without_params(line: str, trial: Trial) -> str:
    """Return an error without the texts among the trial's own parameters. Numbers go anyway."""
    for value in trial.params.values():
        if isinstance(value, str) and value in line:
            line = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "#", line)
    return line


def failure_line(trial: Trial) -> str:
    """Return the headline of a failed trial: its error in one line, and the cause.

    Args:
        trial: The trial. Without a message the headline is "".
    """
    line, cause = headline(trial.message), cause_in(trial.traceback)
    if cause is None or cause in line:
        return line
    return f"{line} (from {cause})"


def describe_state(history: History, trial: Trial) -> str:
    """Return the state of a trial, and its reason in parentheses."""
    reason = history.reason_of(trial)
    if trial.between_turns and trial.state == "waiting":
        reason = f"after turn {trial.turn} of {history.experiment.early_stop.turns}"
    if reason is None:
        return trial.state
    return f"{trial.state} ({reason})"


def only_failures(history: History) -> str | None:
    """Return a sentence with the first error if there are trials and all failed, otherwise None."""
    failed = history.in_state("failed")
    if not failed or len(failed) < len(history.trials):
        return None
    first = min(failed, key=lambda trial: (trial.ended_unix_s or 0.0, trial.number))
    described = failure_line(first) or first.reason or "no message"
    if len(failed) == 1:
        return f"the only trial failed: {described}"
    groups = failure_groups(history)
    if len(groups) == 1:
        described = groups[0].message or described
        return f"all {format_count(len(failed), 'trial')} failed: {described}"
    return (
        f"all {format_count(len(failed), 'trial')} failed in different ways: the first with"
        f" {described}"
    )


def began_nothing(history: History, reason: str | None = None) -> bool:
    """Return whether a limit of the run ends it before any of its trials started.

    Args:
        history: The run.
        reason: Why it is about to end. None means why it has ended.
    """
    is_used_up = (reason or history.reason) in USED_UP
    return is_used_up and not any(trial.attempts for trial in history.trials.values())


def reasons_of_pruning(history: History) -> dict[int, str]:
    """Return why trials were pruned, by number, in the order in which they ended."""
    pruned = sorted(history.in_state("pruned"), key=lambda trial: trial.ended_unix_s or 0.0)
    return {trial.number: trial.message for trial in pruned if trial.message}


def systematic_failure(history: History) -> str | None:
    """Return a sentence about the error with which all trials of the last driver ended, or None.

    A run has such an error if no trial has ever reported an objective, and at least `NUM_ALIKE`
    configurations have raised the same type of error at the same place. If they all share a value
    of a categorical parameter, `NUM_OF_ONE_CHOICE` are needed, because that value may be the cause.
    Running out of memory, diverging, lost workers and timeouts never count, because they depend on
    the configuration or the machine. If a program ends without an error but has not reported an
    objective, one trial is enough.
    """
    if history.replay_of is not None or not history.drivers:
        return None
    metrics = [item.metric for item in history.objectives]
    # A generator, because a driver calls this often and usually needs only the first trial.
    over = (trial for trial in history.trials.values() if trial.finished)
    first = next(over, None)
    if first is not None and first.is_unreported and all(trial.is_unreported for trial in over):
        return f"trial {first.number} has no result, and others would have none: {first.message}"
    if any(metric in trial.last_values for trial in history.trials.values() for metric in metrics):
        return None
    since_unix_s = history.drivers[-1].time_unix_s
    ended = [
        trial
        for trial in history.in_state("complete", "pruned", "failed")
        if (trial.ended_unix_s or 0.0) >= since_unix_s
    ]
    if any(trial.state != "failed" or trial.reason != "error" for trial in ended):
        return None
    num_configurations = len({trial.configuration for trial in ended})
    needed = NUM_OF_ONE_CHOICE if _shared_choices(history, ended) else NUM_ALIKE
    if num_configurations < needed or len({_cause(trial) for trial in ended}) > 1:
        return None
    return (
        f"the first {format_count(len(ended), 'trial')} failed with the same error before reporting"
        f" {' or '.join(metrics)}: {failure_line(ended[0])}"
    )


def _shared_choices(history: History, trials: list[Trial]) -> bool:
    """Return whether all `trials` share the value of a parameter with several choices."""
    several = [
        name
        for name, domain in history.experiment.search.root.items()
        if isinstance(domain, Choice) and len(domain.values()) > 1
    ]
    return any(len({repr(trial.params.get(name)) for trial in trials}) == 1 for name in several)


def _cause(trial: Trial) -> tuple[str, str, str]:
    """Return the type of the error that ended a trial, the place that raised it, and its cause.

    The place is the line of the user's code if it is known, because a library may raise unrelated
    errors at one place.
    """
    text = trial.traceback or ""
    exceptions = exceptions_in(text)
    frames = [line.strip() for line in text.splitlines() if line.strip().startswith('File "')]
    if not exceptions or not frames:
        return headline(trial.message), "", ""
    cause = (cause_in(text) or "").partition(":")[0]
    return exceptions[-1].partition(":")[0], trial.failed_at or _place_in(frames[-1]), cause


def _place_in(frame: str) -> str:
    """Return a line `File "path", line 9, in main` with the path relative to the trial's folder."""
    return within_trial(frame.removeprefix('File "'))

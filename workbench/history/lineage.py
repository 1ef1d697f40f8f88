"""Which trials continue which: the parts of a training in a population, and stopped trials that go on."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.formatting import counted_noun, format_count, format_value
from workbench.history.history import History
from workbench.history.trial import Trial


def lineage(trials: Mapping[int, Trial], trial: Trial) -> list[Trial]:
    """Return the trials whose training a trial continues, from its beginning, and the trial itself.

    Args:
        trials: All trials of the run, by number.
        trial: One of them; of a run without a population it has no predecessor.
    """
    found = [trial]
    while found[0].segment is not None and found[0].segment.continues is not None:
        found.insert(0, trials[found[0].segment.continues])
    return found


def describe_segment(trials: Mapping[int, Trial], trial: Trial) -> str | None:
    """Describe which part of a training a trial is, and which trial continues it; None for a whole training.

    Args:
        trials: All trials of the run, by number.
        trial: One of them.
    """
    segment = trial.segment
    if segment is None:
        parts = [
            f"continued by trial {other.number}" for other in trials.values() if other.resumes == trial.number
        ]
        if (before := trial.resumes) is not None:
            parts.insert(0, f"continues trial {before}, which was stopped at step {trials[before].last_step}")
        return ", ".join(parts) or None
    text = f"member {segment.member}, {segment.begin} to {segment.end}"
    if segment.continues is None:
        return text
    text += f", continues trial {segment.continues}"
    if segment.replaced is None:
        return text
    before = trials[segment.continues]
    changed = [
        f"{name} {format_value(before.params.get(name))} -> {format_value(value)}"
        for name, value in trial.params.items()
        if before.params.get(name) != value
    ]
    member = f" of member {before.segment.member}" if before.segment is not None else ""
    return f"{text}{member} instead of trial {segment.replaced}" + (f": {', '.join(changed)}" * bool(changed))


def describe_continued(history: History) -> str | None:
    """Describe how many stopped trials of a run were continued, and by which; None where none was."""
    found = [trial for trial in history.trials.values() if trial.resumes is not None]
    if not found:
        return None
    trials = format_count(len(history.trials), "trial")
    configurations = format_count(history.num_configurations(), "configuration")
    which = ", ".join(f"{trial.resumes} by {trial.number}" for trial in found[:8])
    more = ", ..." if len(found) > 8 else ""
    were = f"stopped {counted_noun(len(found), 'trial was', 'trials were')} continued"
    return f"{trials} of {configurations}: {len(found)} {were} ({which}{more})"


def describe_source(trial: Trial) -> str:
    """Describe in a word from which trial one continues; empty without one."""
    segment = trial.segment
    if segment is None or segment.continues is None:
        return "" if trial.resumes is None else str(trial.resumes)
    instead = "" if segment.replaced is None else f" instead of {segment.replaced}"
    return f"{segment.continues}{instead}"

"""Find and describe which trials continue others.

These are the parts of a training in a population, stopped trials that are continued, clones, and
configurations that are trained again at a higher fidelity. If trials train in turns, they continue
themselves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import median

from pydantic import JsonValue

from workbench.experiment.fidelity import Levels
from workbench.experiment.goals import sign_of
from workbench.foundation.events import Clone, LowFidelity
from workbench.foundation.formatting import (
    counted_noun,
    format_count,
    format_duration,
    format_value,
)
from workbench.store.history.history import History
from workbench.store.history.trial import Trial


def lineage(trials: Mapping[int, Trial], trial: Trial) -> list[Trial]:
    """Return the trials whose training a trial continues, oldest first, and the trial itself.

    Args:
        trials: All trials of the run, by number.
        trial: The trial. Only in a population can it have predecessors.
    """
    parts = [trial]
    while parts[0].segment is not None and parts[0].segment.continues is not None:
        parts.insert(0, trials[parts[0].segment.continues])
    return parts


def parts_of(history: History, trial: Trial) -> list[tuple[int, Trial]]:
    """Return the trials that lead to a trial, with the epoch or the step at which each part ends.

    Args:
        history: The history of the run.
        trial: The trial.

    Returns:
        The parts, oldest first, with the trial itself as the last. Empty for an entire training,
        and for a clone that no schedule of parts describes: it left its parent within an epoch, or
        its epochs are searched, or it is a program.
    """
    if trial.segment is not None:
        parts = lineage(history.trials, trial)
        return [(part.segment.end, part) for part in parts if part.segment is not None]
    experiment, ended = history.experiment, trial.last_step
    searches_epochs = experiment.trains_model and "epochs" in trial.params
    if not trial.inherits or experiment.command is not None or searches_epochs:
        return []
    if experiment.trains_model:
        ended = int(trial.last_epoch or 0)
    chain: list[tuple[int, Trial]] = [(ended, trial)]
    while (clone := chain[0][1].clone) is not None and clone.inherits:
        left = clone.epoch if experiment.trains_model else clone.step
        before = history.trials[clone.of]
        if left is None or left != int(left) or before.repeat:
            return []
        chain.insert(0, (int(left), before))
    return chain


def describe_segment(history: History, trial: Trial) -> str | None:
    """Describe which part of a training a trial is, or return None for an entire training.

    Args:
        history: The history of the run.
        trial: One of its trials.
    """
    trials, segment = history.trials, trial.segment
    if segment is None:
        return ", ".join(_describe_steps(history, trial)) or None
    unit = "epochs" if history.experiment.trains_model else "steps"
    text = f"member {segment.member}, {unit} {segment.begin} to {segment.end}"
    if segment.continues is None:
        return text
    text += f", continues trial {segment.continues}"
    if segment.replaced is None:
        return text
    before = trials[segment.continues]
    changed = describe_changed(before.params, trial.params)
    member = f" of member {before.segment.member}" if before.segment is not None else ""
    text += f"{member} instead of trial {segment.replaced}"
    return f"{text}: {changed}" if changed else text


def _describe_steps(history: History, trial: Trial) -> Iterator[str]:
    """Yield which trial this one continues or repeats, and by which it is continued."""
    trials = history.trials
    if trial.clone is not None:
        yield _describe_clone(history, trial, trial.clone)
    later = next((item.number for item in trials.values() if item.resumes == trial.number), None)
    if trial.fidelity is not None:
        yield describe_fidelity(trial.fidelity)
    if trial.resumes is not None and (low := trials[trial.resumes].fidelity) is not None:
        yield f"after trial {trial.resumes} with {describe_fidelity(low)}"
    elif trial.resumes is not None:
        step = trials[trial.resumes].last_step
        yield f"continues trial {trial.resumes}, which was stopped at step {step}"
    if later is not None:
        yield f"{'continued' if trial.fidelity is None else 'trained further'} by trial {later}"


def _describe_clone(history: History, trial: Trial, clone: Clone) -> str:
    """Describe a clone, such as `clone of trial 3 from its weights at step 60: lr 0.1 -> 0.01`."""
    text = f"clone of trial {clone.of} from its start"
    if clone.inherits:
        text = f"clone of trial {clone.of} from its weights at {describe_branch(history, clone)}"
    changes = describe_changed(history.trials[clone.of].params, trial.params)
    return f"{text}: {changes}" if changes else text


def describe_branch(history: History, clone: Clone) -> str:
    """Describe where a clone with weights left its parent, such as `step 60`.

    Functions and programs save a step before they report it, so what was saved when the clone was
    made may be of a later step than the last one that was known.

    Args:
        history: The history of the run.
        clone: Where a trial comes from.
    """
    if history.experiment.trains_model:
        return f"step {clone.step}"
    return f"step {clone.step} or later"


def describe_changed(before: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> str:
    """Describe which parameters differ, such as `lr 0.1 -> 0.01, momentum 0.9 -> none`."""
    missing = object()
    changes: list[str] = []
    for name in dict.fromkeys([*before, *now]):
        first, second = before.get(name, missing), now.get(name, missing)
        if first != second:
            values = ["none" if item is missing else format_value(item) for item in (first, second)]
            changes.append(f"{name} {values[0]} -> {values[1]}")
    return ", ".join(changes)


def turn_now(history: History, trial: Trial) -> int | None:
    """Return the turn in which a trial trains, or the last one that it has finished.

    None if trials do not train in turns, or this one has not started.
    """
    num_turns = history.experiment.early_stop.turns
    if num_turns is None or trial.repeat or not trial.attempts:
        return None
    if trial.state == "complete":
        return num_turns
    return trial.turn if trial.between_turns else min(trial.turn + 1, num_turns)


def describe_turn(history: History, trial: Trial) -> str | None:
    """Describe the turn of a trial, such as `turn 2 of 6`, or return None without turns."""
    turn = turn_now(history, trial)
    if turn is None:
        return None
    words = f"turn {turn} of {history.experiment.early_stop.turns}"
    return f"after {words}" if trial.between_turns else words


def describe_turns(history: History) -> list[str]:
    """Describe how far the turns of a run are, and what they cost. Empty without turns."""
    num_turns = history.experiment.early_stop.turns
    begun = [trial for trial in history.trials.values() if turn_now(history, trial) is not None]
    if num_turns is None or not begun:
        return []
    lines: list[str] = []
    left = [trial for trial in begun if not trial.finished]
    if left:
        done = min(trial.turn for trial in left)
        num_done = sum(trial.finished or trial.turn > done for trial in begun)
        lines.append(
            f"turn {min(done + 1, num_turns)} of {num_turns}: {num_done} of"
            f" {format_count(len(begun), 'trial')} have finished it"
        )
    restarts_s = [seconds for trial in begun for seconds in trial.restarts_s]
    if restarts_s:
        lines.append(
            f"a new turn takes {format_duration(median(restarts_s))} longer than its steps, for"
            f" starting again (measured in {format_count(len(restarts_s), 'turn')})"
        )
    return lines


def ahead(history: History) -> list[tuple[str, Trial, dict[str, float]]]:
    """Return the best trials at the last turn that all unfinished ones have finished.

    They are compared at the same turn, whatever they have reached since.

    Returns:
        For each objective a label, the trial and its objectives after that turn. Empty without
        turns, and before the first turn is over.
    """
    trials = [trial for trial in history.trials.values() if turn_now(history, trial) is not None]
    turn = min((trial.turn for trial in trials if not trial.finished), default=0)
    names = [item.metric for item in history.objectives]
    compared = [
        trial
        for trial in trials
        if trial.state != "failed"
        and all(
            math.isfinite(trial.turn_values.get(turn, {}).get(name, math.nan)) for name in names
        )
    ]
    if not compared:
        return []
    best: dict[int, Trial] = {}
    for item in history.objectives:
        sign = sign_of(item.goal)

        def worth(trial: Trial, name: str = item.metric, sign: float = sign) -> tuple[float, int]:
            return sign * trial.turn_values[turn][name], -trial.number

        first = max(compared, key=worth)
        best[first.number] = first
    label = f"ahead after turn {turn} of {history.experiment.early_stop.turns}"
    return [
        (label, trial, {name: trial.turn_values[turn][name] for name in names})
        for trial in best.values()
    ]


def describe_fidelity(low: LowFidelity) -> str:
    """Describe what makes a training cheaper than a full one, such as `image_size 32 of 128`."""
    return f"{low.name} {format_value(low.value)} of {format_value(low.full)}"


def describe_continued(history: History) -> str | None:
    """Describe which stopped trials of a run were continued, or return None if none was."""
    if history.experiment.fidelity is not None:
        return _describe_levels(history)
    continued = [trial for trial in history.trials.values() if trial.resumes is not None]
    if not continued:
        return None
    trials = format_count(len(history.trials), "trial")
    configurations = format_count(history.num_different_configurations(), "configuration")
    which = ", ".join(f"{trial.resumes} by {trial.number}" for trial in continued[:8])
    more = ", ..." if len(continued) > 8 else ""
    were = f"stopped {counted_noun(len(continued), 'trial was', 'trials were')} continued"
    return f"{trials} of {configurations}: {len(continued)} {were} ({which}{more})"


def _describe_levels(history: History) -> str | None:
    """Describe how many trials of a run were trained at each level of its fidelity."""
    levels = Levels.of(history.experiment.fidelity)
    if levels is None or not history.trials:
        return None
    nums = Counter(
        levels.full if trial.fidelity is None else trial.fidelity.value
        for trial in history.trials.values()
    )
    at = ", ".join(f"{nums[value]} at {format_value(value)}" for value in levels.values)
    configurations = format_count(history.num_different_configurations(), "configuration")
    return (
        f"{format_count(len(history.trials), 'trial')} of {configurations}, by {levels.name}: {at}"
    )


def name_of_source(history: History) -> str:
    """Return the heading for the trial that another one continues or repeats."""
    if history.experiment.fidelity is None:
        return "continues"
    return "after"

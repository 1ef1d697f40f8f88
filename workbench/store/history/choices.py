"""The trial of a run that a user chose by hand: what it is taken for, and what it gives up.

A choice is a label of the run, not an event: what reads a run from its store sets
`History.chosen_trial`. Samplers, pruners and limits never see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_number

if TYPE_CHECKING:
    from workbench.store.history.history import History
    from workbench.store.history.trial import Trial


def check_choice(history: History, number: int) -> None:
    """Refuse a trial that cannot be chosen.

    Args:
        history: The run.
        number: The trial.

    Raises:
        ArgumentError: If there is no such trial, it is not complete, or it violates a constraint.
    """
    trial = history.trials.get(number)
    if can_be_chosen(history, trial):
        return
    if trial is None:
        problem = f"there is no trial {number}"
    elif trial.state != "complete":
        problem = f"trial {number} is {trial.state}, not complete"
    else:
        problem = f"trial {number} violates a constraint or has a result that is not finite"
    ranked = [str(each.number) for each in history.ranked()[:8]]
    allowed = f"a complete trial that keeps all constraints, such as {', '.join(ranked)}"
    raise ArgumentError(
        problem, field="trial", allowed=allowed if ranked else "none: no trial qualifies yet"
    )


def can_be_chosen(history: History, trial: Trial | None) -> bool:
    """Return whether a trial is complete and feasible."""
    return trial is not None and trial.state == "complete" and history.is_feasible(trial)


def chosen_by_hand(history: History) -> Trial | None:
    """Return the trial that a user chose, or None."""
    trial = None if history.chosen_trial is None else history.trials.get(history.chosen_trial)
    return trial if can_be_chosen(history, trial) else None


def chosen_or_best(history: History) -> Trial | None:
    """Return what is taken where no trial is named.

    The trial that a user chose, else the best, or None.
    """
    return chosen_by_hand(history) or history.best()


def describe_choice(history: History) -> str | None:
    """Write the objectives of the chosen trial beside the best values; None without a choice.

    Example: `val_accuracy 0.97 (front's best 0.98), size 1.2 (front's best 0.3)`.
    """
    chosen = chosen_by_hand(history)
    if chosen is None:
        return None
    whose = "front's best" if len(history.objectives) > 1 else "best"
    parts: list[str] = []
    for metric, value in history.best_values().items():
        best, own = format_number(value), format_number(chosen.values[metric])
        parts.append(f"{metric} {own} ({f'the {whose}' if own == best else f'{whose} {best}'})")
    return ", ".join(parts)

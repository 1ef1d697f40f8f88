"""How far a run is, by the limit that will end it."""

from __future__ import annotations

from workbench.history import History


def progress_of(history: History, now_unix_s: float) -> tuple[float | None, float | None]:
    """Say how far a run is.

    Args:
        history: The run.
        now_unix_s: The time.

    Returns:
        The part of the budget that is used, from 0 to 1, by the limit that will be met first, and seconds
        left; each None where nobody can tell.
    """
    active_s = history.active_s(now_unix_s)
    finished = sum(trial.finished for trial in history.trials.values())
    parts: list[float] = []
    lefts_s: list[float] = []
    total = history.max_trials()
    if total is not None:
        parts.append(finished / total)
        if finished and active_s > 0:
            lefts_s.append((total - finished) * active_s / finished)
    limit_s = history.in_force.budget.time
    if limit_s is not None:
        parts.append(active_s / limit_s)
        lefts_s.append(limit_s - active_s)
    return min(1.0, max(parts)) if parts else None, max(0.0, min(lefts_s)) if lefts_s else None

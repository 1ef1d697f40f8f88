"""How far a run is, by the limit that will end it, and how long it still takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import format_duration, format_params, format_range
from workbench.runs.time_left import TimeLeft, time_left
from workbench.store.database import RunRow
from workbench.store.history import History, Trial, cost_of
from workbench.store.history.run_clock import SIGN_S

_ROUGH = 1.5
"""From which ratio of its ends on an interval says more than the estimate alone."""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        part: The part of the budget that is used, from 0 to 1, by the limit that will be met first;
            None where it has no such limit.
        left: The time until that limit is met; None where nothing lets it expect yet.
    """

    part: float | None
    left: TimeLeft | None

    def describe_left(self) -> str | None:
        """Return the time that is left in words, with its interval where that is wide."""
        if self.left is None:
            return None
        words = f"{format_duration(round(self.left.seconds))} left"
        if self.left.high_s <= _ROUGH * self.left.low_s or self.left.high_s < 60.0:
            return words
        return (
            f"{words}"
            f" ({format_range(round(self.left.low_s), round(self.left.high_s), format_duration)})"
        )


def driven_until_unix_s(row: RunRow, history: History) -> float:
    """Return now, or the last sign of life of a lost driver, by the clock of the run."""
    note_alive(row, history)
    if row.state == "lost" and row.heartbeat_unix_s is None:
        return row.changed_unix_s
    return history.now_unix_s()


def note_alive(row: RunRow, history: History) -> None:
    """Let the history of a run know until when its driver counts as alive.

    Its time goes no further.
    """
    if row.owner is not None and row.sign_age_s is not None:
        until_unix_s = time.time() - row.sign_age_s + (0.0 if row.was_left else SIGN_S)
        history.note_alive(row.owner.pid, until_unix_s, is_gone=row.state == "lost")


def elapsed_s(row: RunRow, history: History) -> float:
    """Return the run time now, at the end, or at the last sign of life of a driver, in seconds."""
    now_s = driven_until_unix_s(row, history)
    if history.drivers:
        return history.active_s(now_s)
    until_s = history.ended_unix_s or (
        row.changed_unix_s if row.state in FINISHED_RUN_STATES else now_s
    )
    if history.started_unix_s is None:  # advice that ended before it measured anything
        return max(0.0, until_s - row.created_unix_s)
    return history.clock.at(until_s)


def progress_of(history: History, now_unix_s: float) -> Progress:
    """Return how far a run is.

    Args:
        history: The run.
        now_unix_s: The time, in seconds since 1970.
    """
    finished = sum(trial.finished for trial in history.trials.values())
    parts: list[float] = []
    total = history.max_trials()
    left = time_left(history, now_unix_s)
    if total is not None:
        parts.append(finished / total)
    for part, rest_s in _limits_of_time(history, now_unix_s):
        parts.append(part)
        if rest_s is not None:
            unknown = TimeLeft(rest_s, rest_s if total is None else 0.0, rest_s)
            left = unknown if left is None else left.at_most(rest_s)
    return Progress(min(1.0, max(parts)) if parts else None, left)


def describe_trial(history: History, trial: Trial) -> str:
    """Write how far a running trial is and what it has reached, such as `epoch 5/20 loss=0.4`.

    Before the first value of an objective, the first metric that it reported stands there.
    """
    if not trial.reports:
        return "nothing reported yet"
    values = {
        item.metric: trial.last_values[item.metric]
        for item in history.objectives
        if item.metric in trial.last_values
    }
    shown = values or dict(list(trial.last_values.items())[:1])
    amount = (
        f"step {trial.last_step}"
        if trial.last_epoch is None
        else f"epoch {format_epoch(history, trial)}"
    )
    return f"{amount} {format_params(shown)}".rstrip()


def format_epoch(history: History, trial: Trial) -> str:
    """Write the epoch that a trial is in and how many it has, such as `5/20`."""
    epochs = trial.params.get("epochs", history.experiment.training.epochs)
    return f"{trial.last_epoch:g}" + (f"/{epochs}" if history.experiment.trains_model else "")


def _limits_of_time(history: History, now_unix_s: float) -> Iterator[tuple[float, float | None]]:
    """Yield the used part of each limit of time, energy or money, and the seconds left where
    known.
    """
    budget = history.in_force.budget
    if budget.time is not None:
        used_s = history.limited_s(now_unix_s)
        yield used_s / budget.time, max(0.0, budget.time - used_s)
    if budget.energy is not None:
        used_wh, active_s = history.energy_wh or 0.0, history.active_s(now_unix_s)
        rest_wh = max(0.0, budget.energy - used_wh)
        yield used_wh / budget.energy, active_s * rest_wh / used_wh if used_wh else None
    if budget.gpu_time is not None:
        used_s = history.gpu_s(now_unix_s)
        gpus_in_use = history.gpu_s(now_unix_s + 1.0) - used_s
        rest_s = max(0.0, budget.gpu_time - used_s)
        yield used_s / budget.gpu_time, rest_s / gpus_in_use if gpus_in_use else None
    if budget.money is not None and (cost := cost_of(history, now_unix_s)) is not None:
        in_a_second = (cost_of(history, now_unix_s + 1.0) or 0.0) - cost
        rest = max(0.0, budget.money - cost)
        yield cost / budget.money, rest / in_a_second if in_a_second else None

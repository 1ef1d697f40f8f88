"""How far a run is, by the limit that will end it first, and how much longer it takes.

The time left is estimated from events alone, with an interval. Every trial that has started gives a
duration. A finished trial gives its own. A running one is extrapolated from its epochs so far, or
else from the trials before it. The remaining work is then scheduled on as many places as there are.
"""

from __future__ import annotations

import bisect
import heapq
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median_low

from workbench.experiment.trainings import turn_ends
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import format_duration, format_params, format_range
from workbench.store.database import RunRow
from workbench.store.history import History, Trial, cost_of
from workbench.store.history.run_clock import SIGN_S

_ROUGH = 1.5
"""From which ratio of its ends on an interval says more than the estimate alone."""
WIDTH = 2.0
"""Half the width of an interval, in standard deviations."""
_NUM_RECENT = 100
_PRIOR_WEIGHT = 2.0
_SPREAD = 0.15
"""How much trials are assumed to differ, as a share of their mean, before there are enough of
them.
"""
_SPREAD_IF_PRUNED = 0.5
_OVERDUE = 0.1
"""How much longer a trial takes that has outlived all others, as a share of its age."""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        part: The part of the budget that is used, from 0 to 1, by the limit that will be met first,
            or None if it has no such limit.
        left: The time until that limit is met, or None if it cannot be estimated yet.
    """

    part: float | None
    left: TimeLeft | None

    def describe_left(self) -> str | None:
        """Return the time that is left in words, with its interval if that is wide."""
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
        until_unix_s = time.time() - row.sign_age_s
        if not row.was_left:
            # A driver that did not leave may have worked until its next sign was due.
            until_unix_s += SIGN_S
        history.note_alive(row.owner.pid, until_unix_s, is_gone=row.state == "lost")


def elapsed_s(row: RunRow, history: History) -> float:
    """Return the run time now, at the end, or at the last sign of life of a driver, in seconds."""
    now_s = driven_until_unix_s(row, history)
    if history.drivers:
        return history.active_s(now_s)
    until_s = history.ended_unix_s or now_s
    if not history.ended_unix_s and row.state in FINISHED_RUN_STATES:
        until_s = row.changed_unix_s
    if history.started_unix_s is None:  # advice that ended before it measured anything
        return max(0.0, until_s - row.created_unix_s)
    return history.clock.at(until_s)


def progress_of(history: History, now_unix_s: float) -> Progress:
    """Return how far a run is.

    Args:
        history: The run.
        now_unix_s: The time, in seconds since 1970.
    """
    finished = math.fsum(_done(history, trial) for trial in history.trials.values())
    parts: list[float] = []
    total = history.max_trials()
    left = time_left(history, now_unix_s)
    if total is not None:
        parts.append(finished / total)
    for part, rest_s in _limits_of_time(history, now_unix_s):
        parts.append(part)
        if rest_s is None:
            continue
        if left is not None:
            left = left.at_most(rest_s)
        elif total is None:
            left = TimeLeft(rest_s, rest_s, rest_s)
        else:
            # The trials may all end earlier than this limit.
            left = TimeLeft(rest_s, 0.0, rest_s)
    if not parts:
        return Progress(None, left)
    return Progress(min(1.0, max(parts)), left)


def _done(history: History, trial: Trial) -> float:
    """Return which part of a trial is done. Without turns, only finished trials count."""
    num_turns = history.experiment.early_stop.turns
    if trial.finished or num_turns is None:
        return float(trial.finished)
    ends = _turn_ends(history, trial)
    if not ends:
        return trial.turn / num_turns
    return min(1.0, max(trial.turn / num_turns, _amount(trial) / ends[-1]))


def _turn_ends(history: History, trial: Trial) -> list[int]:
    """Return where the turns of a trial end, as `_amount` counts. Empty if that is not known."""
    if history.experiment.early_stop.counted_metric is not None:
        return []
    try:
        return turn_ends(history.experiment, trial.params)
    except ExperimentError:
        return []


def describe_trial(history: History, trial: Trial) -> str:
    """Write how far a running trial is and its values, such as `epoch 5/20 loss=0.4`.

    Before the first value of an objective it shows the first metric that was reported.
    """
    if not trial.reports:
        return "nothing reported yet"
    values = {
        item.metric: trial.last_values[item.metric]
        for item in history.objectives
        if item.metric in trial.last_values
    }
    shown = values or dict(list(trial.last_values.items())[:1])
    amount = f"step {trial.last_step}"
    if trial.last_epoch is not None:
        amount = f"epoch {format_epoch(history, trial)}"
    return f"{amount} {format_params(shown)}".rstrip()


def format_epoch(history: History, trial: Trial) -> str:
    """Write the epoch that a trial is in and how many it has, such as `5/20`."""
    if not history.experiment.trains_model:
        return f"{trial.last_epoch:g}"
    epochs = trial.params.get("epochs", history.experiment.training.epochs)
    return f"{trial.last_epoch:g}/{epochs}"


def _limits_of_time(history: History, now_unix_s: float) -> Iterator[tuple[float, float | None]]:
    """Yield the used part of each limit of time, energy or money, and the seconds left."""
    budget = history.in_force.budget
    if budget.time is not None:
        used_s = history.limited_s(now_unix_s)
        yield used_s / budget.time, max(0.0, budget.time - used_s)
    if budget.energy is not None:
        used_wh = history.energy_wh or 0.0
        active_s = history.active_s(now_unix_s)
        rest_wh = max(0.0, budget.energy - used_wh)
        yield used_wh / budget.energy, _time_for(rest_wh, used_wh, active_s)
    if budget.gpu_time is not None:
        used_s = history.gpu_s(now_unix_s)
        gpus_in_use = history.gpu_s(now_unix_s + 1.0) - used_s
        rest_s = max(0.0, budget.gpu_time - used_s)
        yield used_s / budget.gpu_time, _time_for(rest_s, gpus_in_use)
    if budget.money is not None and (cost := cost_of(history, now_unix_s)) is not None:
        in_a_second = (cost_of(history, now_unix_s + 1.0) or 0.0) - cost
        rest = max(0.0, budget.money - cost)
        yield cost / budget.money, _time_for(rest, in_a_second)


def _time_for(rest: float, used: float, in_s: float = 1.0) -> float | None:
    """Return the seconds until `rest` is used, if `used` took `in_s`, or None if nothing is."""
    if not used:
        return None
    return in_s * rest / used


@dataclass(frozen=True)
class TimeLeft:
    """An estimate of the remaining time, in seconds, and the interval in which it should lie."""

    seconds: float
    low_s: float
    high_s: float

    def at_most(self, limit_s: float) -> TimeLeft:
        """Return the estimate where something else ends the run after `limit_s` seconds."""
        limit_s = max(0.0, limit_s)
        return TimeLeft(
            min(self.seconds, limit_s), min(self.low_s, limit_s), min(self.high_s, limit_s)
        )


@dataclass(frozen=True)
class _Running:
    """A trial that has begun.

    For how long it has trained, and for how long it should still train.
    """

    age_s: float
    left_s: float


def time_left(history: History, now_unix_s: float) -> TimeLeft | None:
    """Estimate the time until all trials that the limits allow have ended.

    Args:
        history: The run.
        now_unix_s: The time, in seconds since 1970.

    Returns:
        The estimate, or None if nothing limits the trials, or no duration can be estimated yet.
    """
    total = history.max_trials()
    if total is None:
        return None
    unfinished = [
        trial for trial in history.trials.values() if not trial.finished or trial.interrupted
    ]
    num_new = max(0, total - len(history.trials))
    if not unfinished and not num_new:
        return TimeLeft(0.0, 0.0, 0.0)
    ended = _recent(history)
    wait_s = _usual_wait_s(history)
    durations = [_trained_s(trial) + wait_s for trial in ended]
    begun = [trial for trial in unfinished if trial.attempts]
    running = [
        under_way
        for trial in begun
        if (under_way := _running(history, trial, ended, now_unix_s)) is not None
    ]
    # Short trials end first: without the running ones the mean would be too small, and rise later.
    known = [*durations, *(trial.age_s + trial.left_s for trial in running)]
    if not known:
        return None
    mean_s = fmean(known)
    lefts = [trial.left_s for trial in running]
    lefts += [max(0.0, mean_s - trial.trained_s) for trial in unfinished if not trial.attempts]
    lefts += [mean_s] * (len(begun) - len(running))
    num_places = _num_places(history, len(unfinished) + num_new, now_unix_s, mean_s)
    left_s = _makespan(lefts, num_new, mean_s, num_places)
    spread_s = _spread(history, known, mean_s)
    # Durations of trials vary independently, so the variances of single trials add up. A trial
    # with a part p left has p^2 of the variance of a whole one. The mean itself is also uncertain:
    # its error is the same for all trials, so it grows with their number, not with its root.
    parts_left = [1.0] * num_new
    if mean_s > 0:
        parts_left += [min(1.0, left / mean_s) for left in lefts]
    variance = math.fsum(part**2 for part in parts_left)
    shared = math.fsum(parts_left)
    error_s = spread_s * math.sqrt(variance + shared**2 / len(known)) / num_places
    return TimeLeft(left_s, max(0.0, left_s - WIDTH * error_s), left_s + WIDTH * error_s)


def _recent(history: History) -> list[Trial]:
    ended = [
        trial
        for trial in history.in_state("complete", "pruned", "failed")
        if trial.ended_unix_s is not None
    ]
    return sorted(ended, key=lambda trial: trial.ended_unix_s or 0.0)[-_NUM_RECENT:]


def _trained_s(trial: Trial) -> float:
    """Return for how long a finished trial trained, over all attempts."""
    if trial.attempts:
        return trial.trained_s
    return max(0.0, (trial.ended_unix_s or 0.0) - trial.proposed_unix_s)


def _usual_wait_s(history: History) -> float:
    """Return the usual time between the proposal of a trial and its start.

    The first ones wait longer.

    The time in which a trial waits for the end of another one does not count: it is part of the
    schedule.
    """
    ends_unix_s = sorted(
        trial.ended_unix_s for trial in history.trials.values() if trial.ended_unix_s is not None
    )
    waits: list[float] = []
    for trial in history.trials.values():
        if (started_unix_s := trial.started_unix_s) is not None:
            # A place was free since the last end before this start, if any trial had ended.
            num_ended = bisect.bisect_right(ends_unix_s, started_unix_s)
            free_unix_s = trial.proposed_unix_s
            if num_ended:
                free_unix_s = max(free_unix_s, ends_unix_s[num_ended - 1])
            waits.append(max(0.0, started_unix_s - free_unix_s))
    return median_low(waits[-_NUM_RECENT:] or [0.0])


def _running(
    history: History, trial: Trial, ended: Sequence[Trial], now_unix_s: float
) -> _Running | None:
    """Return for how long a trial still trains, or None if that cannot be estimated."""
    age_s = trial.trained_s + trial.attempt_s(now_unix_s)
    total = _total(history, trial, ended)
    pace = None
    if total is not None:
        pace = _pace(trial, ended, total)
    if total is None or pace is None:
        longer = [duration_s for other in ended if (duration_s := _trained_s(other)) > age_s]
        if longer:
            return _Running(age_s, fmean(longer) - age_s)
        if ended:  # it has outlived them all
            return _Running(age_s, _OVERDUE * age_s)
        return None
    done = _amount(trial) / total
    later = [
        share for other in ended if (share := _share_at_end(history, other, ended)) > done
    ] or [1.0]
    left_s = pace * total * (fmean(later) - done)
    if trial.state != "waiting":  # between two attempts nothing is trained
        left_s -= max(0.0, now_unix_s - trial.last_event_unix_s)
    return _Running(age_s, max(0.0, left_s))


def _amount(trial: Trial) -> float:
    """Return how far a trial has trained, in epochs, or in steps if it counts no epochs."""
    if trial.last_epoch is None:
        return float(trial.last_step)
    return float(trial.last_epoch)


def _total(history: History, trial: Trial, ended: Sequence[Trial]) -> float | None:
    """Return how far a trial trains unless it is stopped, as `_amount` counts it.

    None if unknown.
    """
    if history.experiment.trains_model:
        epochs = trial.params.get("epochs", history.experiment.training.epochs)
        if isinstance(epochs, int | float) and epochs > 0:
            return float(epochs)
        return None
    amounts = {_amount(other) for other in ended if other.state == "complete"}
    if ends := _turn_ends(history, trial):
        return float(ends[-1])
    # Complete trials of different lengths say nothing about the length of this one.
    if len(amounts) != 1 or max(amounts) <= 1:
        return None
    return amounts.pop()


def _share_at_end(history: History, trial: Trial, ended: Sequence[Trial]) -> float:
    total = _total(history, trial, ended)
    if trial.state == "complete" or total is None:
        return 1.0
    return min(1.0, _amount(trial) / total)


def _pace(trial: Trial, ended: Sequence[Trial], total: float) -> float | None:
    """Return seconds per epoch or step of a running trial.

    Its own as far as it has got, else the usual.
    """
    measured = _measured_pace(trial)
    if measured is None and trial.turn and _amount(trial) > 0:
        measured = trial.trained_s / _amount(trial), _amount(trial)
    if measured is None:
        return None
    own_s, amount = measured
    usual = [pace[0] for other in ended if (pace := _measured_pace(other)) is not None]
    if not usual:
        return own_s
    # The first epochs of a trial say little about its pace, so others count until it is done.
    trust = min(1.0, amount / total)
    return trust * own_s + (1.0 - trust) * fmean(usual)


def _measured_pace(trial: Trial) -> tuple[float, float] | None:
    """Return seconds per epoch or step since the first report, and how many there were since.

    The time before the first report is spent on preparing, not on training.
    """
    if trial.first_report is None:
        return None
    began_unix_s, step, epoch = trial.first_report
    first = float(step)
    if trial.last_epoch is not None:
        first = epoch or 0.0
    amount = _amount(trial) - first
    if amount <= 0:
        return None
    return (trial.last_event_unix_s - began_unix_s) / amount, amount


def _num_places(history: History, num_left: int, now_unix_s: float, mean_s: float) -> int:
    """Return how many trials run at once, as far as that was seen since the last driver started."""
    since_unix_s = now_unix_s - 3.0 * mean_s
    if history.drivers:
        since_unix_s = max(since_unix_s, history.drivers[-1].time_unix_s)
    since_unix_s = max(since_unix_s, 0.0)
    changes: list[tuple[float, int]] = []
    for trial in history.trials.values():
        if not trial.attempts:
            continue
        until_unix_s: float | None = now_unix_s
        if trial.finished and not trial.interrupted:
            until_unix_s = trial.ended_unix_s
        elif trial.between_turns:
            until_unix_s = trial.last_event_unix_s
        if until_unix_s is None or until_unix_s < since_unix_s:
            continue
        changes += [(max(trial.attempt_unix_s, since_unix_s), 1), (until_unix_s, -1)]
    most = at_once = 0
    for _, change in sorted(changes):
        at_once += change
        most = max(most, at_once)
    wanted = history.in_force.resources.concurrency
    if isinstance(wanted, int):
        most = min(most, wanted)
    return max(1, min(most, num_left))


def _makespan(lefts: Sequence[float], num_new: int, mean_s: float, num_places: int) -> float:
    """Return when the last trial ends if each new one starts where a place becomes free first."""
    queue = sorted(lefts)
    places = [0.0] * max(0, num_places - len(queue)) + queue[:num_places]
    heapq.heapify(places)
    for left_s in [*queue[num_places:], *([mean_s] * num_new)]:
        heapq.heapreplace(places, places[0] + left_s)
    return max(places)


def _spread(history: History, known: Sequence[float], mean_s: float) -> float:
    """Return the standard deviation of durations, near an assumption if there are few."""
    assumed_s = mean_s * _SPREAD
    if history.experiment.early_stop.pruner != "none":
        assumed_s = mean_s * _SPREAD_IF_PRUNED
    seen = math.fsum((value - mean_s) ** 2 for value in known)
    return math.sqrt((_PRIOR_WEIGHT * assumed_s**2 + seen) / (_PRIOR_WEIGHT + len(known) - 1))

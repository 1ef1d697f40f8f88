"""Estimate how long the trials of a run still take, with an interval, from its events alone.

Every trial that has begun gives a duration: a finished one its own, a running one what its epochs
so far, or the trials before it, let expect. What is left is scheduled on as many places as there
are in use. Which limit ends the run is left to `progress`.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median_low

from workbench.store.history import History, Trial

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
        The estimate; None where no limit is on trials, or nothing lets a duration expect yet.
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
        found
        for trial in begun
        if (found := _running(history, trial, ended, now_unix_s)) is not None
    ]
    # Short trials end first: without the running ones the mean would be too small, and rise later.
    known = [*durations, *(each.age_s + each.left_s for each in running)]
    if not known:
        return None
    mean_s = fmean(known)
    lefts = [each.left_s for each in running]
    lefts += [max(0.0, mean_s - trial.trained_s) for trial in unfinished if not trial.attempts]
    lefts += [mean_s] * (len(begun) - len(running))
    num_places = _num_places(history, len(unfinished) + num_new, now_unix_s, mean_s)
    left_s = _makespan(lefts, num_new, mean_s, num_places)
    spread_s = _spread(history, known, mean_s)
    whole = num_new + sum(min(1.0, left / mean_s) ** 2 for left in lefts) if mean_s > 0 else 0.0
    doubt = num_new + sum(min(1.0, left / mean_s) for left in lefts) if mean_s > 0 else 0.0
    error_s = spread_s * math.sqrt(whole + doubt**2 / len(known)) / num_places
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
            num_ended = bisect.bisect_right(ends_unix_s, started_unix_s)
            free_unix_s = ends_unix_s[num_ended - 1] if num_ended else trial.proposed_unix_s
            waits.append(max(0.0, started_unix_s - max(trial.proposed_unix_s, free_unix_s)))
    return median_low(waits[-_NUM_RECENT:]) if waits else 0.0


def _running(
    history: History, trial: Trial, ended: Sequence[Trial], now_unix_s: float
) -> _Running | None:
    """Return for how long a trial still trains, or None where nothing lets that expect."""
    is_waiting = trial.state == "waiting"  # between two attempts
    age_s = trial.trained_s + trial.attempt_s(now_unix_s)
    total = _total(history, trial, ended)
    pace = None if total is None else _pace(trial, ended, total)
    if total is None or pace is None:
        longer = [duration_s for each in ended if (duration_s := _trained_s(each)) > age_s]
        if longer:
            return _Running(age_s, fmean(longer) - age_s)
        return _Running(age_s, _OVERDUE * age_s) if ended else None
    done = _amount(trial) / total
    later = [share for each in ended if (share := _share_at_end(history, each, ended)) > done] or [
        1.0
    ]
    since_s = 0.0 if is_waiting else max(0.0, now_unix_s - trial.last_event_unix_s)
    return _Running(age_s, max(0.0, pace * total * (fmean(later) - done) - since_s))


def _amount(trial: Trial) -> float:
    """Return how far a trial has trained, in epochs, or in steps where it counts no epochs."""
    return float(trial.last_step if trial.last_epoch is None else trial.last_epoch)


def _total(history: History, trial: Trial, ended: Sequence[Trial]) -> float | None:
    """Return how far a trial trains unless it is stopped, as `_amount` counts it.

    None if unknown.
    """
    if history.experiment.trains_model:
        epochs = trial.params.get("epochs", history.experiment.training.epochs)
        return float(epochs) if isinstance(epochs, int | float) and epochs > 0 else None
    amounts = {_amount(each) for each in ended if each.state == "complete"}
    return amounts.pop() if len(amounts) == 1 and max(amounts) > 1 else None


def _share_at_end(history: History, trial: Trial, ended: Sequence[Trial]) -> float:
    total = _total(history, trial, ended)
    return 1.0 if trial.state == "complete" or total is None else min(1.0, _amount(trial) / total)


def _pace(trial: Trial, ended: Sequence[Trial], total: float) -> float | None:
    """Return seconds per epoch or step of a running trial.

    Its own as far as it has got, else the usual.
    """
    measured = _measured_pace(trial)
    if measured is None:
        return None
    own_s, amount = measured
    usual = [found[0] for each in ended if (found := _measured_pace(each)) is not None]
    trust = min(1.0, amount / total) if usual else 1.0
    return trust * own_s + (1.0 - trust) * fmean(usual or [0.0])


def _measured_pace(trial: Trial) -> tuple[float, float] | None:
    """Return seconds per epoch or step since the first report, and how many there were since.

    The time before the first report is spent on preparing, not on training.
    """
    if trial.first_report is None:
        return None
    began_unix_s, step, epoch = trial.first_report
    amount = _amount(trial) - float(step if trial.last_epoch is None else epoch or 0.0)
    return ((trial.last_event_unix_s - began_unix_s) / amount, amount) if amount > 0 else None


def _num_places(history: History, num_left: int, now_unix_s: float, mean_s: float) -> int:
    """Return how many trials run at once, as far as that was seen since the last driver began."""
    since_unix_s = max(
        now_unix_s - 3.0 * mean_s, history.drivers[-1].time_unix_s if history.drivers else 0.0
    )
    changes: list[tuple[float, int]] = []
    for trial in history.trials.values():
        if not trial.attempts:
            continue
        until_unix_s = (
            trial.ended_unix_s if trial.finished and not trial.interrupted else now_unix_s
        )
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
    """Return the standard deviation of durations, drawn towards an assumption while there are
    few.
    """
    is_pruned = history.experiment.early_stop.pruner != "none"
    assumed_s = mean_s * (_SPREAD_IF_PRUNED if is_pruned else _SPREAD)
    seen = math.fsum((each - mean_s) ** 2 for each in known)
    return math.sqrt((_PRIOR_WEIGHT * assumed_s**2 + seen) / (_PRIOR_WEIGHT + len(known) - 1))

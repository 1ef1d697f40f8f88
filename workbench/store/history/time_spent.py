"""Verdicts on where the time of a run went, with the next step.

A verdict is about something that takes much time and can be changed. It has a next step only if
that is possible: there are cores for more loaders, trials ran at once, or random proposals could
replace the sampler. Verdicts follow from the measured parts of steps and the times of trials.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from workbench.experiment.actions import suggest
from workbench.experiment.automl import is_automl
from workbench.foundation.errors import Suggestion, WorkbenchError
from workbench.foundation.events.trials import MAX_LOADERS, input_stall, loaders_to_hide
from workbench.foundation.formatting import format_count, format_duration, format_percent
from workbench.store.history.history import History
from workbench.store.history.trial import Trial

_STALL, _STALL_S = 0.2, 5.0
"""Share of all steps, and seconds, up to which waiting for data gives no verdict."""
_STARTING, _STARTING_S = 0.4, 60.0
"""Share of the time of all trials, and seconds, up to which starting up gives no verdict."""
_LAG, _LAG_S = 1.25, 5.0
"""How much longer than others a worker may take, and seconds that they may wait for it."""
_CHOOSING, _CHOOSING_S = 0.1, 10.0
"""Share of the time of all workers, and seconds, up to which proposals give no verdict."""
_AT_ONCE = ("random", "grid", "qmc")
"""The samplers that propose without looking at results."""
_MIN_STARTED = 3
"""Number of trials needed to judge their start-up: the first ones also start the workers."""


@dataclass(frozen=True)
class Verdict:
    """A verdict on the time of a run."""

    text: str
    trial: int | None = None
    """The trial with these numbers, or None for the entire run."""
    next_step: Suggestion | None = None

    def describe(self, write: Callable[[Suggestion], str] = str) -> str:
        """Return the verdict in words.

        Args:
            write: Writes the next step. By default it is written as Python code.
        """
        if self.next_step is None:
            return self.text
        return f"{self.text}. {write(self.next_step)}"


def verdicts_of(history: History, run_id: str | None = None) -> list[Verdict]:
    """Return verdicts on what took much of a run's time, in a fixed order of kinds.

    Args:
        history: The run.
        run_id: Its id, so that commands can be entered as they are printed, or None if unknown.
    """
    trials = list(history.trials.values())
    if is_automl(history.experiment):  # its user sets nothing but the time
        verdict = _starting(history, trials, run_id)
        return [] if verdict is None else [verdict]
    verdicts = (
        _waiting_for_data(history, trials, run_id),
        _waiting_for_a_rank(trials),
        _starting(history, trials, run_id),
        _choosing(history, trials, run_id),
    )
    return [verdict for verdict in verdicts if verdict is not None]


def _waiting_for_data(history: History, trials: list[Trial], run_id: str | None) -> Verdict | None:
    timed = [
        (trial, input_stall(trial.parts_s), trial.duration_s or 0.0)
        for trial in trials
        if trial.parts_s
    ]
    total_s = math.fsum(duration_s for _, _, duration_s in timed)
    waited_s = math.fsum(stall * duration_s for _, stall, duration_s in timed)
    if waited_s < _STALL_S or waited_s < _STALL * total_s:
        return None
    # Advise on the trial that waited longest.
    trial, stall, _ = max(timed, key=lambda timing: timing[1] * timing[2])
    plan = trial.plan.complete()
    num_loaders = plan.loaders if plan is not None else 0
    num_wanted = _loaders(trial, num_loaders)
    at_once = _trials_at_once(trials)
    fewer, num_possible = _with_free_cores(history, trial, num_loaders, at_once)
    num_advised = min(num_wanted, num_possible)
    if num_advised <= num_loaders:
        return None
    settings: dict[str, int] = {"plan.loaders": num_advised}
    also = "" if history.drivers else " if CPU cores are free"
    if fewer < at_once:
        settings["resources.concurrency"] = fewer
        also = f" and resources.concurrency to {fewer}"
    hides = ""
    if num_advised < num_wanted:
        hides = f". There are no cores for the {num_wanted} that would hide the wait"
    with_loaders = f" with {format_count(num_loaders, 'loader')}" if num_loaders else ""
    return Verdict(
        f"trial {trial.number} spends {format_percent(stall)} of each step waiting for"
        f" data{with_loaders}. Set plan.loaders to {num_advised}{also}{hides}",
        trial.number,
        _sweep(run_id, "To use them" if num_advised > 1 else "To use it", settings),
    )


def _sweep(run_id: str | None, lead: str, settings: dict[str, Any]) -> Suggestion:
    """Return the command that starts the experiment of a run again, with other settings."""
    if run_id is None:
        return suggest("sweep", "FILE", lead=lead, settings=settings)
    return suggest("sweep", lead=lead, warm_start=[run_id], settings=settings)


def _with_free_cores(
    history: History, trial: Trial, num_loaders: int, at_once: int
) -> tuple[int, int]:
    """Return how many trials to run at once, and how many loaders each worker then has cores for.

    The loaders that it has already may share cores with the training. If the machines are unknown,
    there is no limit.
    """
    if not history.drivers:
        return at_once, MAX_LOADERS
    num_workers = max(1, len(trial.worker_pids))
    used = num_workers * history.experiment.resources.cpus_per_worker
    num_cpus = history.drivers[-1].num_cpus
    for fewer in range(at_once, 0, -1):
        num_free = int((num_cpus / fewer - used) / num_workers)
        if num_free > num_loaders:
            return fewer, num_free
    return at_once, num_loaders


def _loaders(trial: Trial, num_loaders: int) -> int:
    """Return how many loaders would hide the loading of a trial that has `num_loaders`."""
    if num_loaders == 0:
        return loaders_to_hide(trial.parts_s)
    # With loaders, a step takes as long as they need to load one batch together. For loading to
    # take only as long as computing, their number must grow by the ratio of the two times.
    step_s = math.fsum(trial.parts_s.values())
    computing_s = step_s - trial.parts_s.get("data", 0.0)
    if computing_s <= 0.0:
        return MAX_LOADERS
    return min(MAX_LOADERS, math.ceil(num_loaders * step_s / computing_s))


def _waiting_for_a_rank(trials: list[Trial]) -> Verdict | None:
    late = [
        (
            trial,
            *trial.slowest_rank,
            (1.0 - 1.0 / trial.slowest_rank[1]) * (trial.duration_s or 0.0),
        )
        for trial in trials
        if trial.slowest_rank is not None and trial.slowest_rank[1] >= _LAG
    ]
    if not late:
        return None
    trial, rank, factor, lost_s = max(late, key=lambda delay: delay[3])
    if lost_s < _LAG_S:
        return None
    where = f" (on {trial.hosts[rank]})" if rank < len(trial.hosts) else ""
    # The machine can be excluded only if the trial has workers on other machines and no other here.
    is_alone = rank < len(trial.hosts) and trial.hosts.count(trial.hosts[rank]) == 1 < len(
        trial.hosts
    )
    elsewhere = ", or exclude that machine" if is_alone else ""
    return Verdict(
        f"rank {rank} of trial {trial.number}{where} takes {factor:.2g} times as long as the other"
        " workers to load and compute its samples, and they wait for it in every step. Check what"
        f" else runs there{elsewhere}",
        trial.number,
    )


def wait_for_proposals(trials: Iterable[Trial]) -> tuple[float, float, float] | None:
    """Return how long workers waited for proposals, or None if nothing was trained or recorded.

    Args:
        trials: The trials of a run.

    Returns:
        The median seconds of a proposal, the seconds of all, and their share of the workers' time.
    """
    timed = [trial for trial in trials if trial.choosing_s is not None]
    waits_s = [trial.choosing_s or 0.0 for trial in timed]
    trained_s = math.fsum(trial.duration_s or 0.0 for trial in timed)
    if not trained_s:
        return None
    waited_s = math.fsum(waits_s)
    return median(waits_s), waited_s, waited_s / (waited_s + trained_s)


def _choosing(history: History, trials: list[Trial], run_id: str | None) -> Verdict | None:
    if (wait := wait_for_proposals(trials)) is None or wait[1] < _CHOOSING_S or wait[2] < _CHOOSING:
        return None
    waited = (
        f"workers spent {format_percent(wait[2])} of their time waiting for proposals"
        f" ({format_duration(wait[1])}): other programs keep the machine busy"
    )
    if not _may_draw_at_random(history):
        return Verdict(waited)
    return Verdict(
        f"{waited}, or trials are too short for this sampler",
        next_step=_sweep(run_id, "To propose at once", {"sampler": "random"}),
    )


def _may_draw_at_random(history: History) -> bool:
    """Return whether random proposals could replace the sampler of a run, and would be faster."""
    if history.replay_of is not None or history.experiment.sampler.name in _AT_ONCE:
        return False
    try:
        kind = history.experiment.sampler.kind
    except WorkbenchError:  # the sampler's package is gone
        return False
    return not (kind.is_population or kind.enumerates_grid)


def _starting(history: History, trials: list[Trial], run_id: str | None) -> Verdict | None:
    starts_s = [
        (
            trial.planned_unix_s - trial.proposed_unix_s,
            trial.last_event_unix_s - trial.proposed_unix_s,
        )
        for trial in trials
        if trial.planned_unix_s is not None and trial.attempts == 1
    ]
    if len(starts_s) < _MIN_STARTED:
        return None
    starting_s, whole_s = (math.fsum(times_s) for times_s in zip(*starts_s, strict=True))
    if starting_s < _STARTING_S or starting_s < _STARTING * whole_s:
        return None
    spent = (
        f"spent {format_percent(starting_s / whole_s)} of their time starting up"
        f" ({format_duration(starting_s / len(starts_s))} each): waiting for workers, loading data"
        " and building the model"
    )
    if is_automl(history.experiment):
        more = suggest("extend", run_id or "RUN", time="5m", lead="To try more of them")
        return Verdict(f"candidates {spent}", next_step=more)
    is_concurrent = _trials_at_once(trials) > 1
    fewer = "fewer trials at once (resources.concurrency) or " if is_concurrent else ""
    return Verdict(f"trials {spent}. Try {fewer}longer trials")


def _trials_at_once(trials: list[Trial]) -> int:
    """Return the largest number of trials that ran at the same time, at least 1."""
    # At the same moment, an end (-1) comes before a proposal (1).
    changes = sorted(
        change
        for trial in trials
        for change in ((trial.proposed_unix_s, 1), (trial.last_event_unix_s, -1))
    )
    return max(1, *itertools.accumulate(change for _, change in changes))

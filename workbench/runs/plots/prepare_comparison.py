"""Prepare the best value so far of a run, over one of several axes, for comparisons between runs.

As in `prepare`: plain values, all decisions made here. Other differences between runs are left to
`runs.comparison`, and drawing to `figures_comparison`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.experiment.goals import Goal, sign_of
from workbench.runs.plots.curve_bands import bundle
from workbench.runs.plots.prepare import never_best, values_of_complete
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.series import Floats
from workbench.store.history import History, Trial
from workbench.store.history.run_clock import NAME as RUN_TIME

ComparisonAxis = Literal["time", "epoch", "trial", "cost"]
COMPARISON_AXES: tuple[ComparisonAxis, ...] = ("time", "epoch", "trial", "cost")
AXIS_TITLES: dict[ComparisonAxis, str] = {
    "time": RUN_TIME.lower(),
    "epoch": "epoch of a trial",
    "trial": "trial",
    "cost": "worker time used",
}


@dataclass(frozen=True)
class BestSoFarData:
    """The best value that a run had found up to each place.

    Attributes:
        x: Seconds, epochs, numbers of trials, or seconds of all workers together.
        y: The best value from there on.
    """

    metric: str
    goal: Goal | None
    x: tuple[float, ...]
    y: tuple[float, ...]


def prepare_best_so_far(
    run: RunData,
    *,
    metric: str | None = None,
    axis: ComparisonAxis = "time",
    goal: Goal | None = None,
) -> BestSoFarData:
    """Prepare the best value so far of one metric.

    Args:
        run: The run.
        metric: A metric. The default is the first objective. There are no points if nothing
            reports it, or if nobody has declared which direction of it is better.
        axis: Over time, the epochs of the trials, their numbers, or the time of all workers
            together.
        goal: Which direction of the metric is better, if another run declares it but not this one.
    """
    metric = metric or run.experiment.objectives[0].metric
    goal = run.history.goal_of(metric) or goal
    if goal is None:
        return BestSoFarData(metric, None, (), ())
    if axis == "trial":
        return BestSoFarData(metric, goal, *_by_trial(run, metric, goal))
    best = bundle(
        run.series.curves(metric),
        "epoch" if axis == "epoch" else "time",
        goal,
        max_curves=1,
        never_best=never_best(run.history),
        values=values_of_complete(run.history, metric),
    ).best
    x = best[:, 0]
    if axis == "cost":
        x = worker_time_s(run, x)
    return BestSoFarData(metric, goal, tuple(map(float, x)), tuple(map(float, best[:, 1])))


def goal_in_any(histories: Iterable[History], metric: str | None) -> Goal | None:
    """Return in which direction a metric is better, as the first run with it declares."""
    for history in histories:
        if metric is not None and (goal := history.goal_of(metric)) is not None:
            return goal
    return None


def worker_time_s(run: RunData, times_s: Floats) -> Floats:
    """Return how long all workers of all trials had trained until some moments."""
    clock = run.history.clock
    used = np.zeros(len(times_s))
    for trial in run.history.trials.values():
        if trial.started_unix_s is None or not trial.duration_s:
            continue
        start = clock.at(trial.started_unix_s)
        length = clock.at(trial.last_event_unix_s) - start
        if length > 0:
            share = np.clip((times_s - start) / length, 0.0, 1.0)
            used += share * trial.duration_s * num_workers(trial)
    return used


def num_workers(trial: Trial) -> int:
    """Return on how many workers a trial runs."""
    return trial.plan.workers or len(trial.worker_pids) or 1


def _by_trial(run: RunData, metric: str, goal: Goal) -> tuple[tuple[float, ...], tuple[float, ...]]:
    sign = sign_of(goal)
    excluded = set(never_best(run.history))
    best = -math.inf
    x: list[float] = []
    y: list[float] = []
    complete = [trial for trial in run.history.in_state("complete") if trial.number not in excluded]
    for index, trial in enumerate(complete):
        value = trial.values.get(metric, trial.last_values.get(metric, math.nan))
        is_better = math.isfinite(value) and sign * value > best
        if is_better:
            best = sign * value
        # The last trial too, so that the line shows how many were tried.
        if is_better or (index == len(complete) - 1 and math.isfinite(best)):
            x.append(float(trial.number))
            y.append(sign * best)
    return tuple(x), tuple(y)

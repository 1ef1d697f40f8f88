"""Prepare figures that show trials as wholes: parallel coordinates, slices, Pareto, timeline.

As in `prepare`: frozen plain values, all decisions made here, None for what is not finite or
does not exist.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from workbench.experiment.goals import Goal
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import TrialState
from workbench.runs.plots.parameter_axes import (
    ParameterAxis,
    ParameterLayout,
    Scale,
    searchable,
    searched,
)
from workbench.runs.plots.prepare import Values, readable_range, time_unit, title_of
from workbench.runs.plots.run_data import RunData
from workbench.store.history import Trial
from workbench.store.history.compression import base_values
from workbench.store.history.history import chosen_by_hand

MAX_TRIALS = 1000
_MAX_DOTS = 4000
"""Dots in all panels of the slices together. More hide each other."""
_LEAST_DOTS = 300
"""Trials that are shown in each panel, however many panels there are."""
_Kept = TypeVar("_Kept")


@dataclass(frozen=True)
class ParallelLine:
    """One trial: a position from 0 to 1 on every axis, None if the parameter does not exist."""

    trial: int
    value: float | None
    positions: Values


@dataclass(frozen=True)
class ParallelData:
    """Parallel coordinates. The last axis is the objective.

    Attributes:
        lines: Trials without a result first, then worst to best, so that the best is drawn last.
        colour_range: Objective values at the ends of the colour scale.
        num_left_out: Complete and pruned trials that are not drawn, to keep the figure small.
        chosen: The trials that stand out, or None for all.
        colour_axis: The axis that decides the colour of lines, by its place, or None for the
            objective.
    """

    metric: str
    goal: Goal
    axes: tuple[ParameterAxis, ...]
    lines: tuple[ParallelLine, ...]
    colour_range: tuple[float, float]
    best_trial: int | None
    num_left_out: int = 0
    chosen: frozenset[int] | None = None
    colour_axis: int | None = None


@dataclass(frozen=True)
class SlicePanel:
    """The objective over one parameter.

    Attributes:
        tick_every: Distance between ticks if it must be set: for whole numbers and powers of ten.
        x_range: The ends of the parameter in the space, or of its values beyond them, or None for
            categories.
    """

    name: str
    scale: Scale
    categories: tuple[str, ...]
    trials: tuple[int, ...]
    states: tuple[TrialState, ...]
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    tick_every: int | None = None
    x_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class SliceData:
    """The objective over every parameter, one panel each.

    `num_cut` trials lie outside `y_range`. `num_left_out` are not drawn, to keep the figure small.
    """

    metric: str
    y_title: str
    panels: tuple[SlicePanel, ...]
    best_trial: int | None
    y_range: tuple[float, float] | None
    num_cut: int
    num_left_out: int = 0


@dataclass(frozen=True)
class ParetoData:
    """Trials in the space of objectives.

    Attributes:
        metrics: The objectives.
        titles: One per metric, with the direction that is better.
        front: (trial, values) of the Pareto-optimal trials, by the first objective.
        beaten: (trial, values) of the other feasible trials.
        infeasible: (trial, values) of those that violate a constraint.
        pairs: Indices of the two objectives of each panel.
        base: The values of the model that a compression began with, or None for other runs.
        chosen: (trial, values) of the trial that was chosen by hand, or nothing.
    """

    metrics: tuple[str, ...]
    titles: tuple[str, ...]
    front: tuple[tuple[int, tuple[float, ...]], ...]
    beaten: tuple[tuple[int, tuple[float, ...]], ...]
    infeasible: tuple[tuple[int, tuple[float, ...]], ...]
    pairs: tuple[tuple[int, int], ...]
    base: tuple[float, ...] | None = None
    chosen: tuple[tuple[int, tuple[float, ...]], ...] = ()


@dataclass(frozen=True)
class TimelineBar:
    """One trial from its start to its end, in the unit of the axis."""

    trial: int
    state: TrialState
    reason: str | None
    start: float
    end: float
    attempts: int


@dataclass(frozen=True)
class TimelineData:
    """When each trial ran.

    Attributes:
        unit: The unit of the axis.
        bars: The trials, in order.
        num_left_out: Trials that are not drawn, because bars would be thinner than a line.
    """

    unit: str
    bars: tuple[TimelineBar, ...]
    num_left_out: int = 0


def prepare_parallel(
    run: RunData, *, trials: Collection[int] | None = None, colour: str | None = None
) -> ParallelData:
    """Prepare parallel coordinates over the searched parameters.

    Args:
        run: The run.
        trials: The trials that stand out, or None for all.
        colour: The parameter that decides the colour. None, or one that does not vary, means the
            first objective.
    """
    objective = run.experiment.objectives[0]
    ranked, pruned = run.history.ranked(), run.history.in_state("pruned")
    values = [trial.values[objective.metric] for trial in ranked]
    drawn = evenly(ranked, MAX_TRIALS)
    unfinished = evenly(pruned, MAX_TRIALS - len(drawn))
    names = searched(run.history.searched, [*ranked, *pruned])
    axes = [
        ParameterLayout(name, run.history.searched.root[name], [*ranked, *pruned]) for name in names
    ]
    last = ParameterLayout.of_numbers(objective.metric, values)
    lines = [
        ParallelLine(t.number, None, (*(axis.position(t) for axis in axes), None))
        for t in unfinished
    ]
    for trial in reversed(drawn):
        value = trial.values[objective.metric]
        places = (*(axis.position(trial) for axis in axes), last.place(value))
        lines.append(ParallelLine(trial.number, value, places))
    return ParallelData(
        metric=objective.metric,
        goal=objective.goal,
        axes=(*(axis.axis for axis in axes), last.axis),
        lines=tuple(lines),
        colour_range=_colour_range(values, objective.goal),
        best_trial=next((trial.number for trial in ranked), None),
        num_left_out=len(ranked) + len(pruned) - len(lines),
        chosen=None if trials is None else frozenset(trials),
        colour_axis=names.index(colour) if colour in names else None,
    )


def prepare_slice(run: RunData) -> SliceData:
    """Prepare the first objective over every searched parameter.

    Pruned trials at their last report.
    """
    objective, best = run.experiment.objectives[0], run.history.best()
    known = []
    for trial in run.history.in_state("complete", "pruned"):
        values = trial.values
        if objective.metric not in values:
            values = trial.last_values
        value = values.get(objective.metric, math.nan)
        if math.isfinite(value):
            known.append((trial, value))
    trials = [trial for trial, _ in known]
    space = run.history.searched
    # A filter may leave one trial, of which nothing varies.
    names = searched(space, trials) or searchable(space, trials)
    most = max(_LEAST_DOTS, _MAX_DOTS // max(1, len(names)))
    if len(known) > most:  # whatever is left out, the best is shown
        of_best = [item for item in known if item[0] is best]
        others = [item for item in known if item[0] is not best]
        shown = sorted(
            [*of_best, *evenly(others, most - len(of_best))], key=lambda item: item[0].number
        )
    else:
        shown = known
    trials = [trial for trial, _ in shown]
    panels = []
    for name in names:
        layout = ParameterLayout(name, space.root[name], trials)
        inside = [(trial, value) for trial, value in shown if name in trial.params]
        panels.append(
            SlicePanel(
                name=name,
                scale=layout.axis.scale,
                categories=layout.categories,
                trials=tuple(trial.number for trial, _ in inside),
                states=tuple(trial.state for trial, _ in inside),
                x=tuple(layout.coordinate(trial.params[name]) for trial, _ in inside),
                y=tuple(value for _, value in inside),
                tick_every=layout.tick_every,
                x_range=None if layout.categories else (layout.low, layout.high),
            )
        )
    y_range, num_cut = readable_range(np.array([value for _, value in shown]), objective.goal, None)
    return SliceData(
        metric=objective.metric,
        y_title=title_of(run.experiment, objective),
        panels=tuple(panels),
        best_trial=best and best.number,
        y_range=y_range,
        num_cut=num_cut,
        num_left_out=len(known) - len(shown),
    )


def prepare_pareto(run: RunData) -> ParetoData:
    """Prepare the Pareto front. With more than two objectives, every pair of them.

    Raises:
        ExperimentError: If there is only one objective.
    """
    objectives = run.experiment.objectives
    if len(objectives) < 2:
        raise ExperimentError(
            "a single objective has a best trial, not a front",
            field="objectives",
            next_step="Draw convergence or slice instead.",
        )
    metrics = [objective.metric for objective in objectives]

    def points(trials: Sequence[Trial]) -> tuple[tuple[int, tuple[float, ...]], ...]:
        points = [
            (trial.number, tuple(trial.values[metric] for metric in metrics)) for trial in trials
        ]
        return tuple(sorted(points, key=lambda item: item[1]))

    front = run.history.front()
    ranked = run.history.ranked()
    on_front = {trial.number for trial in front}
    feasible = {trial.number for trial in ranked}
    broken = [
        trial
        for trial in run.history.in_state("complete")
        if trial.number not in feasible
        and all(math.isfinite(trial.values.get(metric, math.nan)) for metric in metrics)
    ]
    chosen = chosen_by_hand(run.history)
    return ParetoData(
        metrics=tuple(metrics),
        titles=tuple(title_of(run.experiment, objective) for objective in objectives),
        front=points(front),
        beaten=points(
            evenly([trial for trial in ranked if trial.number not in on_front], 2 * MAX_TRIALS)
        ),
        infeasible=points(evenly(broken, MAX_TRIALS)),
        pairs=tuple(itertools.combinations(range(len(objectives)), 2)),
        base=base_values(run.experiment),
        chosen=points([chosen] if chosen else []),
    )


def prepare_timeline(run: RunData) -> TimelineData:
    """Prepare when each trial ran. A trial that still runs ends at the last event."""
    clock = run.history.clock
    started = [trial for trial in run.history.trials.values() if trial.started_unix_s is not None]
    spans = [
        (
            trial,
            clock.at(trial.started_unix_s or 0.0),
            clock.at(trial.ended_unix_s or run.last_unix_s),
        )
        for trial in started
    ]
    unit, length_s = time_unit(max((end for _, _, end in spans), default=0.0))
    drawn = evenly(spans, MAX_TRIALS)
    bars = (
        TimelineBar(
            trial=trial.number,
            state=trial.state,
            reason=run.history.reason_of(trial),
            start=start / length_s,
            end=end / length_s,
            attempts=trial.attempts,
        )
        for trial, start, end in drawn
    )
    return TimelineData(unit, tuple(bars), len(spans) - len(drawn))


def evenly(trials: Sequence[_Kept], most: int) -> list[_Kept]:
    """Return at most `most` of the trials: the first always, the others spread evenly."""
    if len(trials) <= most:
        return list(trials)
    return [trials[index] for index in np.linspace(0, len(trials) - 1, max(most, 0)).astype(int)]


def _colour_range(values: Sequence[float], goal: Goal) -> tuple[float, float]:
    """Reserve the colours for good values.

    Everything far worse than the median shares the last colour.
    """
    if not values:
        return 0.0, 1.0
    low, middle, high = (float(edge) for edge in np.quantile(values, (0.0, 0.5, 1.0)))
    # The bad end is no farther from the middle than twice the good end, or outliers would leave
    # one colour for all others.
    if goal == "maximize" and high > middle:
        return max(low, middle - 2 * (high - middle)), high
    if goal != "maximize" and middle > low:
        return low, min(high, middle + 2 * (middle - low))
    return low, high

"""Prepare the figures of how a search went.

Importance, best by trial, distribution of values, pairs of parameters, and the values that the
parameters of a population have over epochs. `prepare_analysis` puts all of a run's trials into
columns, from which a browser draws most of these figures itself. As in `prepare`: frozen plain
values, all decisions made here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.experiment import Objective
from workbench.experiment.goals import Goal, better_of, sign_of
from workbench.experiment.space import Fixed
from workbench.runs.plots.parameter_axes import ParameterAxis, ParameterLayout, searched
from workbench.runs.plots.prepare import Values, readable_range, title_of
from workbench.runs.plots.prepare_trials import evenly
from workbench.runs.plots.run_data import RunData
from workbench.store.history import History, Trial
from workbench.store.history.compression import base_values
from workbench.store.history.history import NO_RESULT, chosen_by_hand
from workbench.store.history.lineage import lineage

MAX_PAIRED = 4
_MAX_TRIALS = 1000
_GRID = 30
_SHARPNESS = 3
_RESOLVED = 0.01
"""An interval of a share on both sides of this leaves open whether the parameter has an effect."""


@dataclass(frozen=True)
class TrialValues:
    """The first objective of the complete trials, by number."""

    y_title: str
    trials: tuple[int, ...]
    values: tuple[float, ...]
    best: tuple[float, ...]
    best_trial: int | None


@dataclass(frozen=True)
class Distribution:
    """The share of complete trials with at most each value. Values ascend."""

    x_title: str
    trials: tuple[int, ...]
    values: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class PairPanel:
    """Two parameters, each on an axis from 0 to 1.

    Attributes:
        rows: Positions in the lists of the figure of the trials that have both parameters.
        grid: The objective between the trials, row by row from the lowest y. Empty if there are
            too few trials.
    """

    x_axis: ParameterAxis
    y_axis: ParameterAxis
    rows: tuple[int, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    grid: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class PairsData:
    """Pairs of parameters with the first objective.

    Attributes:
        ranks: From 0, the best, to 1, the worst.
    """

    metric: str
    goal: Goal
    trials: tuple[int, ...]
    values: tuple[float, ...]
    ranks: tuple[float, ...]
    panels: tuple[PairPanel, ...]
    best_trial: int | None


@dataclass(frozen=True)
class ImportanceData:
    """How much each parameter decided, largest first.

    Attributes:
        shares: The parts of the parameters that may have an effect.
        low: Lower ends of their 90 % intervals.
        high: Upper ends.
        by_chance: Parameters without an effect, by name.
        unclear: Others, for which the trials do not show whether they have an effect.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    by_chance: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()

    def notes(self, written: Callable[[str], str] = str) -> list[str]:
        """Return which parameters the shares do not settle, each name as `written` writes it."""
        groups = (
            ("No effect, below 1 % of the variance", self.by_chance),
            ("Not resolved", self.unclear),
        )
        return [f"{lead}: {', '.join(map(written, names))}" for lead, names in groups if names]


def prepare_importance(importance: Mapping[str, tuple[float, float, float]]) -> ImportanceData:
    """Prepare how much each parameter matters.

    Args:
        importance: Share of each parameter, from 0 to 1, with the ends of its interval, or 0 for
            one without an effect. Values that are not finite are omitted.
    """
    finite = {name: item for name, item in importance.items() if all(map(math.isfinite, item))}
    kept = sorted(
        (name for name in finite if finite[name][0] > 0), key=lambda name: (-finite[name][0], name)
    )
    shares = low = high = ()
    if kept:
        shares, low, high = zip(*(finite[name] for name in kept), strict=True)
    by_chance = tuple(sorted(finite.keys() - set(kept)))
    unclear = tuple(name for name in kept if finite[name][1] < _RESOLVED < finite[name][2])
    return ImportanceData(
        names=tuple(kept), shares=shares, low=low, high=high, by_chance=by_chance, unclear=unclear
    )


def prepare_best_by_trial(run: RunData) -> TrialValues:
    """Prepare each complete trial's value, and the best up to it."""
    objective = run.experiment.objectives[0]
    trials = _complete(run)
    values = [trial.values[objective.metric] for trial in trials]
    best_so_far = itertools.accumulate(values, better_of(objective.goal))
    best = run.history.best()
    return TrialValues(
        title_of(run.experiment, objective),
        tuple(trial.number for trial in trials),
        tuple(values),
        tuple(best_so_far),
        best and best.number,
    )


def prepare_distribution(run: RunData) -> Distribution:
    """Prepare the empirical distribution of the first objective over the complete trials."""
    objective = run.experiment.objectives[0]
    trials = sorted(_complete(run), key=lambda trial: trial.values[objective.metric])
    return Distribution(
        x_title=title_of(run.experiment, objective),
        trials=tuple(trial.number for trial in trials),
        values=tuple(trial.values[objective.metric] for trial in trials),
        shares=tuple((index + 1) / len(trials) for index in range(len(trials))),
    )


def prepare_pairs(run: RunData, *, with_grid: bool) -> PairsData:
    """Prepare every pair of the first few parameters that vary.

    Args:
        run: The run.
        with_grid: Whether to estimate the objective between the trials.
    """
    objective = run.experiment.objectives[0]
    trials = _complete(run)[-_MAX_TRIALS:]
    values = [trial.values[objective.metric] for trial in trials]
    sign = -sign_of(objective.goal)
    order = np.argsort(np.argsort([sign * value for value in values]))
    names = searched(run.history.searched, trials)[:MAX_PAIRED]
    layouts = [ParameterLayout(name, run.history.searched.root[name], trials) for name in names]
    best = run.history.best()
    return PairsData(
        metric=objective.metric,
        goal=objective.goal,
        trials=tuple(trial.number for trial in trials),
        values=tuple(values),
        ranks=tuple(float(place) / max(len(values) - 1, 1) for place in order),
        panels=tuple(
            _panel(first, second, trials, values, with_grid)
            for first, second in itertools.combinations(layouts, 2)
        ),
        best_trial=best and best.number,
    )


def _panel(
    first: ParameterLayout,
    second: ParameterLayout,
    trials: Sequence[Trial],
    values: Sequence[float],
    with_grid: bool,
) -> PairPanel:
    places = [
        (row, first.position(trial), second.position(trial)) for row, trial in enumerate(trials)
    ]
    known = [(row, x, y) for row, x, y in places if x is not None and y is not None]
    rows = x = y = ()
    if known:
        rows, x, y = zip(*known, strict=True)
    grid = ()
    if with_grid:
        grid = _grid(np.array(x), np.array(y), np.array([values[row] for row in rows]))
    return PairPanel(x_axis=first.axis, y_axis=second.axis, rows=rows, x=x, y=y, grid=grid)


def _grid(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return weighted means of the values on a grid. Near trials have the largest weights."""
    if len(values) < 4:
        return ()
    across, up = np.meshgrid(np.linspace(0, 1, _GRID), np.linspace(0, 1, _GRID))
    squares = (across[..., None] - x) ** 2 + (up[..., None] - y) ** 2
    weights = 1.0 / (squares + 1e-3) ** (_SHARPNESS / 2)
    means = (weights * values).sum(axis=-1) / weights.sum(axis=-1)
    return tuple(tuple(map(float, row)) for row in means)


def _complete(run: RunData) -> list[Trial]:
    return sorted(run.history.ranked(), key=lambda trial: trial.number)


@dataclass(frozen=True)
class Piece:
    """One part of a training in one panel.

    Attributes:
        trial: Its trial.
        start: The epoch, or step, at which it starts.
        end: The one at which it ends.
        value: The value of the parameter.
        before: The value in the part that it continues, or None for the first.
    """

    trial: int
    begin: int
    end: int
    value: float | str
    before: float | str | None


@dataclass(frozen=True)
class SchedulePanel:
    """One parameter.

    Attributes:
        name: Its name.
        is_log: Whether its range is logarithmic.
        others: The parts of all trainings.
        best: The parts that lead to the best trial, in their order.
    """

    name: str
    is_log: bool
    others: tuple[Piece, ...]
    best: tuple[Piece, ...]


@dataclass(frozen=True)
class ScheduleData:
    """The panels, the unit of their common axis, and the best trial."""

    panels: tuple[SchedulePanel, ...]
    unit: str
    best_trial: int | None


def prepare_schedule(run: RunData) -> ScheduleData:
    """Collect the values of the parameters that differ between trials of a population.

    Args:
        run: The run. Without a population nothing is collected.
    """
    history = run.history
    parts = [trial for trial in history.trials.values() if trial.segment is not None]
    best = history.best()
    leading = []
    if best is not None and best.segment is not None:
        leading = lineage(history.trials, best)

    def piece(trial: Trial, name: str) -> Piece | None:
        segment = trial.segment
        if segment is None or name not in trial.params:
            return None
        before = None
        if segment.continues is not None:
            before = history.trials[segment.continues].params.get(name)
        return Piece(
            trial.number,
            segment.begin,
            segment.end,
            _shown(trial.params[name]),
            None if before is None else _shown(before),
        )

    def pieces(trials: list[Trial], name: str) -> tuple[Piece, ...]:
        return tuple(part for trial in trials if (part := piece(trial, name)) is not None)

    panels = tuple(
        SchedulePanel(
            name, bool(getattr(domain, "log", False)), pieces(parts, name), pieces(leading, name)
        )
        for name, domain in history.searched.root.items()
        if not isinstance(domain, Fixed)
        and len({str(trial.params.get(name)) for trial in parts}) > 1
    )
    unit = "Step"
    if run.experiment.trains_model:
        unit = "Epoch"
    number = None
    if leading and best is not None:
        number = best.number
    return ScheduleData(panels, unit, number)


def _shown(value: object) -> float | str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return str(value)


Standing = Literal["complete", "no_result", "pruned"]
"""Whether a trial has a result. `no_result`: it breaks a limit, or missed its target."""


@dataclass(frozen=True)
class AnalysedObjective:
    """One objective of all trials.

    Attributes:
        title: With the direction that is better.
        values: One per trial, or None if it is not finite.
        limits: Limits on the metric, each with its direction: `at most` or `at least`.
        base: The value of the model that a compression began with, or None for other runs.
        y_range: The range of an axis, if outliers would compress all other values.
    """

    metric: str
    title: str
    goal: Goal
    values: Values
    limits: tuple[tuple[Literal["at most", "at least"], float], ...] = ()
    base: float | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class PairGrid:
    """The first objective between the trials, over two parameters.

    Attributes:
        x: Place of the horizontal parameter among the axes.
        y: Place of the vertical one.
        rows: Weighted means, row by row from the lowest y, on a square from 0 to 1.
    """

    x: int
    y: int
    rows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class AnalysisData:
    """The trials of a run as columns. All columns have one entry per trial.

    Attributes:
        trials: Numbers, ascending.
        standings: What each trial has reached. Pruned trials have the values of their last report.
        ranks: From 0, the best, to 1, the worst, or None without a result.
        shares: Share of all trials with a result whose value is at most the trial's, or None.
        best: The best value up to the trial, or None for trials without a result.
        axes: The parameters that vary.
        places: Positions on each axis, from 0 to 1, or None if the parameter does not exist.
        objectives: The objectives.
        grids: Pairs of the first few parameters.
        best_trial: The best trial, or None without one, or with several objectives.
        front: The trials of the Pareto front, by the first objective. Empty with one objective.
        chosen: The trial that was chosen by hand.
        num_left_out: Trials that have no entry, to keep the columns short.
    """

    trials: tuple[int, ...]
    standings: tuple[Standing, ...]
    ranks: Values
    shares: Values
    best: Values
    axes: tuple[ParameterAxis, ...]
    places: tuple[Values, ...]
    objectives: tuple[AnalysedObjective, ...]
    grids: tuple[PairGrid, ...]
    best_trial: int | None
    front: tuple[int, ...]
    chosen: int | None
    num_left_out: int


def prepare_analysis(run: RunData, *, max_trials: int = _MAX_TRIALS) -> AnalysisData:
    """Prepare the columns that a browser draws the figures of a search from.

    Args:
        run: The run.
        max_trials: Maximum number of trials with a result, and of others. The best trial, the
            front and the trial that was chosen by hand are always included.
    """
    history = run.history
    ranked = history.ranked()
    front = history.front(ranked) if len(history.objectives) > 1 else []
    chosen = chosen_by_hand(history)
    always = [*front, *([chosen] if chosen else [])]
    others = [
        trial
        for trial in history.in_state("complete", "pruned")
        if trial.state == "pruned" or not history.is_feasible(trial)
    ]
    kept = {
        trial.number: trial
        for trial in (
            *always[:max_trials],
            *evenly(ranked, max_trials),
            *evenly(others, max_trials),
        )
    }
    trials = [kept[number] for number in sorted(kept)]
    with_result = _courses(history, ranked)
    names = searched(history.searched, trials)
    layouts = [ParameterLayout(name, history.searched.root[name], trials) for name in names]
    best = history.best() if len(history.objectives) == 1 else None
    return AnalysisData(
        trials=tuple(trial.number for trial in trials),
        standings=tuple(_standing(history, trial) for trial in trials),
        ranks=tuple(with_result.get(trial.number, _NOWHERE).rank for trial in trials),
        shares=tuple(with_result.get(trial.number, _NOWHERE).share for trial in trials),
        best=tuple(with_result.get(trial.number, _NOWHERE).best for trial in trials),
        axes=tuple(layout.axis for layout in layouts),
        places=tuple(tuple(layout.position(trial) for trial in trials) for layout in layouts),
        objectives=_objectives(run, trials),
        grids=tuple(_grids(run, layouts[:MAX_PAIRED], [kept[t.number] for t in trials])),
        best_trial=best and best.number,
        front=tuple(
            trial.number
            for trial in sorted(front, key=lambda t: t.values[history.objectives[0].metric])
        ),
        chosen=chosen and chosen.number,
        num_left_out=len(ranked) + len(others) - len(trials),
    )


@dataclass(frozen=True)
class _Course:
    rank: float | None = None
    share: float | None = None
    best: float | None = None


_NOWHERE = _Course()


def _courses(history: History, ranked: Sequence[Trial]) -> dict[int, _Course]:
    """Return rank, share and best so far of each trial with a result, by number."""
    objective = history.objectives[0]
    values = np.array([trial.values[objective.metric] for trial in ranked])
    ranks = np.argsort(np.argsort(-sign_of(objective.goal) * values, kind="stable"), kind="stable")
    shares = np.searchsorted(np.sort(values), values, side="right") / max(len(values), 1)
    rows = sorted(
        zip(ranked, ranks / max(len(values) - 1, 1), shares, values, strict=True),
        key=lambda row: row[0].number,
    )
    best = itertools.accumulate((float(row[3]) for row in rows), better_of(objective.goal))
    return {
        trial.number: _Course(float(rank), float(share), best_value)
        for (trial, rank, share, _), best_value in zip(rows, best, strict=True)
    }


def _standing(history: History, trial: Trial) -> Standing:
    if trial.state == "pruned":
        return "pruned"
    return "no_result" if history.reason_of(trial) in NO_RESULT else "complete"


def _objectives(run: RunData, trials: Sequence[Trial]) -> tuple[AnalysedObjective, ...]:
    experiment = run.experiment
    bases = base_values(experiment) or (None,) * len(experiment.objectives)

    def value(trial: Trial, metric: str) -> float | None:
        values = trial.values if metric in trial.values else trial.last_values
        number = values.get(metric, math.nan)
        return number if math.isfinite(number) else None

    def limits(metric: str) -> Iterator[tuple[Literal["at most", "at least"], float]]:
        for item in experiment.constraints:
            if item.metric == metric and item.at_most is not None:
                yield "at most", item.at_most
            elif item.metric == metric and item.at_least is not None:
                yield "at least", item.at_least

    def analysed(objective: Objective, base: float | None) -> AnalysedObjective:
        values = tuple(value(trial, objective.metric) for trial in trials)
        known = np.array([number for number in values if number is not None])
        y_range, _ = readable_range(known, objective.goal, None)
        return AnalysedObjective(
            metric=objective.metric,
            title=title_of(experiment, objective),
            goal=objective.goal,
            values=values,
            limits=tuple(limits(objective.metric)),
            base=base,
            y_range=y_range,
        )

    return tuple(
        analysed(objective, base)
        for objective, base in zip(experiment.objectives, bases, strict=True)
    )


def _grids(
    run: RunData, layouts: Sequence[ParameterLayout], trials: Sequence[Trial]
) -> Iterator[PairGrid]:
    metric = run.experiment.objectives[0].metric
    complete = [
        trial
        for trial in trials
        if trial.state == "complete" and _standing(run.history, trial) == "complete"
    ]
    values = [trial.values[metric] for trial in complete]
    for (x, first), (y, second) in itertools.combinations(enumerate(layouts), 2):
        yield PairGrid(x, y, _panel(first, second, complete, values, True).grid)

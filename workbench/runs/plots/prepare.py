"""Prepare exactly what a figure shows, as plain values that can be compared.

One frozen type per figure, and one function that fills it from a run. Every decision (which
trials, which order, which scale, what is cut off) is made here. Drawing is left to `figures`.
A value that is not finite is None.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from workbench.experiment import Experiment, Objective
from workbench.experiment.automl import is_automl, shown_metric
from workbench.experiment.federated import BYTES_TO_TARGET_METRIC, ROUNDS_METRIC
from workbench.experiment.goals import Goal, better_side
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import TrialState
from workbench.foundation.formatting import format_duration, format_number, format_value
from workbench.runs.plots.curve_bands import bundle
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.series import AXES, THROUGHPUT, Axis, Curve, Floats
from workbench.store.history import History, Trial
from workbench.store.history.run_clock import NAME as RUN_TIME

Values = tuple[float | None, ...]
_LEAST_FOR_CLOSE_UP = 4
"""Points of a curve that has an end worth a closer look."""
_CLOSE_UP_PART = 0.5
"""A closer look must at least double the height of what it shows."""
_HEADS = {
    "fit_s": "training time",
    "predict_s": "time to predict 1,000 rows",
    "row_s": "time to predict one row",
}
PART_OF_FIGURE = {
    "confusion": "confusion",
    "prediction_errors": "errors",
    "column_importance": "importance",
    "partial_dependence": "partial_dependence",
}
"""The figures of a model, and the part of the analysis that each draws."""


@dataclass(frozen=True)
class Line:
    """One trial's curve as drawn.

    That of a trial that continues another starts where it left the other's, at `joint`.
    """

    trial: int
    state: TrialState
    x: Values
    y: Values
    joint: tuple[float, float] | None = None


@dataclass(frozen=True)
class BandData:
    """The range of the middle 80 % of all trials."""

    x: Values
    low: Values
    middle: Values
    high: Values
    num_trials: int


@dataclass(frozen=True)
class CurvesData:
    """Curves over steps, epochs or time: what convergence and throughput show.

    Attributes:
        x_title: Title of the horizontal axis, with its unit.
        y_title: Title of the vertical axis, with its unit or direction.
        lines: Trials one by one, worst first, so that the best is drawn last.
        best_trial: The trial to highlight, if it is among the lines.
        best_x: Where the best value so far changes.
        best_y: The best value so far from there on.
        goal: Which way is better, or None if nobody has declared it.
        target: The target value of the objective.
        band: All trials, if there are too many for lines.
        y_range: The range of the axis, if outliers would compress all other values.
        num_cut: Points outside `y_range`.
        num_trials: Trials with such a curve, drawn or not.
        axis: What they are drawn over.
        x_unit: Length of one unit of the horizontal axis, in steps, epochs or seconds.
        best_name: What the legend calls the trial to highlight. With several objectives that of its
            metric.
        path: The trials that lead to the best one, oldest first, if it continues others.
    """

    metric: str
    x_title: str
    y_title: str
    lines: tuple[Line, ...]
    goal: Goal | None
    best_trial: int | None
    best_x: Values = ()
    best_y: Values = ()
    target: float | None = None
    band: BandData | None = None
    y_range: tuple[float, float] | None = None
    num_cut: int = 0
    num_trials: int = 0
    axis: Axis = "step"
    x_unit: float = 1.0
    best_name: str = "best"
    path: tuple[int, ...] = ()


def prepare_convergence(
    run: RunData,
    *,
    axis: Axis | None = None,
    metric: str | None = None,
    max_curves: int = 60,
    chosen: Sequence[int] = (),
    close_up: bool = False,
    trials: Collection[int] | None = None,
) -> CurvesData:
    """Prepare one metric of all trials, and the best value that any had reported so far.

    Args:
        run: The run.
        axis: "step", "epoch" or "time". The default is epochs where they are known, else steps.
        metric: A reported metric. The default is `default_metric`.
        max_curves: How many trials are drawn one by one.
        chosen: Trials that are always drawn.
        close_up: Whether the vertical axis shows where curves end, if their start would compress
            that.
        trials: The trials to show, or None for all.

    Raises:
        ExperimentError: If the axis or the metric is unknown.
    """
    objective = run.experiment.objectives[0]
    known = list(dict.fromkeys([objective.metric, *run.series.metrics]))
    metric = metric or default_metric(run.experiment)
    if metric not in known:
        raise ExperimentError(f"no trial reported {metric!r}", field="metric", allowed=known)
    goals: dict[str, Goal] = {item.metric: item.goal for item in run.experiment.objectives}
    targets = {item.metric: item.target for item in run.experiment.objectives}
    federated = run.experiment.federated
    if federated is not None and federated.target is not None:
        # Its rounds are the objective, and this is where they end.
        end = federated.target
        targets.setdefault(end.metric, end.at_most if end.at_least is None else end.at_least)
    titles = {item.metric: title_of(run.experiment, item) for item in run.experiment.objectives}
    curves = _among(run.series.curves(metric), trials)
    data = _curves_data(
        run,
        curves,
        axis or default_axis(curves),
        run.history.goal_of(metric),
        best_trial=_best_number(run, metric),
        max_curves=max_curves,
        chosen=chosen,
        y_title=titles.get(metric) or shown_metric(run.experiment, metric),
        target=targets.get(metric),
    )
    if close_up and (closer := _where_curves_end(data)) is not None:
        shown, num_cut = closer
        data = dataclasses.replace(data, y_range=shown, num_cut=num_cut)
    if len(goals) > 1:
        data = dataclasses.replace(data, best_name=f"best {metric}")
    if run.experiment.repeats > 1:
        # The best is that with the best mean. A single repeat, such as an easy fold, may well be
        # better.
        name = "a repeat of the best"
        if is_automl(run.experiment):
            name = "a fold of the best candidate"
        data = dataclasses.replace(data, best_name=name, best_x=(), best_y=())
    if metric not in goals:
        return dataclasses.replace(_without_best(data), target=targets.get(metric))
    return data


def default_metric(experiment: Experiment) -> str:
    """Return the metric whose curves say most about a run.

    It is the first objective. Rounds or bytes until a target are known only in the end, so until
    then it is the metric of the target.
    """
    metric, federated = experiment.objectives[0].metric, experiment.federated
    if federated is None or federated.target is None:
        return metric
    if metric in (ROUNDS_METRIC, BYTES_TO_TARGET_METRIC):
        return federated.target.metric
    return metric


def title_of(experiment: Experiment, objective: Objective) -> str:
    """Name an objective and the direction that is better."""
    direction = better_side(objective.goal)
    return f"{shown_metric(experiment, objective.metric)} ({direction} is better)"


def _best_number(run: RunData, metric: str) -> int | None:
    """Return the best trial.

    With several objectives no trial is the best, but one is the best of each.
    """
    history = run.history
    if len(history.objectives) == 1:
        best = history.best()
    else:
        best = history.extremes().get(metric)
    return best and best.number


def _among(curves: list[Curve], trials: Collection[int] | None) -> list[Curve]:
    if trials is None:
        return curves
    return [curve for curve in curves if curve.trial in trials]


def prepare_throughput(
    run: RunData,
    *,
    axis: Axis = "time",
    max_curves: int = 60,
    chosen: Sequence[int] = (),
    trials: Collection[int] | None = None,
) -> CurvesData:
    """Prepare the samples per second of all trials, or of some if there are very many.

    Args:
        run: The run.
        axis: "step", "epoch" or "time".
        max_curves: How many trials are drawn one by one.
        chosen: Trials that are always drawn.
        trials: The trials to show, or None for all.
    """
    best = _best_number(run, THROUGHPUT)
    curves = _among(run.series.curves(THROUGHPUT), trials)
    if len(curves) > max_curves:
        spread = {int(index) for index in np.linspace(0, len(curves) - 1, max_curves)}
        always = {*chosen, best}
        curves = [
            curve for index, curve in enumerate(curves) if index in spread or curve.trial in always
        ]
    data = _curves_data(
        run,
        curves,
        axis,
        "maximize",
        best_trial=best,
        max_curves=max_curves + len(chosen) + 1,
        chosen=chosen,
        y_title="Throughput (samples/s)",
        target=None,
    )
    return dataclasses.replace(_without_best(data), y_range=None, num_cut=0)


def default_axis(curves: Sequence[Curve]) -> Axis:
    """Return "epoch" if most reports contain the epoch, else "step".

    "time" if each of several trials reported once: all of them lie at the same step.
    """
    if not curves:
        return "step"
    epochs_by_curve = [curve.x("epoch") for curve in curves]
    if len(epochs_by_curve) > 1 and all(len(epochs) <= 1 for epochs in epochs_by_curve):
        return "time"
    epochs = np.concatenate(epochs_by_curve)
    if len(epochs) and np.isfinite(epochs).mean() > 0.5:
        return "epoch"
    return "step"


def time_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit in which `longest_s` is read most easily, and its length in seconds."""
    for name, length_s in (("s", 1.0), ("min", 60.0), ("h", 3600.0)):
        if longest_s < 180 * length_s:
            return name, length_s
    return "days", 86400.0


def readable_range(
    values: Floats, goal: Goal | None, target: float | None
) -> tuple[tuple[float, float] | None, int]:
    """Cut off the bad side of an axis if a few outliers there would compress all other values.

    Args:
        values: What is drawn. NaN and infinity do not count.
        goal: Which direction is better, or None if that is unknown, and either side may be cut off.
        target: A value that must stay visible.

    Returns:
        The range to show and how many values lie outside, or None and 0 where all fit well.
    """
    values = values[np.isfinite(values)]
    if len(values) < 20:
        return None, 0
    low, high = float(values.min()), float(values.max())
    tail_low, tail_high = (float(edge) for edge in np.quantile(values, (0.1, 0.9)))
    spread = tail_high - tail_low
    if spread <= 0 or high - low < 2.5 * spread:
        return None, 0
    # Only the bad side is cut: the best values and the target are always in the range.
    wanted = [low, high]
    if target is not None:
        wanted.append(target)
    low = tail_low
    high = tail_high
    if goal == "minimize":
        low = min(wanted)
    elif goal == "maximize":
        high = max(wanted)
    margin = 0.05 * (high - low)
    shown = (low - margin, high + margin)
    return shown, int(((values < shown[0]) | (values > shown[1])).sum())


def _where_curves_end(data: CurvesData) -> tuple[tuple[float, float], int] | None:
    """Return the range of the second halves of complete curves, and how many points it cuts off.

    None where all points fit well, or nobody has declared which way is better.
    """
    columns = {
        line.trial: np.array([value for value in line.y if value is not None])
        for line in data.lines
    }
    states = {line.trial: line.state for line in data.lines}
    ends = [
        values[len(values) // 2 :]
        for trial, values in columns.items()
        if states[trial] == "complete" and len(values) >= _LEAST_FOR_CLOSE_UP
    ]
    if not ends or data.goal is None:
        return None
    late, drawn = np.concatenate(ends), np.concatenate([*columns.values()])
    wanted = drawn if data.target is None else np.append(drawn, data.target)
    low, high = float(wanted.min()), float(np.quantile(late, 0.95))
    if data.goal == "maximize":
        low, high = float(np.quantile(late, 0.05)), float(wanted.max())
    if high - low > _CLOSE_UP_PART * float(np.ptp(wanted)) or high <= low:
        return None
    margin = 0.08 * (high - low)
    shown = (low - margin, high + margin)
    return shown, int(((drawn < shown[0]) | (drawn > shown[1])).sum())


def _curves_data(
    run: RunData,
    curves: Sequence[Curve],
    axis: Axis,
    goal: Goal | None,
    *,
    best_trial: int | None,
    max_curves: int,
    chosen: Sequence[int],
    y_title: str,
    target: float | None,
) -> CurvesData:
    if axis not in AXES:
        raise ExperimentError(f"unknown axis {axis!r}", field="axis", allowed=AXES)
    path = _path_to(run.history, best_trial)
    always = [*chosen, *path]
    if best_trial is not None:
        always.append(best_trial)
    metric = ""
    complete_values: Mapping[int, float] = {}
    if curves:
        metric = curves[0].metric
        complete_values = values_of_complete(run.history, metric)
    bounded = bundle(
        curves,
        axis,
        goal,
        max_curves=max_curves,
        always=always,
        never_best=never_best(run.history),
        values=complete_values,
    )
    epoch = "Epoch" if run.experiment.federated is None else "Round"
    x_title, scale = {"step": ("Step", 1.0), "epoch": (epoch, 1.0)}.get(axis) or _time_title(curves)
    band = []
    if bounded.band is not None:
        band = [bounded.band.low, bounded.band.high]
    drawn = np.concatenate([*(curve.value for curve in bounded.curves), *band, np.empty(0)])
    y_range, num_cut = readable_range(drawn, goal, target)
    trials = run.history.trials
    return CurvesData(
        metric=metric,
        x_title=x_title,
        y_title=y_title,
        lines=tuple(
            Line(
                curve.trial,
                trials[curve.trial].state if curve.trial in trials else "running",
                _values(curve.x(axis) / scale),
                _values(curve.value),
                joint and (joint[0] / scale, joint[1]),
            )
            for curve, joint in _joined(run.history, curves, reversed(bounded.curves), axis)
        ),
        goal=goal,
        best_trial=best_trial,
        best_x=_values(bounded.best[:, 0] / scale),
        best_y=_values(bounded.best[:, 1]),
        target=target,
        band=bounded.band
        and BandData(
            _values(bounded.band.x / scale),
            _values(bounded.band.low),
            _values(bounded.band.middle),
            _values(bounded.band.high),
            bounded.band.num_trials,
        ),
        y_range=y_range,
        num_cut=num_cut,
        num_trials=bounded.num_trials,
        axis=axis,
        x_unit=scale,
        path=path,
    )


def _path_to(history: History, number: int | None) -> tuple[int, ...]:
    """Return the trials that a trial continues, oldest first, and itself. Empty for a whole one."""
    path: list[int] = []
    while number is not None and number in history.trials and number not in path:
        path.insert(0, number)
        number = _parent(history, history.trials[number])
    if len(path) < 2:
        return ()
    return tuple(path)


def _parent(history: History, trial: Trial) -> int | None:
    """Return the trial whose curve a trial continues."""
    if history.experiment.fidelity is not None:  # each level is trained from the start
        return None
    return trial.continued


def _joined(
    history: History, curves: Sequence[Curve], drawn: Iterable[Curve], axis: Axis
) -> Iterator[tuple[Curve, tuple[float, float] | None]]:
    """Start the curve of a trial at the point of the trial that it continues.

    Yields:
        The curve, and that point.
    """
    by_trial = {curve.trial: curve for curve in curves}
    for curve in drawn:
        trial = history.trials.get(curve.trial)
        parent = trial and _parent(history, trial)
        before = None if parent is None else by_trial.get(parent)
        if trial is None or before is None or not len(curve):
            yield curve, None
            continue
        last_step = math.inf if trial.clone is None else trial.clone.step
        steps = before.x("step")
        last = before.points[(steps < curve.x("step")[0]) & (steps <= last_step)][-1:]
        joint = None
        if len(last):
            joint = (float(last[0, AXES.index(axis)]), float(last[0, -1]))
            curve = dataclasses.replace(curve, points=np.concatenate([last, curve.points]))
        yield curve, joint if joint and all(map(math.isfinite, joint)) else None


def never_best(history: History) -> list[int]:
    """Return the trials that can no longer be the best of a run, regardless of their reports."""
    return [
        trial.number
        for trial in history.in_state("failed", "complete")
        if trial.state == "failed" or not history.is_feasible(trial)
    ]


def values_of_complete(history: History, metric: str) -> dict[int, float]:
    """Return the values of complete trials, by number."""
    return {
        trial.number: trial.values[metric]
        for trial in history.in_state("complete")
        if math.isfinite(trial.values.get(metric, math.nan))
    }


def _without_best(data: CurvesData) -> CurvesData:
    return dataclasses.replace(data, best_x=(), best_y=(), target=None)


def _time_title(curves: Sequence[Curve]) -> tuple[str, float]:
    longest_s = max((float(curve.x("time")[-1]) for curve in curves if len(curve)), default=0.0)
    name, length_s = time_unit(longest_s)
    return f"{RUN_TIME} ({name})", length_s


def _values(column: Floats) -> Values:
    return tuple(float(value) if math.isfinite(value) else None for value in column)


class Leaderboard(NamedTuple):
    """The models that were compared, the best first, as formatted cells."""

    columns: tuple[str, ...]
    """Their heads."""
    rows: tuple[tuple[str, ...], ...]
    num_rows: int
    """Number of models, including those that are not shown."""


def prepare_leaderboard(result: Mapping[str, Any], max_rows: int) -> Leaderboard:
    """Return the leaderboard of a stored result. Columns without a value are omitted.

    Args:
        result: As `wb.AutoML.to_json` returns it.
        max_rows: Maximum number of rows.
    """
    board = result["leaderboard"]
    rows = board["rows"]
    columns: list[str] = [
        name for name in board["columns"] if any(row.get(name) is not None for row in rows)
    ]
    cells = tuple(tuple(_cell(name, row.get(name)) for name in columns) for row in rows[:max_rows])
    return Leaderboard(tuple(_HEADS.get(name, name) for name in columns), cells, len(rows))


def analysis_of(history: History) -> Mapping[str, Any]:
    """Return what the chosen model does on the test samples, or empty if nothing was stored."""
    analysis = (history.result or {}).get("analysis")
    if not isinstance(analysis, dict):
        return {}
    return analysis


def model_figures(history: History) -> tuple[str, ...]:
    """Return the names of the figures of the model that have data."""
    analysis = analysis_of(history)
    return tuple(name for name, part in PART_OF_FIGURE.items() if analysis.get(part))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in _HEADS:
        return format_duration(value)
    if isinstance(value, float):
        return format_number(value)
    return format_value(value)

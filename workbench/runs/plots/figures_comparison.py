"""Several runs in one figure: the best value that each had found, on one scale per metric."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.experiment.goals import better_side
from workbench.foundation.formatting import format_number
from workbench.runs.plots.figures import StillFigure
from workbench.runs.plots.prepare import time_unit
from workbench.runs.plots.prepare_comparison import (
    AXIS_TITLES,
    BestSoFarData,
    ComparisonAxis,
    goal_in_any,
    prepare_best_so_far,
)
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.theme import (
    COLOURS,
    TEMPLATE,
    floats,
    new_figure,
    plain,
    short,
    show_message,
)

_TITLE = "Best so far, by run"
_MAX_LETTERS = 48


def draw_comparison(
    runs: Mapping[str, RunData], *, metric: str | None = None, axis: ComparisonAxis = "time"
) -> StillFigure:
    """Draw the best so far of several runs.

    Each metric has its own chart.

    Args:
        runs: The data of each run, by the name to show.
        metric: A metric. The default is the first objective of each run.
        axis: "time", "epoch", "trial" or "cost", the time of all workers together.
    """
    return StillFigure(_draw(runs, metric, axis))


def _draw(runs: Mapping[str, RunData], metric: str | None, axis: ComparisonAxis) -> go.Figure:
    goal = goal_in_any((run.history for run in runs.values()), metric)
    prepared = {
        name: prepare_best_so_far(run, metric=metric, axis=axis, goal=goal)
        for name, run in runs.items()
    }
    longest = max((x for data in prepared.values() for x in data.x), default=None)
    if all(data.goal is None for data in prepared.values()):
        return show_message(
            new_figure(_TITLE),
            f"Nobody has declared whether more or less of {short(str(metric), 40)} is better.",
        )
    if longest is None:
        return show_message(new_figure(_TITLE), "No trial has reported anything yet.")
    is_duration = axis in ("time", "cost")
    unit = ""
    unit_s = 1.0
    if is_duration:
        unit, unit_s = time_unit(longest)
    metrics = list(dict.fromkeys(data.metric for data in prepared.values()))
    figure = make_subplots(len(metrics), 1, shared_xaxes=True, vertical_spacing=0.08)
    figure.update_layout(
        template=TEMPLATE,
        title_text=_TITLE,
        height=max(420, 60 + 280 * len(metrics)),
    )
    for index, (name, data) in enumerate(prepared.items()):
        shown = short(name, _MAX_LETTERS)
        figure.add_scatter(
            x=floats(tuple(x / unit_s for x in data.x)),
            y=floats(data.y),
            mode="lines+markers",
            name=f"{shown}: {_found(runs[name], data)}",
            line={"shape": "hv", "width": 2.2, "color": COLOURS[index % len(COLOURS)]},
            marker={"size": 5},
            hovertemplate=f"{shown}<br>{axis} %{{x:.5g}} {unit}<br>%{{y:.6g}}<extra></extra>",
            row=metrics.index(data.metric) + 1,
            col=1,
        )
    title = AXIS_TITLES[axis]
    if is_duration:
        title += f" ({unit})"
    figure.update_xaxes(rangemode="tozero")
    figure.update_xaxes(title_text=title, row=len(metrics), col=1)
    for row, metric in enumerate(metrics, start=1):
        goals = (data.goal for data in prepared.values() if data.metric == metric)
        direction = better_side(next(goal for goal in goals if goal))
        title = f"{short(metric, 40)} ({direction} is better)"
        figure.update_yaxes(title_text=title, row=row, col=1)
    return figure


def _found(run: RunData, data: BestSoFarData) -> str:
    best = run.history.best()
    if best is not None and data.metric == run.experiment.objectives[0].metric:
        return f"{format_number(run.history.mean_values(best)[data.metric])} (trial {best.number})"
    if not data.y:
        return "nothing yet"
    return plain(format_number(data.y[-1]))

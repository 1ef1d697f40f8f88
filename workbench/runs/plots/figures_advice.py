"""Figures of advice: costs of plans, accuracy of predictions, effects of batches and rates.

`ADVICE_FIGURES` lists them, and `figures` lists them with all others. The same rules apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from workbench.foundation.formatting import format_count, format_number, format_percent
from workbench.runs.plots.marks import (
    SERIES_COLOURS,
    add_fit,
    add_points,
    log_axis,
    marked,
    note_level,
    note_place,
    open_marks,
    ticks_at,
)
from workbench.runs.plots.prepare_advice import (
    BAND,
    BatchData,
    MemoryData,
    PredictionData,
    ScalingData,
    prepare_memory,
    prepare_predictions,
    prepare_scaling,
    prepare_step_time,
    prepare_throughput_by_batch,
)
from workbench.runs.plots.prepare_learning import (
    CandidatesData,
    NoiseData,
    RatesData,
    TargetData,
    prepare_candidates,
    prepare_noise,
    prepare_rates,
    prepare_time_to_target,
)
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.theme import (
    BLUE,
    CROSSED,
    FAINT,
    GREEN,
    INK,
    MUTED,
    VERMILLION,
    joined,
    new_figure,
    plain,
    show_message,
)

_MAX_LEVELS = 3


def draw_noise(data: NoiseData) -> go.Figure:
    """Draw the noise scale of trials, the critical batch, and the batches in use."""
    figure = new_figure("Gradient noise scale", data.subtitle)
    if data.empty:
        return show_message(figure, data.empty)
    others = [line for line in data.lines if line.trial != data.shown_trial]
    if others:
        figure.add_scatter(
            x=joined(line.x for line in others),
            y=joined(line.scale for line in others),
            mode="lines",
            name="other trials",
            line={"color": "#aab4be", "width": 1.2},
            hovertemplate="%{y:,.0f} samples<extra>noise scale</extra>",
        )
    for line in data.lines:
        if line.trial == data.shown_trial:
            figure.add_scatter(
                x=line.x,
                y=line.scale,
                mode="lines" if len(line.x) > 1 else "markers",
                name=f"noise scale, trial {line.trial}",
                line={"color": BLUE, "width": 2.2},
                hovertemplate="%{y:,.0f} samples<extra>noise scale</extra>",
            )
    if data.critical_x:
        figure.add_scatter(
            x=data.critical_x,
            y=data.critical,
            mode="lines",
            name="critical batch so far",
            line={"color": GREEN, "width": 1.8, "dash": "dash"},
            hovertemplate="%{y:,.0f} samples<extra>critical batch</extra>",
        )
    for batch in data.batches[-_MAX_LEVELS:]:
        note_level(figure, batch, f"global batch {format_count(batch)}", INK, log=True, right=True)
    if data.advised is not None and data.advised > 0:
        note_level(
            figure,
            data.advised,
            f"the advice is based on {format_count(data.advised)}",
            MUTED,
            log=True,
        )
    figure.update_xaxes(title_text=data.x_title, rangemode="tozero")
    figure.update_yaxes(
        title_text="Samples", type="log", minor={"showgrid": False}, nticks=6, tickformat=","
    )
    return figure


def draw_time_to_target(data: TargetData) -> go.Figure:
    """Draw the time to the target over the global batch, and where the candidates lie."""
    figure = new_figure("Time to target by global batch", data.subtitle)
    if data.empty:
        return show_message(figure, data.empty)
    add_fit(figure, data.fit, BLUE, "predicted, with interval", legend=True)
    looks = {"choice": marked(), "runner-up": {**open_marks(VERMILLION), "size": 12}}
    for name, points in data.marks:
        look = looks.get(name, {"color": MUTED, "size": 9, "symbol": "diamond"})
        add_points(figure, points, name, look)
    batches = [*data.fit.x, *(x for _, points in data.marks for x in points.x)]
    figure.update_xaxes(ticks_at(batches), title_text="Global batch (samples per step)")
    figure.update_yaxes(title_text=f"Time to target ({data.unit})", rangemode="tozero")
    return figure


def draw_rates(data: RatesData) -> go.Figure:
    """Draw the loss over rising learning rates, with the suggestion and the highest stable rate."""
    figure = new_figure("Learning rate range test", data.subtitle)
    if data.empty:
        return show_message(figure, data.empty)
    for index, line in enumerate(data.lines):
        colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
        figure.add_scatter(
            x=line.rates,
            y=line.losses,
            mode="lines",
            name=line.name,
            line={"color": colour, "width": 2},
            hovertemplate="rate %{x:.3g}<br>loss %{y:.5g}<extra></extra>",
        )
        if line.suggested is not None:
            figure.add_scatter(
                x=[line.suggested],
                y=[line.suggested_loss],
                mode="markers",
                marker=marked(),
                name=f"suggested {format_number(line.suggested)}",
                hovertemplate="suggested rate %{x:.3g}<extra></extra>",
            )
        if line.highest_stable is not None:
            label = f"highest stable {format_number(line.highest_stable)}"
            note_place(figure, line.highest_stable, label, colour, row=index)
    figure.update_xaxes(
        title_text="Learning rate", type="log", minor={"showgrid": False}, exponentformat="e"
    )
    figure.update_yaxes(title_text="Training loss (smoothed)", range=data.y_range)
    return figure


def draw_candidates(data: CandidatesData) -> go.Figure:
    """Draw the objective of candidates over their training time."""
    figure = new_figure("Candidates side by side", data.subtitle)
    if data.empty:
        return show_message(figure, data.empty)
    for index, line in enumerate(data.lines):
        name = "others"  # there are not enough colours for all
        colour = MUTED
        if index < len(SERIES_COLOURS):
            name = line.name
            colour = SERIES_COLOURS[index]
        figure.add_scatter(
            x=line.x,
            y=line.y,
            mode="lines+markers",
            name=plain(name),
            legendgroup=name,
            showlegend=index <= len(SERIES_COLOURS),
            line={"color": colour, "width": 2},
            marker={"size": 6},
            hovertemplate="%{x:.3g}: %{y:.5g}<extra>" + plain(line.name) + "</extra>",
        )
        if line.reached_x:
            star = {
                "color": colour,
                "size": 15,
                "symbol": "star",
                "line": {"color": "white", "width": 1},
            }
            figure.add_scatter(
                x=line.reached_x,
                y=line.reached_y,
                mode="markers",
                showlegend=False,
                marker=star,
                hovertemplate="target reached after %{x:.3g}<extra></extra>",
            )
    if data.target is not None:
        note_level(figure, data.target, f"target {format_number(data.target)}")
    figure.update_xaxes(title_text=data.x_title, rangemode="tozero")
    figure.update_yaxes(title_text=plain(data.y_title))
    return figure


@dataclass(frozen=True)
class AdviceFigure:
    """A figure of advice: how its data is prepared and drawn."""

    prepare: Callable[[RunData], Any]
    draw_prepared: Callable[[Any], go.Figure]

    def draw(self, run: RunData) -> go.Figure:
        """Draw it."""
        return self.draw_prepared(self.prepare(run))


def draw_by_batch(data: BatchData) -> go.Figure:
    """Draw a line per number of workers: measured points, the fitted curve and its interval."""
    figure = new_figure(data.title, data.subtitle)
    if data.empty:
        return show_message(figure, data.empty)
    for index, group in enumerate(data.groups):
        colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
        name = f"{format_count(group.workers, 'worker')}"
        add_fit(figure, group.fit, colour, name, legend=not group.measured.x)
        add_points(figure, group.measured, name, {"color": colour, "size": 8})
        add_points(
            figure,
            group.otherwise,
            f"{name}, other precision or accumulation",
            open_marks(colour),
            legend=False,
        )
    add_points(figure, data.choice, "recommended", marked())
    batches = [
        x
        for group in data.groups
        for column in (group.measured, group.otherwise, group.fit)
        for x in column.x
    ]
    figure.update_xaxes(
        ticks_at(batches), title_text="Micro batch (samples per worker and micro step)"
    )
    figure.update_yaxes(title_text=data.y_title, rangemode="tozero")
    return figure


def draw_scaling(data: ScalingData) -> go.Figure:
    """Draw efficiency against workers: ideal, measured and predicted."""
    figure = new_figure("Scale efficiency", data.subtitle)
    if data.empty:
        return show_message(figure, data.empty)
    ends = [data.workers[0], data.workers[-1]]
    figure.add_scatter(
        x=ends,
        y=[1.0, 1.0],
        mode="lines",
        name="ideal",
        line={"color": INK, "width": 1.2, "dash": "dot"},
        hoverinfo="skip",
    )
    for index, line in enumerate(data.lines):
        colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
        name = f"micro batch {line.micro_batch}"
        add_fit(figure, line.predicted, colour, f"{name}, predicted", legend=not line.measured.x)
        add_points(
            figure, line.measured, f"{name}, measured", {"color": colour, "size": 9}, digits=".1%"
        )
        of_trials = {"color": colour, "size": 9, "symbol": "circle-open"}
        add_points(figure, line.trials, f"{name}, trials", of_trials, digits=".1%")
    figure.update_xaxes(ticks_at(data.workers), title_text="Workers")
    fewest = data.workers[0]
    against = ""
    if fewest > 1:
        against = f" against {fewest} workers"
    figure.update_yaxes(
        title_text=f"Scale efficiency{against} (%)", tickformat=".0%", rangemode="tozero"
    )
    return figure


def draw_memory(data: MemoryData) -> go.Figure:
    """Draw the peak memory of a worker.

    The estimate as a line, measurements as points, and the limit.
    """
    figure = new_figure("Memory by micro batch", data.subtitle)
    if data.empty:
        return show_message(figure, data.empty)
    if data.estimated.x:
        figure.add_scatter(
            x=data.estimated.x,
            y=data.estimated.y,
            mode="lines",
            name="estimated",
            line={"color": MUTED, "width": 1.6, "dash": "dash"},
            hovertemplate="estimated %{y:.3g} " + data.unit + "<extra></extra>",
        )
    add_points(figure, data.measured, "measured", {"color": BLUE, "size": 8})
    add_points(figure, data.too_large, "does not fit", {**CROSSED, "size": 9})
    how = "estimated"
    if data.choice_is_measured:
        how = "measured"
    add_points(figure, data.choice, f"recommended, {how}", marked())
    if data.limit is not None:
        note_level(figure, data.limit, f"device memory {format_number(data.limit)} {data.unit}")
    columns = (data.estimated, data.measured, data.too_large)
    batches = [x for points in columns for x in points.x]
    figure.update_xaxes(
        ticks_at(batches), title_text="Micro batch (samples per worker and micro step)"
    )
    figure.update_yaxes(title_text=f"Peak memory of a worker ({data.unit})", rangemode="tozero")
    return figure


def draw_predictions(data: PredictionData) -> go.Figure:
    """Draw predicted against measured step times."""
    figure = new_figure("Predicted and measured step time", data.subtitle)
    if data.empty:
        return show_message(figure, data.empty)
    values = [
        value
        for points in (data.probes, data.trials)
        for column in (points.x, points.y)
        for value in column
        if value is not None
    ]
    ends = [min(values) * 0.8, max(values) * 1.25]
    edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    figure.add_scatter(x=ends, y=[(1 - BAND) * end for end in ends], showlegend=False, **edge)
    figure.add_scatter(
        x=ends,
        y=[(1 + BAND) * end for end in ends],
        fill="tonexty",
        fillcolor="rgba(152,163,174,0.25)",
        name=f"within {format_percent(BAND)}",
        **edge,
    )
    figure.add_scatter(
        x=ends,
        y=ends,
        mode="lines",
        name="exact prediction",
        line={"color": FAINT, "width": 1.4},
        hoverinfo="skip",
    )
    add_points(figure, data.probes, "probes of the advice", {"color": BLUE, "size": 8})
    add_points(figure, data.trials, "trials", {"color": VERMILLION, "size": 8, "symbol": "diamond"})
    axis = {**log_axis(*ends), "constrain": "domain"}
    figure.update_xaxes(axis, title_text=f"Measured step time ({data.unit})")
    figure.update_yaxes(axis, title_text=f"Predicted step time ({data.unit})", scaleanchor="x")
    return figure.update_layout(height=540, title_y=0.965)


ADVICE_FIGURES: dict[str, AdviceFigure] = {
    "throughput_by_batch": AdviceFigure(prepare_throughput_by_batch, draw_by_batch),
    "step_time": AdviceFigure(prepare_step_time, draw_by_batch),
    "scaling": AdviceFigure(prepare_scaling, draw_scaling),
    "memory": AdviceFigure(prepare_memory, draw_memory),
    "time_to_target": AdviceFigure(prepare_time_to_target, draw_time_to_target),
    "noise": AdviceFigure(prepare_noise, draw_noise),
    "rates": AdviceFigure(prepare_rates, draw_rates),
    "candidates": AdviceFigure(prepare_candidates, draw_candidates),
    "predictions": AdviceFigure(prepare_predictions, draw_predictions),
}

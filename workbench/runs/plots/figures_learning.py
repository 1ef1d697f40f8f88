"""Figures of the effect of batches and rates: noise, time to target, rate tests, candidates.

Split from `figures_advice`, which lists them. The same rules apply.
"""

from __future__ import annotations

import plotly.graph_objects as go

from workbench.foundation.formatting import format_count, format_number
from workbench.runs.plots.marks import (
    SERIES_COLOURS,
    add_fit,
    add_points,
    marked,
    note_level,
    note_place,
    open_marks,
    ticks_at,
)
from workbench.runs.plots.prepare_learning import CandidatesData, NoiseData, RatesData, TargetData
from workbench.runs.plots.theme import (
    BLUE,
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

"""Figures: prepared data drawn with plotly, all in one style.

Only these modules use plotly. `FIGURES` lists every figure. Each takes a run and returns a plotly
figure that works in a notebook, on a page and on paper: light background, colours that colour-blind
readers can tell apart, nothing that needs WebGL. `prepare` decides what is shown.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from workbench.foundation.errors import WorkbenchError
from workbench.foundation.formatting import format_count, format_number, format_value
from workbench.runs.plots.figures_advice import ADVICE_FIGURES
from workbench.runs.plots.figures_model import MODEL_FIGURES
from workbench.runs.plots.figures_search import (
    draw_best_by_trial,
    draw_contour,
    draw_distribution,
    draw_rank,
    draw_schedule,
)
from workbench.runs.plots.figures_trials import (
    draw_importance,
    draw_parallel,
    draw_pareto,
    draw_slice,
    draw_timeline,
)
from workbench.runs.plots.prepare import (
    CurvesData,
    Line,
    prepare_convergence,
    prepare_throughput,
)
from workbench.runs.plots.prepare_search import (
    prepare_best_by_trial,
    prepare_distribution,
    prepare_importance,
    prepare_pairs,
    prepare_schedule,
)
from workbench.runs.plots.prepare_trials import (
    prepare_parallel,
    prepare_pareto,
    prepare_slice,
    prepare_timeline,
)
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.svg import figure_svg, plain_text, spec_of
from workbench.runs.plots.theme import (
    BEST,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    SKY,
    VERMILLION,
    floats,
    joined,
    new_figure,
    plain,
    short,
    show_message,
    whole_ticks,
)

_MAX_PARAMETERS = 12
_MAX_LETTERS = 40
_PLOTLY = "application/vnd.plotly.v1+json"
_MAX_STILL_BYTES = 200_000
"""A larger picture is left out of a notebook, which somebody commits or sends."""


class StillFigure(go.Figure):
    """A figure that saved notebooks show without a script, as a still picture.

    Sites such as GitHub run no script. Editors that draw plotly's figures draw this one as well.
    """

    def _ipython_display_(self) -> None:
        if "ipykernel" in sys.modules:  # a notebook, and no terminal
            raise NotImplementedError  # IPython then takes the forms below
        super()._ipython_display_()

    def _repr_mimebundle_(self, *given: Any, **options: Any) -> dict[str, Any]:
        forms: dict[str, Any] = super()._repr_mimebundle_(*given, **options) or {}
        if _PLOTLY in forms:  # otherwise only HTML with a script is drawn here, as in Colab
            # Whoever changed the figure may have added what only plotly can draw.
            with contextlib.suppress(WorkbenchError, KeyError, TypeError, ValueError):
                forms |= _still_of(self)
        return forms


def _still_of(figure: go.Figure) -> dict[str, str]:
    picture = figure_svg(spec_of(figure), alone=True)
    encoded = base64.b64encode(picture.encode()).decode()
    if len(encoded) > _MAX_STILL_BYTES:
        return {}
    title = html.escape(plain_text(str(figure.layout.title.text or "figure")), quote=True)
    return {"text/html": f'<img alt="{title}" src="data:image/svg+xml;base64,{encoded}">'}


def convergence(run: RunData, **options: Any) -> go.Figure:
    """Draw how the trials converge. Options as in `prepare.prepare_convergence`."""
    return draw_curves(prepare_convergence(run, **options), title="Convergence")


def throughput(run: RunData, **options: Any) -> go.Figure:
    """Draw the samples per second of all trials. Options as in `prepare.prepare_throughput`."""
    figure = draw_curves(prepare_throughput(run, **options), title="Throughput")
    return figure.update_yaxes(rangemode="tozero")


def parallel(run: RunData, **options: Any) -> go.Figure:
    """Draw every trial as a line through its parameters to its result.

    Options as in `prepare_parallel`.
    """
    return draw_parallel(prepare_parallel(run, **options), hover_of(run))


def slices(run: RunData) -> go.Figure:
    """Draw the objective over each parameter."""
    return draw_slice(prepare_slice(run), hover_of(run))


def importance(run: RunData, *, importance: Mapping[str, tuple[float, float, float]]) -> go.Figure:
    """Draw the importance of each parameter, as computed by `study`."""
    return draw_importance(prepare_importance(importance), run.experiment.objectives[0].metric)


def pareto(run: RunData) -> go.Figure:
    """Draw the Pareto front and the trials behind it."""
    return draw_pareto(prepare_pareto(run), hover_of(run))


def timeline(run: RunData) -> go.Figure:
    """Draw when each trial ran and how it ended."""
    return draw_timeline(prepare_timeline(run), hover_of(run))


def best_by_trial(run: RunData) -> go.Figure:
    """Draw the value of each complete trial, and the best up to it."""
    return draw_best_by_trial(prepare_best_by_trial(run), hover_of(run))


def edf(run: RunData) -> go.Figure:
    """Draw which share of the complete trials has at most a value."""
    return draw_distribution(prepare_distribution(run), hover_of(run))


def contour(run: RunData) -> go.Figure:
    """Draw the objective over pairs of parameters."""
    return draw_contour(prepare_pairs(run, with_grid=True), hover_of(run))


def rank(run: RunData) -> go.Figure:
    """Draw the trials over pairs of parameters, coloured by rank."""
    return draw_rank(prepare_pairs(run, with_grid=False), hover_of(run))


def schedule(run: RunData) -> go.Figure:
    """Draw the parameters of a population over its epochs, with the best member on top."""
    return draw_schedule(prepare_schedule(run), hover_of(run))


FIGURES: dict[str, Callable[..., go.Figure]] = {
    "convergence": convergence,
    "throughput": throughput,
    "parallel": parallel,
    "slice": slices,
    "importance": importance,
    "pareto": pareto,
    "timeline": timeline,
    "best_by_trial": best_by_trial,
    "contour": contour,
    "rank": rank,
    "edf": edf,
    "schedule": schedule,
    **MODEL_FIGURES,
    **{name: advised.draw for name, advised in ADVICE_FIGURES.items()},
}


def draw_curves(data: CurvesData, *, title: str) -> go.Figure:
    """Draw curves: thin lines for trials, a thick one for the best, and steps so far."""
    figure = new_figure(title)
    if not data.lines:
        return show_message(figure, "No trial has reported this yet.")
    if data.band:
        _add_band(figure, data)
    others = [line for line in data.lines if line.trial != data.best_trial]
    for state, name, colour, opacity in (
        ("pruned", "pruned", "#98a3ae", 0.55),
        ("failed", "failed", VERMILLION, 0.6),
        ("stopped", "stopped", ORANGE, 0.8),
        ("complete", "complete", SKY, 0.75),
        ("running", "running", GREEN, 0.9),
    ):
        lines = [line for line in others if line.state == state]
        _add_lines(figure, lines, data, name=name, colour=colour, opacity=opacity, width=1.2)
    best = [line for line in data.lines if line.trial == data.best_trial]
    name = f"{data.best_name}: trial {data.best_trial}"
    _add_lines(figure, best, data, name=name, colour=BEST, opacity=1.0, width=2.8)
    if data.best_x:
        figure.add_scatter(
            x=floats(data.best_x),
            y=floats(data.best_y),
            mode="lines",
            name="best so far",
            line={"color": BEST, "width": 1.8, "shape": "hv", "dash": "dot"},
            hovertemplate="best so far %{y:.6g}<extra></extra>",
        )
    # The lines leave the side free that they move away from.
    free = "bottom"
    if data.goal == "maximize":
        free = "top"
    if data.target is not None:
        figure.add_hline(
            y=data.target,
            line={"color": INK, "width": 1.2, "dash": "dash"},
            annotation={
                "text": f"target {format_number(data.target)}",
                "font": {"size": 12, "color": INK},
                "bgcolor": "rgba(255,255,255,0.8)",
            },
            annotation_position=f"{free} right",
        )
    figure.update_xaxes(title_text=data.x_title, rangemode="tozero")
    if data.x_title in ("Step", "Epoch", "Round"):
        figure.update_xaxes(
            whole_ticks([0, *(x for line in data.lines for x in line.x if x is not None)])
        )
    figure.update_yaxes(title_text=data.y_title, range=data.y_range)
    if data.num_cut:
        # Inside, at the edge that cuts them off. Above a narrow figure is its legend.
        edge = "top"
        y = 1
        if data.goal == "maximize":
            edge = "bottom"
            y = 0
        figure.add_annotation(
            text=f"{format_count(data.num_cut, 'point')} outside the axis",
            showarrow=False,
            x=1,
            y=y,
            xref="paper",
            yref="paper",
            xanchor="right",
            yanchor=edge,
            bgcolor="rgba(255,255,255,0.75)",
            font={"size": 12, "color": MUTED},
        )
    return figure


def _add_band(figure: go.Figure, data: CurvesData) -> None:
    band = data.band
    assert band is not None
    x = floats(band.x)
    edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    figure.add_scatter(x=x, y=floats(band.low), showlegend=False, **edge)
    figure.add_scatter(
        x=x,
        y=floats(band.high),
        fill="tonexty",
        fillcolor="rgba(152,163,174,0.28)",
        name=f"middle 80 % of {band.num_trials:,} trials",
        **edge,
    )
    figure.add_scatter(
        x=x,
        y=floats(band.middle),
        mode="lines",
        name="median trial",
        line={"color": "#7d8893", "width": 1.4},
        hovertemplate="median %{y:.6g}<extra></extra>",
    )


def _add_lines(
    figure: go.Figure,
    lines: Sequence[Line],
    data: CurvesData,
    *,
    name: str,
    colour: str,
    opacity: float,
    width: float,
) -> None:
    """Draw many trials as one trace with gaps, which browsers draw far faster than many traces."""
    if not lines:
        return
    lonely = all(len(line.x) == 1 for line in lines)
    figure.add_scatter(
        x=joined(line.x for line in lines),
        y=joined(line.y for line in lines),
        customdata=np.concatenate(
            [np.full(len(line.x) + 1, line.trial, dtype=np.int32) for line in lines]
        ),
        mode="markers" if lonely else "lines",
        name=name,
        opacity=opacity,
        line={"color": colour, "width": width},
        marker={"color": colour, "size": 6},
        hovertemplate=(
            f"trial %{{customdata}}<br>{plain(data.x_title)} %{{x:.5g}}<br>%{{y:.6g}}"
            "<extra></extra>"
        ),
    )


def hover_of(run: RunData) -> Callable[[int], str]:
    """Return a function that writes the configuration of a trial as lines of a tooltip."""

    @functools.cache
    def write(number: int) -> str:
        items = list(run.history.trials[number].params.items())
        lines = [
            f"<br>{plain(name)}: {short(format_value(value), _MAX_LETTERS)}"
            for name, value in items[:_MAX_PARAMETERS]
        ]
        rest = len(items) - _MAX_PARAMETERS
        if rest > 0:
            lines.append(f"<br>and {rest} more")
        return "".join(lines)

    return write

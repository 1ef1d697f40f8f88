"""The style of all figures: colours, font, axes, and how columns and words reach plotly.

Light background and ink that prints. The Okabe-Ito colours, which colour-blind readers can tell
apart. `figures` decides what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.foundation.events import TrialState
from workbench.runs.plots.prepare import Values

if TYPE_CHECKING:
    import plotly.graph_objects as go

INK, MUTED, FAINT, GRID = "#1b1f24", "#57606a", "#b8c0c8", "#e6e9ec"
BLUE, ORANGE, GREEN, VERMILLION, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9"
STATE_COLOURS: dict[TrialState, str] = {
    "waiting": "#dfe3e7",
    "running": GREEN,
    "complete": BLUE,
    "pruned": "#aab4be",
    "stopped": ORANGE,
    "failed": VERMILLION,
}
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"

BEST = "#4b0082"
"""The best trial, in every figure. Colour-blind readers can tell it from a failed one."""
TRIALS = "trials"
"""The `meta` of traces whose `customdata` starts with the number of a trial: a click opens it."""
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, SKY, "#cc79a7", "#7a5240", "#8a3ffc")

ABSENT = -0.12
FILLED = {"color": BLUE, "size": 7, "opacity": 0.8}
HOLLOW = {"color": "rgba(0,0,0,0)", "size": 6, "line": {"color": "#8b96a1", "width": 1.2}}
RINGED = {"color": BEST, "size": 11, "line": {"color": "white", "width": 1.5}}
BASE = {"color": INK, "size": 12, "symbol": "cross-thin", "line": {"color": INK, "width": 2}}
CHOSEN = {"color": INK, "size": 18, "symbol": "circle-open", "line": {"color": INK, "width": 2.5}}
CROSSED = {
    "color": VERMILLION,
    "size": 7,
    "symbol": "x-thin",
    "line": {"color": VERMILLION, "width": 1.6},
}
_AXIS = {
    "showgrid": True,
    "gridcolor": GRID,
    "zeroline": False,
    "linecolor": FAINT,
    "ticks": "outside",
    "tickcolor": FAINT,
    "ticklen": 4,
    "tickfont": {"size": 12, "color": MUTED},
    "title": {"font": {"size": 13, "color": MUTED}, "standoff": 8},
    "automargin": True,
}
TEMPLATE: dict[str, Any] = {
    "layout": {
        "font": {"family": FONT, "size": 13, "color": INK},
        "title": {"font": {"size": 16}, "x": 0, "xref": "paper", "xanchor": "left", "y": 0.97},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": [*COLOURS],
        "xaxis": {**_AXIS, "showgrid": False, "showline": True},
        "yaxis": _AXIS,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12},
        },
        "margin": {"l": 64, "r": 24, "t": 72, "b": 56},
        "hoverlabel": {
            "bgcolor": "white",
            "bordercolor": FAINT,
            "font": {"color": INK, "size": 12},
        },
        "hovermode": "closest",
        "height": 420,
    }
}


def new_figure(title: str, subtitle: str = "") -> go.Figure:
    """Return an empty figure in this style. The subtitle says how to read it."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"template": TEMPLATE, "title": {"text": title}})
    if subtitle:
        small = {"text": plain(subtitle), "font": {"size": 13, "color": MUTED}}
        # Filled bands would reverse the legend.
        figure.update_layout(
            title={"subtitle": small, "y": 0.95}, margin_t=104, legend_traceorder="normal"
        )
    return figure


def show_message(figure: go.Figure, text: str) -> go.Figure:
    """Show a message in place of data."""
    figure.add_annotation(
        text=text, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", font={"color": MUTED}
    )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.update_layout(height=200)
    return figure


def add_note(figure: go.Figure, text: str) -> None:
    """Write a note above the right end of a figure, such as what it omits."""
    figure.add_annotation(
        text=text,
        showarrow=False,
        x=1,
        y=1.02,
        xref="paper",
        yref="paper",
        xanchor="right",
        yanchor="bottom",
        font={"size": 12, "color": MUTED},
    )


def floats(values: Values) -> Any:
    """Return a compact column that plotly writes as bytes, with gaps for None."""
    return np.array([math.nan if value is None else value for value in values], dtype=np.float32)


def whole_ticks(numbers: Iterable[float]) -> dict[str, Any]:
    """Return an axis of whole numbers, such as trials and epochs, without ticks in between."""
    known = list(numbers)
    if not known or max(known) - min(known) <= 8:
        return {"tickformat": ",d", "dtick": 1}
    return {"tickformat": ",d", "nticks": 10}


def joined(columns: Iterable[Values]) -> Any:
    """Put columns one after another with a gap after each, so that many lines are one trace."""
    return floats(tuple(value for column in columns for value in (*column, None)))


def colour_scale(goal: str) -> list[str]:
    """Return a scale from light (bad) to dark (good) that everybody can read."""
    shades = ["#f3d27a", "#e79a5b", "#c8617a", "#86469c", "#2f2c7a"]
    if goal != "maximize":
        shades.reverse()
    return shades


def short(text: str, most: int) -> str:
    """Cut user text to `most` characters, safe for plotly."""
    if len(text) > most:
        text = f"{text[: most - 3]}..."
    return plain(text)


def plain(text: str) -> str:
    """Escape markup and placeholders in user text for plotly."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "% {")

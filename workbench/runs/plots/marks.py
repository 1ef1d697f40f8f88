"""The marks that figures of advice share.

Fitted curves with intervals, points with spreads, levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from workbench.runs.plots.prepare import Values
from workbench.runs.plots.prepare_advice import Fit, Points
from workbench.runs.plots.theme import BLUE, GREEN, INK, MUTED, ORANGE, VERMILLION, plain

SERIES_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, "#cc79a7", "#56b4e9")
_MAX_TICKS = 12
_NOTE: dict[str, Any] = {
    "showarrow": False,
    "font": {"size": 12, "color": MUTED},
    "bgcolor": "rgba(255,255,255,0.75)",
}


def add_fit(figure: go.Figure, fit: Fit, colour: str, name: str, *, legend: bool) -> None:
    """Draw a fitted curve with its interval as a band, dashed where it is extrapolated."""
    if not fit.x:
        return
    edge: dict[str, Any] = {
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    figure.add_scatter(x=fit.x, y=fit.low, **edge)
    figure.add_scatter(
        x=fit.x,
        y=fit.high,
        fill="tonexty",
        fillcolor=_faded(colour),
        name=f"{name}: 90 % interval",
        **edge,
    )
    links = range(1, len(fit.x))
    for dash, wanted, kind in (
        ("solid", False, "fitted"),
        ("dash", True, "beyond what was measured"),
    ):
        ends = [index for index in links if (fit.beyond[index - 1] or fit.beyond[index]) is wanted]
        is_alone = len(fit.x) == 1 and fit.beyond == (wanted,)
        if not ends and not is_alone:
            continue
        x: list[float | None] = []
        y: list[float | None] = []
        if is_alone:
            x += fit.x
            y += fit.y
        for index in ends:
            x += [fit.x[index - 1], fit.x[index], None]
            y += [fit.y[index - 1], fit.y[index], None]
        label = f"{name}, {kind}"
        figure.add_scatter(
            x=x,
            y=y,
            mode="lines" if ends else "markers",
            name=name if legend else label,
            showlegend=legend,
            line={"color": colour, "width": 2, "dash": dash},
            marker={"color": colour, "symbol": "line-ew-open", "size": 12},
            hovertemplate=f"{plain(label)}: %{{y:.4g}}<extra></extra>",
        )
        legend = False


def add_points(
    figure: go.Figure,
    points: Points,
    name: str,
    marker: dict[str, Any],
    *,
    legend: bool = True,
    digits: str = ".4g",
) -> None:
    """Draw points, with their spread if it is known."""
    if not points.x:
        return
    spread: dict[str, Any] = {}
    if any(low != high for low, high in zip(points.low, points.high, strict=True)):
        spread["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": _distances(points.y, points.high),
            "arrayminus": _distances(points.low, points.y),
            "color": marker.get("line", marker)["color"],
            "thickness": 1.2,
            "width": 3,
        }
    figure.add_scatter(
        x=points.x,
        y=points.y,
        text=[plain(text) for text in points.texts],
        mode="markers",
        name=plain(name),
        showlegend=legend,
        marker=marker,
        hovertemplate=f"%{{text}}<br>%{{y:{digits}}}<extra>{plain(name)}</extra>",
        **spread,
    )


def marked() -> dict[str, Any]:
    """Return the marker of what is recommended."""
    return {
        "color": "rgba(0,0,0,0)",
        "size": 17,
        "symbol": "circle",
        "line": {"color": INK, "width": 2.2},
    }


def open_marks(colour: str) -> dict[str, Any]:
    """Return the marker of points that are close to a curve of that colour but not part of it."""
    return {"color": "rgba(0,0,0,0)", "size": 7, "line": {"color": colour, "width": 1.4}}


def note_level(
    figure: go.Figure,
    at: float,
    text: str,
    colour: str = VERMILLION,
    *,
    log: bool = False,
    right: bool = False,
) -> None:
    """Draw a labelled level across the figure. `log` says whether the axis is logarithmic."""
    figure.add_shape(
        type="line",
        xref="paper",
        x0=0,
        x1=1,
        y0=at,
        y1=at,
        line={"color": colour, "width": 1.4, "dash": "dash"},
    )
    if log:  # a shape takes the number, an annotation its logarithm
        at = math.log10(at)
    x = 0
    side = "left"
    if right:
        x = 1
        side = "right"
    figure.add_annotation(
        text=plain(text), xref="paper", x=x, xanchor=side, y=at, yanchor="bottom", **_NOTE
    )


def note_place(figure: go.Figure, at: float, text: str, colour: str, *, row: int) -> None:
    """Draw a labelled position on a logarithmic horizontal axis.

    Labels in different rows do not overlap.
    """
    figure.add_shape(
        type="line",
        yref="paper",
        y0=0,
        y1=1,
        x0=at,
        x1=at,
        line={"color": colour, "width": 1.4, "dash": "dash"},
    )
    figure.add_annotation(
        text=plain(text),
        x=math.log10(at),
        xanchor="right",
        xshift=-4,
        yref="paper",
        y=1,
        yanchor="top",
        yshift=-18 * row,
        **_NOTE,
    )


def ticks_at(places: Sequence[float | None]) -> dict[str, Any]:
    """Return a logarithmic axis whose ticks are numbers that occur."""
    known = sorted({place for place in places if place is not None and place > 0})
    shown = known[:: max(1, math.ceil(len(known) / _MAX_TICKS))]
    axis: dict[str, Any] = {
        "type": "log",
        "tickvals": shown,
        "ticktext": [f"{place:,.6g}" for place in shown],
    }
    if known:
        low, high = math.log10(known[0]), math.log10(known[-1])
        margin = max(0.06 * (high - low), 0.05)
        axis["range"] = [low - margin, high + margin]
    return axis


def _distances(froms: Values, tos: Values) -> list[float]:
    pairs = zip(froms, tos, strict=True)
    return [0.0 if low is None or high is None else max(0.0, high - low) for low, high in pairs]


def log_axis(low: float, high: float) -> dict[str, Any]:
    """Return a logarithmic axis from `low` to `high`, both > 0, with ticks in each decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 3, 5, 7)]
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "minor": {"showgrid": False},
        "tickvals": ticks,
        "ticktext": [f"{tick:,.6g}" for tick in ticks],
    }


def _dashed(colour: str) -> dict[str, Any]:
    return {"color": colour, "width": 1.4, "dash": "dash"}


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"

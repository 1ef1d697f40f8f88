"""Colour the points and bars of a figure, each of which is a trial, by the value of a parameter.

Lines of the parallel coordinates are coloured by `figures_trials`, with the same scale and bar.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from workbench.foundation.errors import UnknownNameError
from workbench.runs.plots.parameter_axes import ParameterAxis, ParameterLayout
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.theme import MUTED, TRIALS, short

SCALE = ["#3b6fd4", "#1f9bb5", "#4aa564", "#c9a227", "#b0479b"]
"""From the lowest to the highest value.

Even in lightness, because no value is better than another.
"""
COLOURED = ("parallel", "slice", "pareto", "best_by_trial", "timeline")
"""The figures that can be coloured by a parameter."""


def layout_of(run: RunData, name: str) -> ParameterLayout:
    """Return where the values of a parameter lie on a scale from 0 to 1.

    Raises:
        UnknownNameError: If there is no such parameter.
    """
    space = run.history.searched.root
    if name not in space:
        raise UnknownNameError(
            f"there is no parameter {name!r}", field="colour", allowed=list(space)
        )
    return ParameterLayout(name, space[name], list(run.history.trials.values()))


def colour_by(figure: go.Figure, run: RunData, name: str) -> None:
    """Colour the trials of a figure by a parameter, in place. The best keeps its colour.

    Args:
        figure: A figure whose traces of trials are marked with `TRIALS`.
        run: The run that it shows.
        name: The parameter.

    Raises:
        UnknownNameError: If there is no such parameter.
    """
    layout = layout_of(run, name)
    traces: Any = figure.data
    for trace in traces:
        is_mark = str(trace.name or "").startswith(("best", "chosen"))
        if trace.meta != TRIALS or is_mark or not hasattr(trace, "marker"):
            continue
        numbers = []
        if trace.customdata is not None:
            numbers = [int(row[0]) for row in trace.customdata]
        places = [layout.position(run.history.trials[number]) for number in numbers]
        # Hollow points have a colour at their edge only.
        colours = _coloured(places)
        if str(trace.marker.color).startswith("rgba(0,0,0,0"):
            colours = {"line": colours}  # a ring, whose edge is coloured
        trace.marker.update(colours)
        trace.showlegend = False
    figure.update_layout(coloraxis=bar_of(layout.axis))


def bar_of(axis: ParameterAxis) -> dict[str, Any]:
    """Return the colour axis of a parameter.

    With its ticks, or with a field for each of a few values.
    """
    if axis.levels:
        places, texts = zip(*axis.levels, strict=True)
        edges = _edges(places)
        low = edges[0]
        high = edges[-1]
        scale = [
            [(edge - low) / (high - low), colour]
            for colour, ends in zip(colours_of(axis), itertools.pairwise(edges), strict=True)
            for edge in ends
        ]
    else:
        (low, high) = (0.0, 1.0)
        scale = SCALE
        places, texts = zip(*axis.ticks, strict=True)
    return {
        "colorscale": scale,
        "cmin": low,
        "cmax": high,
        "colorbar": {
            "title": {
                "text": short(axis.name, 22),
                "side": "right",
                "font": {"size": 12, "color": MUTED},
            },
            "tickvals": list(places),
            "ticktext": [short(text, 14) for text in texts],
            "tickfont": {"size": 12, "color": MUTED},
            "thickness": 12,
            "outlinewidth": 0,
        },
    }


def colours_of(axis: ParameterAxis, num_shades: int = 2) -> list[str]:
    """Return the colours of a parameter in the order of its values.

    Args:
        axis: The parameter.
        num_shades: Number of colours, at least 2, if there are too many values for a colour each.
    """
    number = len(axis.levels) or num_shades
    return [
        str(colour)
        for colour in sample_colorscale(SCALE, [at / max(number - 1, 1) for at in range(number)])
    ]


def _edges(places: Sequence[float]) -> list[float]:
    """Return the borders between positions, and one beyond each of the outermost."""
    middles = [(place + other) / 2 for place, other in itertools.pairwise(places)]
    if not middles:
        return [places[0] - 0.5, places[0] + 0.5]
    return [2 * places[0] - middles[0], *middles, 2 * places[-1] - middles[-1]]


def _coloured(places: list[float | None]) -> dict[str, Any]:
    return {"color": places, "coloraxis": "coloraxis"}

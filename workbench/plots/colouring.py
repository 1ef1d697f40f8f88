"""Colours by the value of a parameter: of the points and bars of a figure, each of which stands for a trial.

Lines of the parallel coordinates are coloured by `figures_trials`, with the same scale and bar.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from workbench.errors import UnknownNameError
from workbench.plots.prepare_trials import ParameterAxis, ParameterLayout
from workbench.plots.run_data import RunData
from workbench.plots.theme import MUTED, TRIALS, short

SCALE = ["#3b6fd4", "#1f9bb5", "#4aa564", "#c9a227", "#b0479b"]
"""From the lowest to the highest value: even in lightness, because no value is better than another."""
COLOURED = ("parallel", "slice", "pareto", "best_by_trial", "timeline")
"""The figures that can be coloured by a parameter."""


def layout_of(run: RunData, name: str) -> ParameterLayout:
    """Return where the values of a parameter lie on a scale from 0 to 1.

    Raises:
        UnknownNameError: If there is no such parameter.
    """
    space = run.history.searched.root
    if name not in space:
        raise UnknownNameError(f"there is no parameter {name!r}", field="colour", allowed=list(space))
    return ParameterLayout(name, space[name], list(run.history.trials.values()))


def colour_by(figure: go.Figure, run: RunData, name: str) -> None:
    """Colour what stands for trials by a parameter, in place; the best keeps its colour.

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
        numbers = [] if trace.customdata is None else [int(one[0]) for one in trace.customdata]
        places = [layout.position(run.history.trials[number]) for number in numbers]
        # Hollow points have a colour at their edge only.
        edge = str(trace.marker.color).startswith("rgba(0,0,0,0")
        trace.marker.update({"line": _coloured(places)} if edge else _coloured(places))
        trace.showlegend = False
    figure.update_layout(coloraxis=bar_of(layout.axis))


def bar_of(axis: ParameterAxis) -> dict[str, Any]:
    """Return the colour axis of a parameter, with the ticks of its own axis."""
    return {
        "colorscale": SCALE, "cmin": 0, "cmax": 1,
        "colorbar": {
            "title": {"text": short(axis.name, 22), "side": "right", "font": {"size": 12, "color": MUTED}},
            "tickvals": [place for place, _ in axis.ticks],
            "ticktext": [short(text, 14) for _, text in axis.ticks],
            "tickfont": {"size": 12, "color": MUTED}, "thickness": 12, "outlinewidth": 0,
        },
    }  # fmt: skip


def _coloured(places: list[float | None]) -> dict[str, Any]:
    return {"color": places, "coloraxis": "coloraxis"}

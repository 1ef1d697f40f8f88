"""Several runs in one figure: the best value that each had found at each time."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from workbench.formatting import format_number
from workbench.plots.prepare import prepare_convergence, time_unit
from workbench.plots.run_data import RunData
from workbench.plots.theme import floats, new_figure, plain, short, show_message

_MAX_LETTERS = 48


def draw_comparison(runs: Mapping[str, RunData]) -> go.Figure:
    """Draw the best so far of several runs over the time since each began.

    Args:
        runs: The data of each run, by the name to show.
    """
    prepared = {name: prepare_convergence(run, axis="time", max_curves=1) for name, run in runs.items()}
    figure = new_figure("Best so far, by run")
    seconds = {name: [(x or 0.0) * data.x_unit for x in data.best_x] for name, data in prepared.items()}
    if not any(seconds.values()):
        return show_message(figure, "No trial has reported anything yet.")
    unit, unit_s = time_unit(max(x for column in seconds.values() for x in column))
    for name, data in prepared.items():
        best = runs[name].history.best()
        found = (
            "nothing yet"
            if best is None
            else f"{format_number(best.values[data.metric])} (trial {best.number})"
        )
        figure.add_scatter(
            x=floats(tuple(x / unit_s for x in seconds[name])),
            y=floats(data.best_y),
            mode="lines+markers",
            name=f"{short(name, _MAX_LETTERS)}: {found}",
            line={"shape": "hv", "width": 2.2},
            marker={"size": 5},
            hovertemplate=f"{short(name, _MAX_LETTERS)}<br>%{{x:.5g}} {unit}<br>%{{y:.6g}}<extra></extra>",
        )
    figure.update_xaxes(title_text=f"time since the run began ({unit})", rangemode="tozero")
    figure.update_yaxes(
        title_text=plain(", ".join(dict.fromkeys(data.y_title for data in prepared.values())))
    )
    return figure

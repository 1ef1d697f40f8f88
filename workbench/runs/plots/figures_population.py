"""The figure of a population. Split from `figures`, which lists it; the same rules apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.runs.plots.prepare_population import Piece, ScheduleData
from workbench.runs.plots.theme import (
    BEST,
    FAINT,
    TEMPLATE,
    TRIALS,
    new_figure,
    short,
    show_message,
    whole_ticks,
)


def draw_schedule(data: ScheduleData, hover: Callable[[int], str]) -> go.Figure:
    """Draw one panel for each parameter.

    All parts of the trainings, and on top those of the best.
    """
    if not data.panels:
        return show_message(new_figure("Schedules"), "No parameter has changed during a training.")
    figure = make_subplots(
        len(data.panels), 1, shared_xaxes=True, vertical_spacing=0.12 / len(data.panels)
    )
    figure.update_layout(
        template=TEMPLATE, title_text="Schedules", height=130 + 150 * len(data.panels)
    )
    for row, panel in enumerate(data.panels, start=1):
        looks: tuple[tuple[str, Sequence[Piece], dict[str, Any]], ...] = (
            ("all parts", panel.others, {"color": FAINT, "width": 1.2}),
            (f"best: trial {data.best_trial}", panel.best, {"color": BEST, "width": 3}),
        )
        for name, pieces, line in looks:
            if pieces:
                _add_pieces(figure, pieces, hover, line, name=name, row=row)
        is_named = any(isinstance(piece.value, str) for piece in panel.others)
        kind = "category" if is_named else "log" if panel.is_log else "linear"
        figure.update_yaxes(
            title_text=short(panel.name, 24),
            type=kind,
            nticks=4,
            exponentformat="e",
            row=row,
            col=1,
        )
    ends = [piece.end for panel in data.panels for piece in panel.others]
    figure.update_xaxes(whole_ticks([0, *ends]))
    figure.update_xaxes(title_text=data.unit, row=len(data.panels), col=1)
    return figure


def _add_pieces(
    figure: go.Figure,
    pieces: Sequence[Piece],
    hover: Callable[[int], str],
    line: dict[str, Any],
    *,
    name: str,
    row: int,
) -> None:
    """Draw each part as a level line, with a step from the value of the part that it continues."""
    x: list[int | None] = []
    y: list[float | str | None] = []
    tips: list[list[Any]] = []
    for piece in pieces:
        x += [piece.begin, piece.begin, piece.end, None]
        y += [piece.value if piece.before is None else piece.before, piece.value, piece.value, None]
        tips += [[piece.trial, hover(piece.trial)]] * 4
    figure.add_scatter(
        x=x,
        y=y,
        customdata=tips,
        meta=TRIALS,
        mode="lines",
        line=line,
        name=name,
        legendgroup=name,
        showlegend=row == 1,
        row=row,
        col=1,
        hovertemplate="trial %{customdata[0]}%{customdata[1]}<extra></extra>",
    )

"""Figures of how a search went: best by trial, distribution, pairs of parameters, populations.

`figures` lists them. The same rules apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.runs.plots.prepare_search import (
    Distribution,
    PairPanel,
    PairsData,
    Piece,
    ScheduleData,
    TrialValues,
)
from workbench.runs.plots.theme import (
    BEST,
    BLUE,
    FAINT,
    FILLED,
    INK,
    MUTED,
    RINGED,
    TEMPLATE,
    TRIALS,
    colour_scale,
    new_figure,
    short,
    show_message,
    whole_ticks,
)

_NOTHING = "No trial is complete."
_TOO_FEW = "Two parameters must vary among the complete trials."


def draw_best_by_trial(data: TrialValues, hover: Callable[[int], str]) -> go.Figure:
    """Draw a point per complete trial, the best ringed, and the best so far as steps."""
    figure = new_figure("Best by trial")
    if not data.trials:
        return show_message(figure, _NOTHING)
    kinds = (("complete", FILLED, False), (f"best: trial {data.best_trial}", RINGED, True))
    for name, marker, is_best in kinds:
        shown = [
            row for row, trial in enumerate(data.trials) if (trial == data.best_trial) == is_best
        ]
        trials = [data.trials[row] for row in shown]
        if not trials:
            continue
        figure.add_scatter(
            x=trials,
            y=[data.values[row] for row in shown],
            mode="markers",
            name=name,
            marker=marker,
            meta=TRIALS,
            customdata=[[trial, hover(trial)] for trial in trials],
            hovertemplate="trial %{x}: %{y:.6g}%{customdata[1]}<extra></extra>",
        )
    figure.add_scatter(
        x=data.trials,
        y=data.best,
        mode="lines",
        name="best so far",
        hoverinfo="skip",
        line={"color": BEST, "width": 2, "shape": "hv"},
    )
    figure.update_xaxes(whole_ticks(data.trials), title_text="Trial")
    return figure.update_yaxes(title_text=short(data.y_title, 60))


def draw_distribution(data: Distribution, hover: Callable[[int], str]) -> go.Figure:
    """Draw which share of the trials is at or below each value. Each step is a trial."""
    figure = new_figure("Distribution of values", "A steep part holds many trials.")
    if not data.values:
        return show_message(figure, _NOTHING)
    figure.add_scatter(
        x=data.values,
        y=data.shares,
        mode="lines",
        line={"color": BLUE, "width": 2, "shape": "hv"},
        meta=TRIALS,
        customdata=[[trial, hover(trial)] for trial in data.trials],
        hovertemplate=(
            "%{y:.0%} of the trials: at most %{x:.6g}<br>"
            "trial %{customdata[0]}%{customdata[1]}<extra></extra>"
        ),
    )
    figure.update_xaxes(title_text=short(data.x_title, 60))
    return figure.update_yaxes(
        title_text="Share of complete trials", tickformat=".0%", range=(0, 1.03)
    )


def draw_contour(data: PairsData, hover: Callable[[int], str]) -> go.Figure:
    """Draw the objective over pairs of parameters, estimated between the trials."""
    return _draw_pairs(data, hover, "Contour", contour=True)


def draw_rank(data: PairsData, hover: Callable[[int], str]) -> go.Figure:
    """Draw the trials over pairs of parameters, coloured by their rank."""
    return _draw_pairs(data, hover, "Rank", contour=False)


def _draw_pairs(
    data: PairsData, hover: Callable[[int], str], title: str, *, contour: bool
) -> go.Figure:
    if not data.panels or not data.trials:
        return show_message(new_figure(title), _TOO_FEW)
    num_columns = min(3, len(data.panels))
    num_rows = -(-len(data.panels) // num_columns)
    figure = make_subplots(
        num_rows, num_columns, horizontal_spacing=0.11, vertical_spacing=0.3 / num_rows
    )
    figure.update_layout(
        template=TEMPLATE,
        title_text=title,
        height=130 + 270 * num_rows,
        showlegend=False,
        coloraxis=_colours(data, contour),
    )
    for index, panel in enumerate(data.panels):
        place = {"row": index // num_columns + 1, "col": index % num_columns + 1}
        if contour and panel.grid:
            steps = [step / (len(panel.grid) - 1) for step in range(len(panel.grid))]
            figure.add_contour(
                x=steps,
                y=steps,
                z=panel.grid,
                coloraxis="coloraxis",
                hoverinfo="skip",
                line={"width": 0.5},
                **place,
            )
        _add_points(figure, data, panel, hover, place, contour=contour)
        for axis, update in (
            (panel.x_axis, figure.update_xaxes),
            (panel.y_axis, figure.update_yaxes),
        ):
            update(
                title_text=short(axis.name, 30),
                tickvals=[place for place, _ in axis.ticks],
                ticktext=[short(text, 14) for _, text in axis.ticks],
                range=(-0.05, 1.05),
                row=place["row"],
                col=place["col"],
            )
    return figure


def _add_points(
    figure: go.Figure,
    data: PairsData,
    panel: PairPanel,
    hover: Callable[[int], str],
    place: dict[str, int],
    *,
    contour: bool,
) -> None:
    trials = [data.trials[row] for row in panel.rows]
    looks: dict[str, Any] = {"size": 5, "color": INK, "line": {"color": "white", "width": 1}}
    if not contour:
        looks = {
            "size": 8,
            "color": [data.ranks[row] for row in panel.rows],
            "coloraxis": "coloraxis",
        }
    texts = [
        [trial, data.values[row], hover(trial)]
        for trial, row in zip(trials, panel.rows, strict=True)
    ]
    template = "trial %{customdata[0]}: %{customdata[1]:.6g}%{customdata[2]}<extra></extra>"
    figure.add_scatter(
        x=panel.x,
        y=panel.y,
        mode="markers",
        marker=looks,
        meta=TRIALS,
        customdata=texts,
        hovertemplate=template,
        **place,
    )
    best = [at for at, trial in enumerate(trials) if trial == data.best_trial]
    figure.add_scatter(
        x=[panel.x[at] for at in best],
        y=[panel.y[at] for at in best],
        mode="markers",
        meta=TRIALS,
        marker={**RINGED, "size": 13},
        customdata=[texts[at] for at in best],
        hovertemplate=template,
        **place,
    )


def _colours(data: PairsData, contour: bool) -> dict[str, Any]:
    bar: dict[str, Any] = {
        "thickness": 12,
        "outlinewidth": 0,
        "tickfont": {"size": 12, "color": MUTED},
    }
    if contour:
        bar["title"] = {"text": short(data.metric, 22), "side": "right"}
        return {"colorscale": colour_scale(data.goal), "colorbar": bar}
    bar |= {"tickvals": [0, 1], "ticktext": ["best", "worst"]}
    return {"colorscale": colour_scale("minimize"), "cmin": 0, "cmax": 1, "colorbar": bar}


def draw_schedule(data: ScheduleData, hover: Callable[[int], str]) -> go.Figure:
    """Draw one panel per parameter: all parts of the trainings, and the best ones on top."""
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
        kind = "log" if panel.is_log else "linear"
        if any(isinstance(piece.value, str) for piece in panel.others):
            kind = "category"
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
        before = piece.value
        if piece.before is not None:
            before = piece.before
        x += [piece.begin, piece.begin, piece.end, None]
        y += [before, piece.value, piece.value, None]
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

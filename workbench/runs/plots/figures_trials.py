"""Figures of trials as wholes: parallel coordinates, slices, importance, Pareto front, timeline.

Split from `figures`, which lists them. The same rules apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from workbench.foundation.formatting import (
    counted_noun,
    format_count,
    format_number,
    format_percent,
)
from workbench.runs.plots.colouring import bar_of, colours_of
from workbench.runs.plots.parameter_axes import ParameterAxis
from workbench.runs.plots.prepare_search import ImportanceData
from workbench.runs.plots.prepare_trials import (
    ParallelData,
    ParallelLine,
    ParetoData,
    SliceData,
    SlicePanel,
    TimelineData,
)
from workbench.runs.plots.theme import (
    ABSENT,
    BASE,
    BEST,
    BLUE,
    CHOSEN,
    CROSSED,
    FAINT,
    FILLED,
    GRID,
    HOLLOW,
    INK,
    MUTED,
    RINGED,
    STATE_COLOURS,
    TEMPLATE,
    TRIALS,
    add_note,
    colour_scale,
    joined,
    new_figure,
    plain,
    short,
    show_message,
    whole_ticks,
)
from workbench.store.history.run_clock import NAME as RUN_TIME

_NUM_SHADES = 10


def draw_parallel(data: ParallelData, hover: Callable[[int], str]) -> go.Figure:
    """Draw parallel coordinates as plain lines, which print and need no WebGL."""
    figure = new_figure("Parallel coordinates")
    chosen = [line for line in data.lines if data.chosen is None or line.trial in data.chosen]
    with_result = [line for line in chosen if line.value is not None]
    if not any(line.value is not None for line in data.lines) or len(data.axes) < 2:
        return show_message(
            figure, "Nothing to compare: no complete trial, or no parameter that varies."
        )
    colours = _colours_of_lines(data)
    shades: dict[int, list[ParallelLine]] = {}
    for line in with_result:
        shades.setdefault(_shade_of(line, data), []).append(line)
    others = [
        line for line in data.lines if data.chosen is not None and line.trial not in data.chosen
    ]
    _add_parallel_lines(figure, others, hover, colour=GRID, width=0.9, name="not chosen")
    unfinished = [line for line in chosen if line.value is None]
    _add_parallel_lines(figure, unfinished, hover, colour="#c9d0d6", width=0.9, name="pruned")
    for shade in sorted(shades, reverse=data.goal == "minimize"):
        colour = FAINT
        if shade >= 0:
            colour = colours[shade]
        _add_parallel_lines(figure, shades[shade], hover, colour=colour, width=1.6, name="complete")
    best = [line for line in with_result if line.trial == data.best_trial]
    name = f"best {data.metric}: trial {data.best_trial}"
    _add_parallel_lines(figure, best, hover, colour=BEST, width=3.2, name=name, legend=True)
    shapes, labels = [], []
    for index, axis in enumerate(data.axes):
        line = {"color": MUTED, "width": 1}
        shapes.append(
            {"type": "line", "x0": index, "x1": index, "y0": 0, "y1": 1, "line": line}
            | {"layer": "below"}
        )
        ticks = axis.ticks
        if axis.conditional:
            ticks = [*ticks, (ABSENT, "not set")]
        for place, text in ticks:
            labels.append(_label(short(text, 14), index, place, anchor="right", shift=-5))
        height = 1.06
        if index % 2 == 1 and len(data.axes) >= 6:
            height = 1.13  # names of many axes would overlap in one row
        title = f"<b>{short(axis.name, 20)}</b>"
        labels.append(_label(title, index, height, anchor="center", shift=0, colour=INK))
    # One by one, each would be checked again with every later one.
    figure.update_layout(shapes=shapes, annotations=labels)
    marker = {"color": [0], **_bar_of_lines(data)}
    figure.add_scatter(
        x=[None], y=[None], mode="markers", marker=marker, showlegend=False, hoverinfo="skip"
    )
    # Half a place beside the outer axes, for their names.
    figure.update_xaxes(visible=False, range=(-0.5, len(data.axes) - 0.5))
    lowest = 0.0
    if any(axis.conditional for axis in data.axes):
        lowest = ABSENT
    figure.update_yaxes(visible=False, range=(lowest - 0.06, 1.18))
    figure.update_layout(
        margin_b=12, showlegend=True, meta={"axes": [_brushed(axis) for axis in data.axes]}
    )
    return figure


def _colours_of_lines(data: ParallelData) -> list[str]:
    if data.colour_axis is not None:
        return colours_of(data.axes[data.colour_axis], _NUM_SHADES)
    places = [shade / (_NUM_SHADES - 1) for shade in range(_NUM_SHADES)]
    return [str(colour) for colour in sample_colorscale(colour_scale(data.goal), places)]


def _shade_of(line: ParallelLine, data: ParallelData) -> int:
    """Return which of the colours a line has. Negative where the parameter is not set."""
    if data.colour_axis is not None:
        place = line.positions[data.colour_axis]
        levels = data.axes[data.colour_axis].levels
        if place is None:
            return -1
        if levels:
            return min(range(len(levels)), key=lambda level: abs(levels[level][0] - place))
        return round((_NUM_SHADES - 1) * place)
    low, high = data.colour_range
    share = 1.0
    if line.value is not None and high > low:
        share = (line.value - low) / (high - low)
    return round((_NUM_SHADES - 1) * min(max(share, 0.0), 1.0))


def _bar_of_lines(data: ParallelData) -> dict[str, Any]:
    if data.colour_axis is not None:
        return bar_of(data.axes[data.colour_axis])
    low, high = data.colour_range
    colour_bar = {
        "title": {
            "text": short(data.metric, 22),
            "side": "right",
            "font": {"size": 12, "color": MUTED},
        },
        "tickfont": {"size": 12, "color": MUTED},
        "exponentformat": "e",
        "thickness": 12,
        "outlinewidth": 0,
    }
    return {
        "cmin": low,
        "cmax": high,
        "colorscale": colour_scale(data.goal),
        "colorbar": colour_bar,
    }


def _brushed(axis: ParameterAxis) -> dict[str, Any]:
    """Return what a front end must know of an axis to select values on it."""
    choices = None
    if axis.scale == "category":
        choices = [text for _, text in axis.ticks]
    return {
        "name": axis.name,
        "is_log": axis.scale == "log",
        "low": axis.low,
        "high": axis.high,
        "is_whole": axis.is_whole,
        "choices": choices,
    }


def _add_parallel_lines(
    figure: go.Figure,
    lines: Sequence[ParallelLine],
    hover: Callable[[int], str],
    *,
    colour: str,
    width: float,
    name: str,
    legend: bool = False,
) -> None:
    if not lines:
        return
    rows = [
        (*(ABSENT if place is None else place for place in line.positions[:-1]), line.positions[-1])
        for line in lines
    ]
    size = len(rows[0])
    texts = []
    for line in lines:
        text = f"trial {line.trial}"
        if line.value is not None:
            text += f": {format_number(line.value)}"
        texts.append(text + hover(line.trial))
    figure.add_scatter(
        x=joined(tuple(float(index) for index in range(size)) for _ in rows),
        y=joined(rows),
        text=[text for text in texts for _ in range(size + 1)],
        customdata=[line.trial for line in lines for _ in range(size + 1)],
        meta=TRIALS,
        mode="lines",
        name=name,
        showlegend=legend,
        line={"color": colour, "width": width},
        hovertemplate="%{text}<extra></extra>",
    )


def draw_slice(data: SliceData, hover: Callable[[int], str]) -> go.Figure:
    """Draw one panel per parameter: complete trials filled, pruned ones hollow, the best ringed."""
    if not data.panels:
        return show_message(new_figure("Slices"), "No parameter varies among the finished trials.")
    num_columns = min(3, len(data.panels))
    num_rows = -(-len(data.panels) // num_columns)
    figure = make_subplots(
        num_rows,
        num_columns,
        shared_yaxes=True,
        horizontal_spacing=0.035,
        vertical_spacing=0.28 / num_rows,
    )
    figure.update_layout(template=TEMPLATE, title_text="Slices", height=110 + 250 * num_rows)
    for index, panel in enumerate(data.panels):
        place = {"row": index // num_columns + 1, "col": index % num_columns + 1}
        _add_slice_points(figure, data, panel, hover, place, first=index == 0)
        axis: dict[str, Any] = {
            "title_text": short(panel.name, 40),
            "type": panel.scale,
            "nticks": 6,
        }
        if panel.scale == "category":
            axis |= {
                "categoryorder": "array",
                "categoryarray": [short(text, 24) for text in panel.categories],
            }
        elif panel.scale == "log":
            axis |= {"dtick": panel.tick_every, "exponentformat": "e"}
        elif panel.tick_every:
            axis |= {"dtick": panel.tick_every}
        if panel.x_range is not None:
            low, high = panel.x_range
            if panel.scale == "log":
                low, high = map(math.log10, panel.x_range)
            axis |= {"range": (low - 0.05 * (high - low), high + 0.05 * (high - low))}
        figure.update_xaxes(axis, row=place["row"], col=place["col"])
    figure.update_yaxes(title_text=short(data.y_title, 60), col=1)
    figure.update_yaxes(range=data.y_range)
    if notes := _notes_of_slice(data):
        add_note(figure, ". ".join(notes))
    return figure


def _notes_of_slice(data: SliceData) -> list[str]:
    notes = []
    if data.num_left_out:
        num_shown = len({trial for panel in data.panels for trial in panel.trials})
        num_trials = num_shown + data.num_left_out
        notes.append(f"{num_shown:,} of {format_count(num_trials, 'trial')}")
    if data.y_range is not None and data.num_cut:
        low, high = data.y_range
        is_below = any(value < low for panel in data.panels for value in panel.y)
        edge = f"above {format_number(high)}"
        if is_below:
            edge = f"below {format_number(low)}"
        is_not = counted_noun(data.num_cut, "is not", "are not")
        notes.append(f"{format_count(data.num_cut, 'trial')} {edge} {is_not} shown")
    return notes


def _add_slice_points(
    figure: go.Figure,
    data: SliceData,
    panel: SlicePanel,
    hover: Callable[[int], str],
    place: dict[str, int],
    *,
    first: bool,
) -> None:
    best = f"best {data.metric}: trial {data.best_trial}"
    looks: tuple[tuple[str, Callable[[int], bool], dict[str, Any]], ...] = (
        ("pruned, at its last report", lambda row: panel.states[row] == "pruned", HOLLOW),
        ("complete", lambda row: panel.states[row] == "complete", FILLED),
        (best, lambda row: panel.trials[row] == data.best_trial, RINGED),
    )
    x = [short(value, 24) if isinstance(value, str) else value for value in panel.x]
    crowd = {}
    if len(x) > 300:
        crowd = {"size": 4, "opacity": 0.45}
    for name, belongs, marker in looks:
        if marker is not RINGED:
            marker = {**marker, **crowd}
        rows = [row for row in range(len(panel.trials)) if belongs(row)]
        figure.add_scatter(
            x=[x[row] for row in rows],
            y=[panel.y[row] for row in rows],
            customdata=[[panel.trials[row], hover(panel.trials[row])] for row in rows],
            meta=TRIALS,
            mode="markers",
            name=name,
            legendgroup=name,
            showlegend=first,
            marker=marker,
            hovertemplate="trial %{customdata[0]}: %{y:.6g}%{customdata[1]}<extra></extra>",
            **place,
        )


def draw_importance(data: ImportanceData, metric: str) -> go.Figure:
    """Draw one bar with its interval per parameter, or nothing for those without an effect."""
    figure = new_figure("Parameter importance", ". ".join(data.notes(lambda name: short(name, 30))))
    if not data.names:
        text = "Too few trials."
        if data.by_chance:
            text = "No parameter has an effect of 1 % or more."
        return show_message(figure, text)
    bars = list(zip(data.names, data.shares, data.low, data.high, strict=True))[::-1]
    figure.add_bar(
        x=[share for _, share, _, _ in bars],
        y=[short(name, 30) for name, _, _, _ in bars],
        orientation="h",
        marker={"color": BLUE},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [high - share for _, share, _, high in bars],
            "arrayminus": [share - low for _, share, low, _ in bars],
            "color": INK,
            "thickness": 1.4,
            "width": 4,
        },
        customdata=[
            f"{format_percent(share)} ({format_percent(low)} to {format_percent(high)})"
            for _, share, low, high in bars
        ],
        width=0.62,
        hovertemplate="%{y}: %{customdata}<extra>90 % interval</extra>",
    )
    for name, share, low, high in bars:
        text = f" {format_percent(share)} ({format_percent(low)} to {format_percent(high)})"
        figure.add_annotation(
            x=high,
            y=short(name, 30),
            text=text,
            showarrow=False,
            xanchor="left",
            font={"color": MUTED},
        )
    figure.update_xaxes(
        title_text=f"Share of the variance of {short(metric, 40)}, with its 90 % interval",
        tickformat=".0%",
        range=(0, min(1.0, 1.02 * max(*data.high, 0.01))),
        domain=(0, 0.74),  # the numbers are to the right of it
    )
    figure.update_yaxes(showgrid=False, ticks="", tickfont={"color": INK, "size": 13})
    figure.update_layout(height=150 + 34 * len(data.names), showlegend=False)
    return figure


def draw_pareto(data: ParetoData, hover: Callable[[int], str]) -> go.Figure:
    """Draw the front as a step line and the trials behind it, one panel per pair of objectives."""
    if not (data.front or data.infeasible):
        return show_message(
            new_figure("Pareto front"), "No trial has finished with all objectives."
        )
    figure = make_subplots(1, len(data.pairs), horizontal_spacing=0.3 / (len(data.pairs) + 1))
    figure.update_layout(template=TEMPLATE, title_text="Pareto front")
    for column, (first, second) in enumerate(data.pairs, start=1):
        line = "markers"
        if len(data.titles) == 2:
            line = "lines+markers"
        values_of_point = "".join(
            f"<br>{plain(data.metrics[index])}: %{{{place}:.6g}}"
            for index, place in ((first, "x"), (second, "y"))
        )
        for name, points, mode, marker in (
            ("beaten", data.beaten, "markers", HOLLOW),
            ("violates a constraint", data.infeasible, "markers", CROSSED),
            ("Pareto front", data.front, line, {"color": BEST, "size": 10}),
            ("chosen by hand", data.chosen, "markers", CHOSEN),
        ):
            if points:
                figure.add_scatter(
                    x=[values[first] for _, values in points],
                    y=[values[second] for _, values in points],
                    customdata=[[trial, hover(trial)] for trial, _ in points],
                    meta=TRIALS,
                    mode=mode,
                    name=name,
                    legendgroup=name,
                    showlegend=column == 1,
                    marker=marker,
                    line={"color": BEST, "width": 1.4, "dash": "dot"},
                    hovertemplate=(
                        f"trial %{{customdata[0]}}{values_of_point}%{{customdata[1]}}"
                        "<extra></extra>"
                    ),
                    row=1,
                    col=column,
                )
        if data.base is not None:
            figure.add_scatter(
                x=[data.base[first]],
                y=[data.base[second]],
                mode="markers",
                name="base",
                marker=BASE,
                legendgroup="base",
                showlegend=column == 1,
                row=1,
                col=column,
                hovertemplate=f"the base{values_of_point}<extra></extra>",
            )
        figure.update_xaxes(title_text=short(data.titles[first], 60), row=1, col=column)
        figure.update_yaxes(title_text=short(data.titles[second], 60), row=1, col=column)
    return figure


def draw_timeline(data: TimelineData, hover: Callable[[int], str]) -> go.Figure:
    """Draw one bar per trial from its start to its end, coloured by its final state."""
    figure = new_figure("Timeline of trials")
    if not data.bars:
        return show_message(figure, "No trial has started.")
    for state, colour in STATE_COLOURS.items():
        bars = [bar for bar in data.bars if bar.state == state]
        if bars:
            figure.add_bar(
                x=[max(bar.end - bar.start, 0.0) for bar in bars],
                base=[bar.start for bar in bars],
                y=[bar.trial for bar in bars],
                customdata=[
                    [
                        bar.trial,
                        bar.reason or bar.state,
                        bar.attempts,
                        bar.end - bar.start,
                        hover(bar.trial),
                    ]
                    for bar in bars
                ],
                meta=TRIALS,
                orientation="h",
                name=state,
                marker={"color": colour, "line": {"width": 0}},
                width=max(0.8, len(data.bars) / 150),
                hovertemplate="trial %{y}: %{customdata[1]}<br>%{customdata[3]:.3g} "
                + data.unit
                + ", attempts: %{customdata[2]}%{customdata[4]}<extra></extra>",
            )
    figure.update_xaxes(title_text=f"{RUN_TIME} ({data.unit})", rangemode="tozero")
    ticks = whole_ticks(bar.trial for bar in data.bars)
    figure.update_yaxes(ticks, title_text="Trial", autorange="reversed", showgrid=False)
    figure.update_layout(barmode="overlay", height=min(max(180 + 9 * len(data.bars), 260), 560))
    if data.num_left_out:
        num_trials = len(data.bars) + data.num_left_out
        add_note(figure, f"{len(data.bars):,} of {format_count(num_trials, 'trial')}")
    return figure


def _label(
    text: str, x: float, y: float, *, anchor: str, shift: float, colour: str = MUTED
) -> dict[str, Any]:
    return {
        "text": text,
        "x": x,
        "y": y,
        "xanchor": anchor,
        "xshift": shift,
        "yanchor": "middle",
        "showarrow": False,
        "font": {"size": 12, "color": colour},
        "bgcolor": "rgba(255,255,255,0.75)",
        "borderpad": 1,
    }

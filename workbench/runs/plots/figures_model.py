"""Figures of the model that an automatic run chose: what it does on the held-out test samples.

`figures` lists them, and the same rules apply. The run itself measured and stored what is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from workbench.foundation.formatting import format_count, format_number
from workbench.runs.plots.prepare import analysis_of
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.theme import (
    BLUE,
    COLOURS,
    FILLED,
    INK,
    MUTED,
    new_figure,
    plain,
    short,
    show_message,
)

NUM_COLUMNS = 30
_LONGEST_LABEL = 24
_ABSENT = "This run has not tested a model that has one."
# Translucent, so that they suit light and dark pages.
_SHADES = [
    [0.0, "rgba(0,114,178,0.6)"],
    [0.5, "rgba(0,114,178,0)"],
    [0.5, "rgba(213,94,0,0)"],
    [1.0, "rgba(213,94,0,0.7)"],
]
_PER_ROW = 3
"""Columns of a table whose partial dependence is drawn next to each other."""
_WORDS = {"mae": "the mean error"}
_IN_UNIT = ("mae", "rmse", "median_absolute_error", "pinball")
"""Scores in the unit of the target."""
_MOST_WITH_TEXT = 12
"""With more classes, a cell is too small for a count and a share."""


def confusion(run: RunData) -> go.Figure:
    """Draw how often each class was predicted as each class."""
    figure = new_figure("Confusion matrix", "Test samples. Blue is right, orange is wrong.")
    confusion = analysis_of(run.history).get("confusion")
    if not confusion:
        return show_message(figure, _ABSENT)
    labels = [short(label, _LONGEST_LABEL) for label in confusion["labels"]]
    counts = confusion["counts"]
    shares = [[count / (sum(row) or 1) for count in row] for row in counts]
    # Right ones are below 0 and mistakes above, for a colour of each. Shares of mistakes are small,
    # and their roots can be seen.
    signed = [
        [-share if true == guess else share**0.5 for guess, share in enumerate(row)]
        for true, row in enumerate(shares)
    ]
    texts = [
        [
            f"{format_number(count)} ({share:.0%})" if count else "0"
            for count, share in zip(*rows, strict=True)
        ]
        for rows in zip(counts, shares, strict=True)
    ]
    places = list(range(len(labels)))
    figure.add_heatmap(
        x=places,
        y=places,
        z=signed,
        text=texts,
        customdata=[[[true, guess] for guess in labels] for true in labels],
        textfont={"color": INK},
        colorscale=_SHADES,
        zmin=-1.0,
        zmax=1.0,
        xgap=1,
        ygap=1,
        showscale=False,
        texttemplate="%{text}" if len(labels) <= _MOST_WITH_TEXT else None,
        hovertemplate=(
            "true %{customdata[0]}<br>predicted %{customdata[1]}<br>"
            "%{text} of the class<extra></extra>"
        ),
    )
    ticks = {"tickvals": places, "ticktext": labels, "showgrid": False, "zeroline": False}
    figure.update_xaxes(title_text="Predicted", **ticks)
    figure.update_yaxes(title_text="True", autorange="reversed", **ticks)
    return figure.update_layout(height=min(900, 200 + 34 * max(4, len(labels))))


def prediction_errors(run: RunData) -> go.Figure:
    """Draw the predicted over the true numbers of test samples."""
    errors = analysis_of(run.history).get("errors")
    if not errors:
        return show_message(new_figure("Prediction errors"), _ABSENT)
    written = _written_unit(errors)
    axis = name = ""
    if errors["unit"]:
        axis = name = f" {plain(errors['unit'])}"
    if written:
        axis = f"{name} ({written})"
    half, most = (f"{format_number(errors[part])} {written}".rstrip() for part in ("median", "p90"))
    figure = new_figure(
        "Prediction errors", f"Half of the errors are below {half}, nine in ten below {most}."
    )
    true = errors["true"]
    predicted = errors["predicted"]
    ends = [min(*true, *predicted), max(*true, *predicted)]
    figure.add_scatter(
        x=ends,
        y=ends,
        mode="lines",
        name="right",
        hoverinfo="skip",
        line={"color": INK, "width": 1, "dash": "dot"},
    )
    figure.add_scatter(
        x=true,
        y=predicted,
        mode="markers",
        name="test sample",
        marker=FILLED | {"opacity": 0.5},
        customdata=[guess - value for value, guess in zip(true, predicted, strict=True)],
        hovertemplate=(
            "true %{x:.5g}<br>predicted %{y:.5g}<br>error %{customdata:+.3g}<extra></extra>"
        ),
    )
    figure.update_xaxes(title_text=f"True{axis}")
    return figure.update_yaxes(title_text=f"Predicted{axis}")


def column_importance(run: RunData) -> go.Figure:
    """Draw how much worse the model is without each column."""
    importance = analysis_of(run.history).get("importance")
    if not importance:
        return show_message(new_figure("Importance of columns"), _ABSENT)
    columns = importance["columns"][:NUM_COLUMNS][::-1]
    score = importance["score"]
    is_error = bool(importance.get("is_error"))
    left_out = len(importance["columns"]) - len(columns) + importance["num_left_out"]
    more = ""
    if left_out:
        more = f" {left_out} more columns are not shown."
    figure = new_figure(
        "Importance of columns", f"Shuffled on the test samples, with 90 % intervals.{more}"
    )
    means = [row["mean"] for row in columns]
    figure.add_bar(
        x=means,
        y=[short(row["column"], 40) for row in columns],
        orientation="h",
        marker={"color": [BLUE if row["low"] > 0.0 else MUTED for row in columns]},
        error_x={
            "array": [row["high"] - row["mean"] for row in columns],
            "color": INK,
            "thickness": 1,
        },
        hovertemplate="%{y}: %{x:.4g}<extra></extra>",
    )
    change = f"{'Increase' if is_error else 'Loss'} of {_WORDS.get(score, score)} without it"
    tick_format = ".1%" if score == "accuracy" else None
    if score in _IN_UNIT and (
        written := _written_unit(analysis_of(run.history).get("errors") or {})
    ):
        change += f" ({written})"
    figure.update_xaxes(title_text=change, tickformat=tick_format)
    figure.update_yaxes(automargin=True)
    return figure.update_layout(height=140 + 24 * max(3, len(columns)), bargap=0.35)


def partial_dependence(run: RunData) -> go.Figure:
    """Draw how the mean prediction changes with the values of the most important columns."""
    analysis = analysis_of(run.history)
    parts = analysis.get("partial_dependence")
    title, subtitle = "Partial dependence", "Mean prediction for the test samples."
    if not parts:
        return show_message(new_figure(title), _ABSENT)
    if "confusion" in analysis:
        subtitle = "Mean probability for the test samples."
    if left_out := len(analysis.get("without_curve") or ()):
        subtitle += f" {format_count(left_out, 'more column')} without a curve."
    figure = new_figure(title, subtitle)
    num_rows = -(-len(parts) // _PER_ROW)
    names = list(parts[0]["means"])
    for number, part in enumerate(parts):
        row, column = divmod(number, _PER_ROW)
        axis = "" if number == 0 else str(number + 1)
        low, height = 1.0 - (row + 1) / num_rows, 1.0 / num_rows
        figure.layout[f"xaxis{axis}"] = {
            "domain": [column / _PER_ROW + 0.04, (column + 1) / _PER_ROW - 0.02],
            "anchor": f"y{axis}",
            "title": {"text": plain(short(part["column"], _LONGEST_LABEL))},
            "type": "linear" if isinstance(part["values"][0], float) else "category",
        }
        figure.layout[f"yaxis{axis}"] = {
            "domain": [low + 0.25 * height, low + 0.97 * height],
            "anchor": f"x{axis}",
        }
        for place, name in enumerate(names):
            figure.add_scatter(
                x=[plain(value) if isinstance(value, str) else value for value in part["values"]],
                y=part["means"][name],
                mode="lines+markers",
                name=plain(short(name, _LONGEST_LABEL)),
                legendgroup=name,
                showlegend=number == 0 and "confusion" in analysis,
                line={"color": COLOURS[place % len(COLOURS)]},
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                hovertemplate="%{x}: %{y:.4g}<extra></extra>",
            )
    return figure.update_layout(height=120 + 240 * num_rows)


def _written_unit(errors: Mapping[str, Any]) -> str:
    """Return the unit that the values of the target are written with, such as CHF.

    "" where there is none.
    """
    return plain(errors.get("written_unit") or "")


MODEL_FIGURES = {
    "confusion": confusion,
    "prediction_errors": prediction_errors,
    "column_importance": column_importance,
    "partial_dependence": partial_dependence,
}
"""The figures by name."""

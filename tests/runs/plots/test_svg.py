"""Figures as SVG: marks lie where their values are, and labels do not touch."""

from __future__ import annotations

import html
import itertools
import math
import random
import re
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import ImageFont

from tests.builders.advice import EXPERIMENT, events
from workbench.foundation.errors import ExperimentError
from workbench.runs.plots.figures import FIGURES
from workbench.runs.plots.figures_advice import ADVICE_FIGURES
from workbench.runs.plots.prepare import CurvesData, Line
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.svg import HoverTexts, curves_svg, figure_svg


def parse(figure: go.Figure, **options) -> ElementTree.Element:
    return ElementTree.fromstring(figure_svg(figure.to_dict(), **options))


def circles(svg: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(mark.get("cx", "")), float(mark.get("cy", ""))) for mark in svg.iter("circle")]


def labels(svg: ElementTree.Element, anchor: str) -> list[tuple[float, float, str]]:
    return [
        (float(text.get("x", "")), float(text.get("y", "")), text.text or "")
        for text in svg.iter("text")
        if text.get("text-anchor") == anchor and "transform" not in text.attrib
    ]


def number(label: str) -> float:
    return float(label.replace(",", ""))


@pytest.mark.parametrize("kind", ["linear", "log"])
def test_a_point_lies_where_the_labels_of_the_axes_say(kind):
    draw = random.Random(3)
    x = [10 ** draw.uniform(-3, 2) for _ in range(30)]
    y = [draw.uniform(-4, 9) for _ in range(30)]
    figure = go.Figure(go.Scatter(x=x, y=y, mode="markers")).update_xaxes(type=kind)
    svg = parse(figure)
    scale = math.log10 if kind == "log" else float
    across = [(at, scale(number(text))) for at, _, text in labels(svg, "middle")]
    up = [(at - 4, number(text)) for _, at, text in labels(svg, "end")]
    x_slope, x_start = np.polyfit([value for _, value in across], [at for at, _ in across], 1)
    y_slope, y_start = np.polyfit([value for _, value in up], [at for at, _ in up], 1)
    for (drawn_x, drawn_y), value_x, value_y in zip(circles(svg), x, y, strict=True):
        assert drawn_x == pytest.approx(x_start + x_slope * scale(value_x), abs=0.3)
        assert drawn_y == pytest.approx(y_start + y_slope * value_y, abs=0.3)


def test_points_outside_the_range_are_not_drawn_and_lines_are_cut_off():
    scatter = go.Scatter(x=[0, 1, 2], y=[0.5, 9.0, 0.6], mode="lines+markers")
    svg = parse(go.Figure(scatter).update_yaxes(range=(0, 1)))
    assert len(circles(svg)) == 2
    (inner,) = svg.findall("svg")
    assert inner.get("viewBox", "").split() == [
        inner.get(name) for name in ("x", "y", "width", "height")
    ], "a nested element cuts off what is outside it"
    assert len(inner.findall("g/path")) == 1


def test_gaps_separate_lines_and_thinning_keeps_extremes():
    x = np.arange(30_001, dtype=float)
    y = np.sin(x / 700)
    y[20_000] = np.nan
    y[12_345] = 50.0
    scatter = go.Scatter(x=x, y=y, mode="lines", hovertemplate="%{x} %{y}<extra></extra>")
    svg = parse(go.Figure(scatter), hover=HoverTexts())
    first, second = svg.findall("svg/g/path")
    values = first.get("data-v", "").split()
    assert len(values) // 2 == len(re.findall(r"[ML]", first.get("d", ""))) <= 2000
    assert values[1::2].count("50") == 1
    assert second.get("data-v", "").split()[0] == "20001"


def test_texts_of_marks_are_written_once_and_as_text():
    figure = go.Figure()
    for _ in range(2):
        figure.add_scatter(
            x=[1.0, 2.0],
            y=[0.123456789, 3.0],
            mode="markers",
            customdata=[[7, "<br>lr: 0.1<br>kind: &lt;i&gt;"], [8, "<br>lr: 0.2"]],
            hovertemplate="trial %{customdata[0]}: %{y:.4g}%{customdata[1]}<extra></extra>",
        )
    hover = HoverTexts()
    marks = list(parse(figure, hover=hover).iter("circle"))
    assert [mark.get("data-h") for mark in marks] == ["trial 7: 0.1235", "trial 8: 3"] * 2
    assert [mark.get("data-c") for mark in marks] == ["0", "1"] * 2
    assert hover.all() == ["lr: 0.1\nkind: <i>", "lr: 0.2"]


def test_bars_reach_from_their_base_to_their_end():
    bars = go.Bar(x=[2.0, 1.0], base=[1.0, 4.0], y=[0, 1], orientation="h", width=0.5)
    svg = parse(go.Figure(bars).update_xaxes(range=(0, 10)))
    first, second = svg.findall("svg/g/rect")
    widths = [float(bar.get("width", "")) for bar in (first, second)]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    ticks = {text: at for at, _, text in labels(svg, "middle")}
    assert float(second.get("x", "")) == pytest.approx(ticks["4"], abs=0.2)


def test_what_it_cannot_draw_is_an_error():
    with pytest.raises(ExperimentError, match="no picture of pie"):
        figure_svg({"data": [{"type": "pie"}], "layout": {}})
    with pytest.raises(ExperimentError, match="no picture of a hexagon"):
        figure_svg(
            {
                "data": [{"mode": "markers", "x": [1], "y": [1], "marker": {"symbol": "hexagon"}}],
                "layout": {},
            }
        )


@pytest.mark.parametrize("longest", [3, 40])
@pytest.mark.parametrize("kind", ["linear", "log", "category"])
def test_labels_of_an_axis_do_not_touch(kind, longest):
    """Measured with a real font, and not with the widths that the drawing assumes."""
    draw = random.Random(longest)
    x = [10 ** draw.uniform(2, 7.4) for _ in range(50)]
    if kind == "category":
        x = [f"{'W' * longest} {index}" for index in range(9)]
    figure = go.Figure(go.Scatter(x=x, y=list(range(len(x))), mode="markers"))
    svg = parse(figure.update_xaxes(type=kind), width=400)
    font = ImageFont.load_default(12)
    spans = sorted(
        (at - font.getlength(text) / 2, at + font.getlength(text) / 2)
        for at, _, text in labels(svg, "middle")
    )
    assert len(spans) >= 2
    assert all(one[1] < other[0] for one, other in itertools.pairwise(spans))


@pytest.mark.parametrize("name", ADVICE_FIGURES)
def test_every_figure_of_advice_can_be_drawn(name):
    run = RunData.of(EXPERIMENT, events())
    svg = parse(FIGURES[name](run), hover=HoverTexts())
    marks = [mark for part in svg.findall("svg") for mark in part.iter() if mark.tag != "g"]
    assert len(marks) > 2
    assert "nan" not in ElementTree.tostring(svg, encoding="unicode")


def test_a_figure_without_data_says_so():
    svg = parse(FIGURES["memory"](RunData.of(EXPERIMENT, [])))
    assert [text.text for text in svg.iter("text")][-1] == ADVICE_FIGURES["memory"].prepare(
        RunData.of(EXPERIMENT, [])
    ).empty


def curve(trial: int, state: str, y: list[float]) -> Line:
    return Line(trial, state, tuple(float(x) for x in range(len(y))), tuple(y))  # type: ignore[arg-type]


def test_a_still_picture_is_an_image_by_itself_with_the_best_on_top():
    data = CurvesData(
        metric="loss",
        x_title="Epoch",
        y_title="loss <of> it",
        lines=(curve(0, "complete", [3, 2, 1]), curve(1, "complete", [2])),
        goal="minimize",
        best_trial=0,
        best_x=(0.0, 2.0),
        best_y=(2.0, 1.0),
        target=0.5,
        num_trials=9,
    )
    picture = curves_svg(data)
    svg = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    assert svg.tag == f"{space}svg"
    assert svg.findtext(f"{space}title") == "loss <of> it: curves of 2 of 9 trials"
    widths = [float(part.get("stroke-width", "0")) for part in svg.findall(f"{space}svg/{space}g")]
    assert max(widths) == 2.0
    assert html.escape("loss <of> it") in picture
    assert len(picture) < 4000
    assert curves_svg(CurvesData("loss", "Epoch", "loss", (), "minimize", None)) == ""

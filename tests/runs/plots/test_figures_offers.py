from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.runs.plots.figures_offers import draw_offers, write_offers


def offer(machine: str, cost: float | None, run_s: float | None, **changes: Any) -> dict[str, Any]:
    def estimate(value: float | None) -> dict[str, Any] | None:
        return None if value is None else {"value": value, "low": value / 2, "high": value * 3}

    usual = {
        "provider": "aws",
        "machine": machine,
        "market": "spot",
        "nodes": 2,
        "fits": True,
        "measured": False,
        "recommendable": True,
        "cost_usd": estimate(cost),
        "run_s": estimate(run_s),
    }
    return usual | changes


def points(figure: Any) -> dict[str, tuple[float, float]]:
    return {
        name: (x, y)
        for trace in figure.data
        if trace.hovertext
        for name, x, y in zip(trace.hovertext, trace.x, trace.y, strict=True)
    }


def test_each_machine_whose_time_and_cost_are_known_is_a_point_with_its_intervals() -> None:
    offers = [
        offer("best", 4.0, 7200.0),
        offer("measured", 8.0, 3600.0, measured=True, market="on demand"),
        offer("unpriced", None, 60.0),
        offer("too small", 1.0, 60.0, fits=False),
    ]
    figure = draw_offers(offers, deadline_s=10_000.0, budget_usd=5.0)
    assert points(figure) == {"2 x best": (4.0, 120.0), "2 x measured": (8.0, 60.0)}
    of_spot, of_demand = figure.data[:2]
    assert list(of_spot.error_y.array) == [240.0]
    assert list(of_spot.error_y.arrayminus) == [60.0]
    assert of_spot.marker.color[0] == "white"  # extrapolated
    assert of_demand.marker.color[0] != "white"
    assert {note.text for note in figure.layout.annotations} == {"deadline", "budget"}
    assert figure.data[2].name == "best by cost within the limits"


def test_nothing_is_ringed_that_cannot_be_recommended() -> None:
    assert len(draw_offers([offer("vague", 4.0, 7200.0, recommendable=False)]).data) == 1


def names(figure: Any) -> list[str]:
    return [text for trace in figure.data for text in trace.text or () if text]


def test_what_nothing_beats_in_both_time_and_cost_is_named() -> None:
    offers = [
        offer("cheap", 1.0, 9000.0),
        offer("dear and slow", 4.0, 9000.0),
        offer("middle", 4.0, 3000.0),
        offer("as fast", 9.0, 2990.0),
        offer("fast", 16.0, 1000.0),
    ]
    assert names(draw_offers(offers)) == ["2 x cheap", "2 x middle", "2 x fast"]


def test_names_that_would_lie_on_each_other_are_left_out() -> None:
    offers = [offer(f"m{number}", 1.0 + number / 100, 100.0 - 5 * number) for number in range(9)]
    assert len(names(draw_offers(offers))) <= 6
    assert names(draw_offers([offer("a", 1.0, 100.0), offer("b", 1.001, 97.0)])) == ["2 x a"]


def test_names_stay_in_the_picture() -> None:
    (trace, _) = draw_offers([offer("cheap", 1.0, 9000.0), offer("fast", 16.0, 1000.0)]).data
    assert list(trace.textposition) == ["top right", "top left"]


@pytest.mark.parametrize(
    ("deadline_s", "budget_usd", "drawn", "said"),
    [
        (10_000.0, 5.0, {"deadline", "budget"}, "this many workers"),
        (1e6, 5.0, {"budget"}, "this many workers (the deadline (11 d 14 h) lies beyond)"),
        (
            1e6,
            1e4,
            set(),
            "this many workers (the deadline (11 d 14 h) and the budget ($10,000) lie beyond)",
        ),
        (10_000.0, 0.01, {"deadline"}, "this many workers (the budget ($0.01) lies beyond)"),
    ],
)
def test_a_wish_far_from_all_offers_is_said_and_does_not_squeeze_them(
    deadline_s: float, budget_usd: float, drawn: set[str], said: str
) -> None:
    figure = draw_offers([offer("a", 4.0, 7200.0)], deadline_s=deadline_s, budget_usd=budget_usd)
    assert {note.text for note in figure.layout.annotations} == drawn
    assert figure.layout.title.subtitle.text.endswith(said)
    assert figure.layout.xaxis.range[1] - figure.layout.xaxis.range[0] < 2.0  # decades


def test_nothing_known_is_said(tmp_path: Path) -> None:
    figure = draw_offers([offer("unpriced", None, 60.0)])
    assert "both a known time and a known price" in figure.layout.annotations[0].text
    path = tmp_path / "offers.html"
    write_offers(path, [offer("a", 1.0, 60.0)], deadline_s=None, budget_usd=None)
    assert "2 x a" in path.read_text()


@pytest.mark.parametrize("name", ["<b>", "%{x}"])
def test_names_are_text(name: str) -> None:
    assert name not in str(draw_offers([offer(name, 1.0, 60.0)]).data[0].hovertext)

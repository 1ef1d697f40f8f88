"""Machines that could be rented, on one page: what a run would cost on each, and how long it would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from workbench.plots.look import BLUE, GREEN, MUTED, ORANGE, VERMILLION, new_figure, plain, say_empty
from workbench.plots.marks import log_axis, marked, note_level, note_place
from workbench.plots.prepare import time_unit

_COLOURS = {"aws": ORANGE, "gcp": BLUE, "azure": GREEN}
_MOST_NAMES = 5
_SYMBOLS = {"on demand": "circle", "spot": "diamond"}


def draw_offers(
    offers: Sequence[Mapping[str, Any]], *, deadline_s: float | None = None, budget_usd: float | None = None
) -> go.Figure:
    """Draw time over cost, both with their intervals.

    Args:
        offers: What each line of the comparison says, as plain values, the best first.
        deadline_s: When the run should have ended.
        budget_usd: What it may cost.
    """
    known = [each for each in offers if each["run_s"] and each["cost_usd"] and each["fits"] is not False]
    figure = new_figure(
        "What the run would take", "hollow: extrapolated, not measured on this device and so many workers"
    )
    if not known:
        return say_empty(figure, "Of no machine are both the time and the price known.")
    unit, unit_s = time_unit(max(each["run_s"]["value"] for each in known))
    named = [id(each) for each in known[:_MOST_NAMES]]
    for (provider, market), group in _groups(known).items():
        colour = _COLOURS.get(provider, MUTED)
        figure.add_scatter(
            x=[each["cost_usd"]["value"] for each in group],
            y=[each["run_s"]["value"] / unit_s for each in group],
            error_x=_bars(group, "cost_usd", 1.0, colour),
            error_y=_bars(group, "run_s", unit_s, colour),
            text=[_name(each) if id(each) in named else "" for each in group],
            hovertext=[_name(each) for each in group],
            mode="markers+text", textposition="top center", name=plain(f"{provider}, {market}"),
            marker={
                "color": [colour if each["measured"] else "white" for each in group], "size": 9,
                "symbol": _SYMBOLS[market], "line": {"color": colour, "width": 1.8},
            },
            hovertemplate=f"%{{hovertext}}, {market}<br>$%{{x:,.2f}}<br>%{{y:.3g}} {unit}<extra></extra>",
        )  # fmt: skip
    if offers[0] is known[0] and known[0]["recommendable"]:
        figure.add_scatter(
            x=[known[0]["cost_usd"]["value"]], y=[known[0]["run_s"]["value"] / unit_s], mode="markers",
            marker=marked(), name="best by cost within the wishes", hoverinfo="skip",
        )  # fmt: skip
    if deadline_s is not None:
        note_level(figure, deadline_s / unit_s, "deadline", log=True)
    if budget_usd is not None:
        note_place(figure, budget_usd, "budget", VERMILLION, row=0)
    costs, times = (
        [*(each[name][end] for each in known for end in ("low", "high")), *([wish] if wish else [])]
        for name, wish in (("cost_usd", budget_usd), ("run_s", deadline_s))
    )
    figure.update_xaxes(**log_axis(0.8 * min(costs), 1.25 * max(costs)), title_text="cost of the run, USD")
    figure.update_yaxes(
        **log_axis(0.8 * min(times) / unit_s, 1.25 * max(times) / unit_s),
        title_text=f"time of the run ({unit})",
    )
    figure.update_layout(height=560)
    return figure


def write_offers(path: Path, offers: Sequence[Mapping[str, Any]], **wishes: float | None) -> None:
    """Write the figure as a page that needs nothing else; arguments as in `draw_offers`."""
    draw_offers(offers, **wishes).write_html(path, include_plotlyjs=True)


def _name(offer: Mapping[str, Any]) -> str:
    return plain(f"{offer['nodes']} x {offer['machine']}")


def _groups(offers: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in offers:
        groups.setdefault((each["provider"], each["market"]), []).append(each)
    return groups


def _bars(group: Sequence[Mapping[str, Any]], name: str, unit: float, colour: str) -> dict[str, Any]:
    return {
        "type": "data", "symmetric": False, "thickness": 0.8, "width": 0, "color": colour,
        "array": [(each[name]["high"] - each[name]["value"]) / unit for each in group],
        "arrayminus": [(each[name]["value"] - each[name]["low"]) / unit for each in group],
    }  # fmt: skip

"""Machines for rent on one page: the estimated cost and duration of a run on each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from workbench.foundation.formatting import format_duration, format_money
from workbench.runs.plots.marks import log_axis, marked, note_level, note_place
from workbench.runs.plots.prepare import time_unit
from workbench.runs.plots.theme import (
    BLUE,
    GREEN,
    MUTED,
    ORANGE,
    SKY,
    VERMILLION,
    new_figure,
    plain,
    show_message,
)

_COLOURS = {"aws": ORANGE, "gcp": BLUE, "azure": GREEN, "lambda": "#cc79a7", "runpod": SKY}
_MAX_NAMES = 6
_NEAR = 0.12
"""Fraction of an axis within which two labels would overlap."""
_FAR = 3.0
"""A limit this many times beyond all offers is not drawn: it would squeeze them into a corner."""
_CLEARLY = 0.98
_PALE = 0.35
_SYMBOLS = {"on demand": "circle", "spot": "diamond"}


def draw_offers(
    offers: Sequence[Mapping[str, Any]],
    *,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
) -> go.Figure:
    """Draw time over cost, both with their intervals.

    Args:
        offers: The lines of the comparison as plain values, best first.
        deadline_s: When the run should have ended.
        budget_usd: What it may cost.
    """
    known = [
        offer
        for offer in offers
        if offer["run_s"] and offer["cost_usd"] and offer["fits"] is not False
    ]
    title = "Estimated time and cost of the run"
    about = "hollow: extrapolated, not measured on this device with this many workers"
    if not known:
        return show_message(
            new_figure(title, about), "No machine has both a known time and a known price."
        )
    unit, unit_s = time_unit(max(offer["run_s"]["value"] for offer in known))
    times, costs = _ends(known, "run_s"), _ends(known, "cost_usd")
    beyond = []
    if deadline_s is not None and not _is_near(deadline_s, times):
        beyond.append(f"the deadline ({format_duration(deadline_s)})")
        deadline_s = None
    if budget_usd is not None and not _is_near(budget_usd, costs):
        beyond.append(f"the budget ({format_money(budget_usd)})")
        budget_usd = None
    if beyond:
        verb = "lies" if len(beyond) == 1 else "lie"
        about += f" ({' and '.join(beyond)} {verb} beyond)"
    figure = new_figure(title, about)
    names = {id(offer): _name(offer) for offer in _worth_a_name(known, times, costs)}
    middle_usd = math.sqrt(costs[0] * costs[1])
    for (provider, market), group in _groups(known).items():
        figure.add_scatter(
            **_marks(group, _COLOURS.get(provider, MUTED), unit_s),
            text=[names.get(id(offer), "") for offer in group],
            textposition=[
                "top right" if offer["cost_usd"]["value"] < middle_usd else "top left"
                for offer in group
            ],
            name=plain(f"{provider}, {market}"),
            marker_symbol=_SYMBOLS[market],
            hovertemplate=(
                f"%{{hovertext}}, {market}<br>$%{{x:,.2f}}<br>%{{y:.3g}} {unit}<extra></extra>"
            ),
        )
    if offers[0] is known[0] and known[0]["recommendable"]:
        figure.add_scatter(
            x=[known[0]["cost_usd"]["value"]],
            y=[known[0]["run_s"]["value"] / unit_s],
            mode="markers",
            marker=marked(),
            name="best by cost within the limits",
            hoverinfo="skip",
        )
    if deadline_s is not None:
        note_level(figure, deadline_s / unit_s, "deadline", log=True)
    if budget_usd is not None:
        note_place(figure, budget_usd, "budget", VERMILLION, row=0)
    least_usd, most_usd = _with(budget_usd, costs)
    least_s, most_s = _with(deadline_s, times)
    figure.update_xaxes(
        **log_axis(0.8 * least_usd, 1.25 * most_usd), title_text="cost of the run, USD"
    )
    figure.update_yaxes(
        **log_axis(0.8 * least_s / unit_s, 1.25 * most_s / unit_s),
        title_text=f"time of the run ({unit})",
    )
    figure.update_layout(
        height=600,
        margin_r=190,
        margin_t=88,
        legend={"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1.0, "yanchor": "top"},
    )
    return figure


def _ends(offers: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float]:
    """Return the ends of the range that the intervals of a value span."""
    return min(offer[name]["low"] for offer in offers), max(offer[name]["high"] for offer in offers)


def _marks(group: Sequence[Mapping[str, Any]], colour: str, unit_s: float) -> dict[str, Any]:
    """Return the marks of offers with their intervals, hollow where they are extrapolated."""
    return {
        "x": [offer["cost_usd"]["value"] for offer in group],
        "y": [offer["run_s"]["value"] / unit_s for offer in group],
        "error_x": _bars(group, "cost_usd", 1.0, colour),
        "error_y": _bars(group, "run_s", unit_s, colour),
        "hovertext": [_name(offer) for offer in group],
        "mode": "markers+text",
        "marker_color": [colour if offer["measured"] else "white" for offer in group],
        "marker_size": 9,
        "marker_line": {"color": colour, "width": 1.8},
    }


def write_offers(path: Path, offers: Sequence[Mapping[str, Any]], **limits: float | None) -> None:
    """Write the figure as a self-contained page. Arguments as in `draw_offers`."""
    draw_offers(offers, **limits).write_html(path, include_plotlyjs=True)


def _name(offer: Mapping[str, Any]) -> str:
    return plain(f"{offer['nodes']} x {offer['machine']}")


def _is_near(wish: float, ends: tuple[float, float]) -> bool:
    return ends[0] / _FAR < wish < ends[1] * _FAR


def _with(wish: float | None, ends: tuple[float, float]) -> tuple[float, float]:
    if wish is None:
        return ends
    low, high = ends
    return min(low, wish), max(high, wish)


def _worth_a_name(
    offers: Sequence[Mapping[str, Any]], times: tuple[float, float], costs: tuple[float, float]
) -> list[Mapping[str, Any]]:
    """Return the Pareto-optimal offers, spaced widely enough for labels."""
    named: list[Mapping[str, Any]] = []
    fastest_s = math.inf
    for offer in sorted(
        offers, key=lambda offer: (offer["cost_usd"]["value"], offer["run_s"]["value"])
    ):
        if offer["run_s"]["value"] > _CLEARLY * fastest_s:
            continue
        fastest_s = offer["run_s"]["value"]
        if not named or any(
            abs(math.log(offer[name]["value"] / named[-1][name]["value"]))
            > _NEAR * math.log(high / low)
            for name, (low, high) in (("run_s", times), ("cost_usd", costs))
            if high > low
        ):
            named.append(offer)
    return named[:_MAX_NAMES]


def _groups(offers: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for offer in offers:
        groups.setdefault((offer["provider"], offer["market"]), []).append(offer)
    return groups


def _bars(
    group: Sequence[Mapping[str, Any]], name: str, unit: float, colour: str
) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "thickness": 0.8,
        "width": 0,
        "color": _pale(colour),
        "array": [(offer[name]["high"] - offer[name]["value"]) / unit for offer in group],
        "arrayminus": [(offer[name]["value"] - offer[name]["low"]) / unit for offer in group],
    }


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{_PALE})"

"""The exchanges of a stored advice in words.

Seconds per step, and what an approximate one costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.advisor.stored_advice import Interval, finite, mapping, rows
from workbench.foundation.formatting import format_count, format_duration

CLEARLY_FASTER = 0.9
"""Of the step of the exact exchange.

One that takes longer than that is not worth an approximation.
"""


def describe_exchanges(advice: Mapping[str, Any]) -> list[str]:
    """Describe what other exchanges would bring: nothing where no links were measured.

    Args:
        advice: As `AdviceGiven` stores it.

    Returns:
        The exact exchange, then those approximate ones whose step would clearly be faster, the
        fastest first.
    """
    found = [
        (each, step) for each in rows(advice.get("exchanges")) if (step := _step(each)) is not None
    ]
    exact = [item for item in found if item[0].get("is_exact") is True]
    if not exact:
        return []
    usual, usual_s = min(exact, key=lambda item: item[1].value)
    texts = [
        f"{usual.get('exchange')}, exact: {_describe_step(usual, usual_s)} of"
        f" {usual.get('batch_text')}"
    ]
    faster = [
        item
        for item in found
        if item not in exact and item[1].value < CLEARLY_FASTER * usual_s.value
    ]
    for each, step in sorted(faster, key=lambda item: item[1].value):
        gain = usual_s.value / step.value
        texts.append(
            f"{each.get('exchange')}, approximate: {_describe_step(each, step)}; "
            f"pays below {gain:.2f} times the steps: {describe_cost(each, gain)}"
        )
    if not faster:
        texts.append("no approximate exchange would make its steps clearly faster")
    return texts


def describe_cost(offer: Mapping[str, Any], gain: float) -> str:
    """Describe how many steps an exchange needs more, and how sure that is.

    Args:
        offer: A stored offer.
        gain: How many times as many steps it makes in the same time.
    """
    cost = mapping(offer.get("cost"))
    factor, count = Interval.of(cost.get("factor")), finite(cost.get("num_pairs"))
    if factor is None or count is None:
        return "not known, search plan.exchange to race it"
    pairs = format_count(int(count), "pair of trainings", "pairs of trainings")
    verdict = (
        "so it pays"
        if factor.high < gain
        else "so it does not pay"
        if factor.low > gain
        else "which may be chance"
    )
    return (
        f"{factor.value:.2f} of them ({factor.low:.2f} to {factor.high:.2f} in {pairs}), {verdict}"
    )


def _step(offer: Mapping[str, Any]) -> Interval | None:
    found = Interval.of(offer.get("step_time_s"))
    return found if found is not None and found.is_time else None


def _describe_step(offer: Mapping[str, Any], step: Interval) -> str:
    how = "measured" if offer.get("is_measured") is True else "predicted"
    return (
        f"{format_duration(step.value)} a step "
        f"({format_duration(step.low)} to {format_duration(step.high)}, {how})"
    )

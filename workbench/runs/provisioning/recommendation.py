"""Put a comparison of machines into sentences.

What to rent, or why nothing fits and what comes closest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from workbench.foundation.formatting import format_duration, format_money, format_range
from workbench.runs.provisioning.offers import Offer, Requirements

_AS_FAST = 1.05
_AT_ONCE_S = 1e-3
"""A deadline that nothing meets, so that the fastest number of machines of each type is chosen."""


def sentences(
    offers: Sequence[Offer],
    requirements: Requirements,
    *,
    compare: Callable[[Requirements], Sequence[Offer]],
    catalogue: str,
    file: str = "FILE",
) -> Iterator[str]:
    """Yield the result of a comparison, and its assumptions.

    Args:
        offers: The offers, the best first.
        requirements: The requirements of the comparison.
        compare: Compares the same machines for other requirements, to find what comes closest.
        catalogue: The file of the catalogue, for messages about missing prices.
        file: The file of the experiment, for messages about missing measurements.
    """
    if offers and offers[0].is_recommendable:
        yield from _recommend(offers[0], requirements)
    else:
        yield "nothing can be recommended"
        yield from _explain(offers, requirements, compare, file)
    unpriced = [offer for offer in offers if offer.usd_per_hour is None]
    if unpriced:
        example = unpriced[0]
        yield (
            f"{len(unpriced)} of {len(offers)} offers have no price. To add one, copy {catalogue}"
            f" to ours.yaml, insert below type: {example.machine} the line "
            f" {example.market.replace(' ', '_')}: {{usd_per_hour: PRICE, origin: SOURCE, date:"
            " YEAR-MONTH-DAY}  and add --catalogue ours.yaml"
        )
    yield (
        f"assumptions: no early stopping, {format_duration(requirements.start_up_s)} of start-up,"
        " billing by the second. Intervals cover 90 % unless something is extrapolated"
    )


def _recommend(best: Offer, requirements: Requirements) -> Iterator[str]:
    assert best.run_s is not None
    assert best.cost_usd is not None
    yield (
        f"take {best.title}: {_price_of(best)} "
        f"({format_range(best.cost_usd.low, best.cost_usd.high, format_money)}). "
        f"Trials train as {best.plan}, {best.at_once} at once"
    )
    if best.in_time == "perhaps":
        limit = format_duration(requirements.deadline_s or 0.0)
        yield f"it may take up to {format_duration(best.run_s.high)}, and the deadline is {limit}"
    if best.in_budget == "perhaps":
        limit = format_money(requirements.budget_usd or 0.0)
        yield f"it may cost up to {format_money(best.cost_usd.high)}, and the budget is {limit}"
    if not best.measured:
        yield "its step time is extrapolated: measure on one such machine before you rent many"


def _explain(
    offers: Sequence[Offer],
    requirements: Requirements,
    compare: Callable[[Requirements], Sequence[Offer]],
    file: str,
) -> Iterator[str]:
    """Yield why nothing can be recommended, and what comes closest."""
    timed = [offer for offer in offers if offer.fits is not False and offer.run_s is not None]
    known = [offer for offer in timed if not offer.is_vague]
    if not timed:
        if any(offer.fits is None for offer in offers):
            yield (
                "the duration of the run cannot be estimated for any machine (see the notes): run "
                f"`workbench advise {file}` on one of them first"
            )
        else:
            yield (
                "no machine has enough memory for a worker. A smaller model or `plan.recompute`"
                " needs less"
            )
        return
    if not known:
        yield (
            "the measurements say too little about these machines: the upper bounds are over a"
            f" hundred times the lower ones. Run `workbench advise {file}` on one of them first"
        )
        return
    if all(offer.cost_usd is None for offer in known):
        fastest = min(known, key=attrgetter("duration_s"))
        yield (
            "no machine whose time can be estimated has a price. The fastest is "
            f"{fastest.title}: {_price_of(fastest)}"
        )
        return
    yield from _closest(requirements, compare)


def _closest(
    requirements: Requirements, compare: Callable[[Requirements], Sequence[Offer]]
) -> Iterator[str]:
    soon = _priced(compare(replace(requirements, deadline_s=_AT_ONCE_S, budget_usd=None)))
    least_s = min(offer.duration_s for offer in soon)
    fastest = min(
        (offer for offer in soon if offer.duration_s <= _AS_FAST * least_s), key=_costs_usd
    )
    cheapest = min(
        _priced(compare(replace(requirements, deadline_s=None, budget_usd=None))), key=_costs_usd
    )
    late = requirements.deadline_s is not None and least_s > requirements.deadline_s
    dear = requirements.budget_usd is not None and _costs_usd(cheapest) > requirements.budget_usd
    if late:
        limit = format_duration(requirements.deadline_s or 0.0)
        yield (
            f"no machine with a price finishes within {limit}: the fastest is {fastest.title},"
            f" {_price_of(fastest)}, {format_duration(requirements.start_up_s)} of it start-up."
            f" Allow --time {_whole_minutes(fastest.duration_s)}, or more machines than"
            f" --max-nodes {requirements.max_nodes}"
        )
    if dear:
        limit = format_money(requirements.budget_usd or 0.0)
        cost = _costs_usd(cheapest)
        enough = f"{math.ceil(cost * 100.0) / 100.0:.2f}"
        if cost > 10.0:
            enough = f"{math.ceil(cost):.0f}"
        yield (
            f"no machine costs {limit} or less: the cheapest is {cheapest.title},"
            f" {_price_of(cheapest)}. Allow --money {enough}, or shorten the run"
        )
    if late or dear or requirements.deadline_s is None or requirements.budget_usd is None:
        return
    in_time = min(
        (
            offer
            for offer in _priced(compare(replace(requirements, budget_usd=None)))
            if offer.in_time != "no"
        ),
        key=_costs_usd,
    )
    affordable = min(
        (
            offer
            for offer in _priced(compare(replace(requirements, deadline_s=_AT_ONCE_S)))
            if offer.in_budget != "no"
        ),
        key=attrgetter("duration_s"),
    )
    yield (
        "deadline and budget can each be met, but not both. Within the deadline the cheapest is"
        f" {in_time.title}, {_price_of(in_time)}. Within the budget the fastest is"
        f" {affordable.title}, {_price_of(affordable)}"
    )


def _priced(offers: Sequence[Offer]) -> list[Offer]:
    return [
        offer
        for offer in offers
        if offer.cost_usd is not None and offer.fits is not False and not offer.is_vague
    ]


def _costs_usd(offer: Offer) -> float:
    if offer.cost_usd is None:
        return math.inf
    return offer.cost_usd.value


def _price_of(offer: Offer) -> str:
    cost = "no price"
    if offer.cost_usd is not None:
        cost = format_money(offer.cost_usd.value)
    return f"about {format_duration(offer.duration_s)} and {cost}"


def _whole_minutes(seconds: float) -> str:
    minutes = math.ceil(seconds / 60.0)
    if minutes <= 120:
        return f"{minutes}m"
    return f"{math.ceil(minutes / 60.0)}h"

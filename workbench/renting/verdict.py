"""What a comparison comes to, in sentences: what to take, or what is the matter and what comes nearest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from workbench.advisor.advice import Estimate
from workbench.advisor.quantities import format_duration
from workbench.renting.offers import Offer, Wishes

_DAY_S = 86_400.0
_AS_FAST = 1.05
_AT_ONCE_S = 1e-3
"""A deadline that nothing meets: with it the fastest number of machines is chosen of each type."""


def sentences(
    offers: Sequence[Offer], wishes: Wishes, *, ask: Callable[[Wishes], Sequence[Offer]], catalogue: str
) -> Iterator[str]:
    """Say what the comparison comes to, and on what it rests.

    Args:
        offers: The lines, the best first.
        wishes: What they were compared for.
        ask: Compares the same machines for other wishes, to find what comes nearest.
        catalogue: The file of the catalogue, which lacks prices.
    """
    if offers and offers[0].is_recommendable:
        yield from _recommend(offers[0], wishes)
    else:
        yield "nothing can be recommended"
        yield from _what_is_the_matter(offers, wishes, ask)
    unpriced = [offer for offer in offers if offer.usd_per_hour is None]
    if unpriced:
        example = unpriced[0]
        yield (
            f"{len(unpriced)} of {len(offers)} lines have no price. To fill one in, copy {catalogue} to "
            f"ours.yaml, write there below type: {example.machine} the line  "
            f"{example.market.replace(' ', '_')}: {{usd_per_hour: PRICE, origin: WHERE FROM, "
            "date: YEAR-MONTH-DAY}  and add --catalogue ours.yaml"
        )
    yield (
        f"early stopping is not counted; {format_duration(wishes.start_up_s)} of start-up is assumed, as is "
        "billing by the second; intervals hold nine of ten where nothing is extrapolated"
    )


def _recommend(best: Offer, wishes: Wishes) -> Iterator[str]:
    assert best.run_s is not None
    assert best.cost_usd is not None
    yield (
        f"take {best.title}: {_price_of(best)} ({format_range(best.cost_usd, format_money)}); "
        f"trials train as {best.plan}, {best.at_once} at once"
    )
    if best.in_time == "perhaps":
        limit = format_duration(wishes.deadline_s or 0.0)
        yield f"it may take up to {format_time(best.run_s.high)}, and the deadline is {limit}"
    if best.in_budget == "perhaps":
        limit = format_money(wishes.budget_usd or 0.0)
        yield f"it may cost up to {format_money(best.cost_usd.high)}, and the budget is {limit}"
    if not best.measured:
        yield "its step time is extrapolated: measure on one such machine before many are rented"


def _what_is_the_matter(
    offers: Sequence[Offer], wishes: Wishes, ask: Callable[[Wishes], Sequence[Offer]]
) -> Iterator[str]:
    """Say what keeps every line from being taken, and what comes nearest."""
    timed = [offer for offer in offers if offer.fits is not False and offer.run_s is not None]
    known = [offer for offer in timed if not offer.is_vague]
    if not timed:
        if any(offer.fits is None for offer in offers):
            yield (
                "how long the run takes is known of no machine, for the reasons in the notes: run "
                "`workbench advise FILE` on one of them first"
            )
        else:
            yield "a worker fits into no machine; a smaller model or `plan.recompute` needs less memory"
        return
    if not known:
        yield (
            "what was measured says so little of these machines that the most is over a hundred times the "
            "least: run `workbench advise FILE` on one of them first"
        )
        return
    if all(offer.cost_usd is None for offer in known):
        fastest = min(known, key=_takes_s)
        yield f"no machine of known time has a price; the fastest is {fastest.title}: {_price_of(fastest)}"
        return
    yield from _nearest(wishes, ask)


def _nearest(wishes: Wishes, ask: Callable[[Wishes], Sequence[Offer]]) -> Iterator[str]:
    soon = _priced(ask(replace(wishes, deadline_s=_AT_ONCE_S, budget_usd=None)))
    least_s = min(map(_takes_s, soon))
    fastest = min((each for each in soon if _takes_s(each) <= _AS_FAST * least_s), key=_costs_usd)
    cheapest = min(_priced(ask(replace(wishes, deadline_s=None, budget_usd=None))), key=_costs_usd)
    late = wishes.deadline_s is not None and least_s > wishes.deadline_s
    dear = wishes.budget_usd is not None and _costs_usd(cheapest) > wishes.budget_usd
    if late:
        limit = format_duration(wishes.deadline_s or 0.0)
        yield (
            f"none with a price ends within {limit}: the fastest is {fastest.title}, {_price_of(fastest)}, "
            f"{format_duration(wishes.start_up_s)} of it start-up. Allow --deadline "
            f"{_whole_minutes(_takes_s(fastest))}, or more machines than --max-nodes {wishes.most_nodes}"
        )
    if dear:
        limit, cost = format_money(wishes.budget_usd or 0.0), _costs_usd(cheapest)
        enough = f"{math.ceil(cost):.0f}" if cost > 10.0 else f"{math.ceil(cost * 100.0) / 100.0:.2f}"
        yield (
            f"none costs {limit} or less: the cheapest is {cheapest.title}, {_price_of(cheapest)}. Allow "
            f"--budget {enough}, or shorten the run"
        )
    if late or dear or wishes.deadline_s is None or wishes.budget_usd is None:
        return
    in_time = min(
        (each for each in _priced(ask(replace(wishes, budget_usd=None))) if each.in_time != "no"),
        key=_costs_usd,
    )
    affordable = min(
        (each for each in _priced(ask(replace(wishes, deadline_s=_AT_ONCE_S))) if each.in_budget != "no"),
        key=_takes_s,
    )
    yield (
        f"each wish can be met, but not both: in time the cheapest is {in_time.title}, {_price_of(in_time)}; "
        f"within the budget the fastest is {affordable.title}, {_price_of(affordable)}"
    )


def _priced(offers: Sequence[Offer]) -> list[Offer]:
    return [
        offer
        for offer in offers
        if offer.cost_usd is not None and offer.fits is not False and not offer.is_vague
    ]


def _takes_s(offer: Offer) -> float:
    return math.inf if offer.run_s is None else offer.run_s.value


def _costs_usd(offer: Offer) -> float:
    return math.inf if offer.cost_usd is None else offer.cost_usd.value


def _price_of(offer: Offer) -> str:
    cost = "no price" if offer.cost_usd is None else format_money(offer.cost_usd.value)
    return f"about {format_time(_takes_s(offer))} and {cost}"


def format_money(usd: float) -> str:
    """Write a sum: cents below a hundred dollars, none above."""
    if usd < 0.005:
        return f"${usd:.2g}"
    return f"${usd:,.2f}" if usd < 99.995 else f"${usd:,.0f}"


def format_time(seconds: float) -> str:
    """Write how long a run takes: whole days from ten on."""
    return format_duration(seconds) if seconds < 10 * _DAY_S else f"{seconds / _DAY_S:,.0f}d"


def _whole_minutes(seconds: float) -> str:
    minutes = math.ceil(seconds / 60.0)
    return f"{minutes}m" if minutes <= 120 else f"{math.ceil(minutes / 60.0)}h"


def format_range(estimate: Estimate, write: Callable[[float], str]) -> str:
    """Write what an estimate lies between, or nothing where both ends read the same."""
    low, high = write(estimate.low), write(estimate.high)
    return low if low == high else f"{low}-{high}"

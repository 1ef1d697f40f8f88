"""What a comparison comes to, said of machines with prices of the test's own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.renting.test_offers import SAMPLES, T4, evidence, experiment, law_s, measured, priced, store
from tests.run.recorded import append
from workbench.advisor.advice import Estimate
from workbench.events import RunStateChanged
from workbench.renting.catalogue import Catalogue
from workbench.renting.evidence import Evidence, evidence_of
from workbench.renting.offers import Offer, Wishes, compare
from workbench.renting.verdict import format_money, format_range, format_time, sentences
from workbench.store import Store

__all__ = ["store"]  # a fixture
RUN_S = 40 * 50 * (SAMPLES // 128) * law_s(1, 128)
"""Of the whole run on one T4, start-up apart."""
HOUR_S = 3600.0


NO_WISH = Wishes()


def said(known: Sequence[Evidence], catalogue: Catalogue, wishes: Wishes = NO_WISH) -> list[str]:
    def ask(wishes: Wishes) -> list[Offer]:
        return compare(experiment(), known, catalogue, wishes)

    return list(sentences(ask(wishes), wishes, ask=ask, catalogue="the.yaml"))


@pytest.fixture
def known(store: Store) -> list[Evidence]:
    return evidence(store, T4)


def test_what_to_take_is_said_first_with_its_time_and_cost(known: list[Evidence]) -> None:
    first, *rest = said(known, priced("g4dn.xlarge", 0.5), Wishes(most_nodes=1))
    assert first.startswith("take 1 x g4dn.xlarge of aws (us-east-1), on demand: about ")
    assert "trials train as 128 = 128 x 1 x 1, 1 at once" in first
    assert not any("may take up to" in line or "extrapolated: measure" in line for line in rest)


def test_what_may_miss_a_wish_is_said(known: list[Evidence]) -> None:
    wishes = Wishes(1.01 * (RUN_S + 300.0), 1.01 * (RUN_S + 300.0) / HOUR_S * 0.5, most_nodes=1)
    first, late, dear, *_ = said(known, priced("g4dn.xlarge", 0.5), wishes)
    assert first.startswith("take 1 x g4dn.xlarge")
    assert "it may take up to" in late
    assert "the deadline is" in late
    assert "it may cost up to" in dear
    assert "the budget is $" in dear


def test_a_deadline_that_nothing_meets_names_the_fastest_and_what_would_do(known: list[Evidence]) -> None:
    first, reason, *_ = said(known, priced("g4dn.xlarge", 0.5), Wishes(400.0, most_nodes=4))
    assert first == "nothing can be recommended"
    assert reason.startswith("none with a price ends within 6m40s: the fastest is 4 x g4dn.xlarge of aws")
    assert "5m00s of it start-up. Allow --deadline " in reason
    assert reason.endswith("or more machines than --max-nodes 4")


def test_a_budget_that_nothing_meets_names_the_cheapest_and_what_would_do(known: list[Evidence]) -> None:
    first, reason, *_ = said(known, priced("g4dn.xlarge", 50.0), Wishes(budget_usd=1.0, most_nodes=4))
    assert first == "nothing can be recommended"
    assert reason.startswith("none costs $1.00 or less: the cheapest is ")
    assert "Allow --budget " in reason
    allowed = float(reason.partition("--budget ")[2].partition(",")[0])
    assert said(known, priced("g4dn.xlarge", 50.0), Wishes(budget_usd=allowed, most_nodes=4))[0].startswith(
        "take"
    )


def test_a_deadline_that_is_allowed_suffices(known: list[Evidence]) -> None:
    _, reason, *_ = said(known, priced("g4dn.xlarge", 0.5), Wishes(400.0, most_nodes=1))
    minutes = float(reason.partition("--deadline ")[2].partition("m")[0])
    assert said(known, priced("g4dn.xlarge", 0.5), Wishes(minutes * 60.0, most_nodes=1))[0].startswith("take")


def test_wishes_that_exclude_each_other_are_told_apart_from_wishes_that_cannot_be(
    known: list[Evidence],
) -> None:
    catalogue = priced("g4dn.xlarge", 0.5)
    one, many = (said_of(known, catalogue, nodes) for nodes in (1, 8))
    assert one.run_s is not None
    assert many.run_s is not None
    assert one.cost_usd is not None
    assert many.cost_usd is not None
    assert many.cost_usd.value > one.cost_usd.value
    wishes = Wishes(many.run_s.value * 1.02, one.cost_usd.value * 1.02)
    first, reason, *_ = said(known, catalogue, wishes)
    assert first == "nothing can be recommended"
    assert reason.startswith("each wish can be met, but not both: in time the cheapest is 8 x g4dn.xlarge")
    assert "within the budget the fastest is 1 x g4dn.xlarge" in reason


def said_of(known: list[Evidence], catalogue: Catalogue, most_nodes: int) -> Offer:
    """The fastest offer of so many machines at most."""
    return compare(experiment(), known, catalogue, Wishes(1.0, most_nodes=most_nodes))[0]


def test_without_any_price_the_fastest_is_named_and_how_to_fill_one_in(known: list[Evidence]) -> None:
    first, reason, fill_in, *_ = said(known, priced("g4dn.xlarge"), Wishes(most_nodes=2))
    assert first == "nothing can be recommended"
    assert reason.startswith("no machine of known time has a price; the fastest is ")
    assert fill_in.startswith("2 of 2 lines have no price. To fill one in, copy the.yaml to ours.yaml")
    assert "below type: g4dn.xlarge the line  on_demand: {usd_per_hour: PRICE" in fill_in
    assert fill_in.endswith("--catalogue ours.yaml")


def test_where_next_to_nothing_is_known_measuring_comes_first(store: Store) -> None:
    counted = [each.model_copy(update={"step_flops": 1e6}) for each in measured("cpu")]
    append(store, store.create_run(experiment()), [*counted, RunStateChanged(state="complete")])
    first, reason, *_ = said(evidence_of(store, experiment()), priced("g4dn.xlarge", 0.5))
    assert first == "nothing can be recommended"
    assert "over a hundred times the least: run `workbench advise FILE`" in reason


def test_where_no_time_is_known_measuring_comes_first(store: Store) -> None:
    first, reason, *_ = said(evidence(store, "NVIDIA B900"), priced("g4dn.xlarge", 0.5))
    assert first == "nothing can be recommended"
    assert "how long the run takes is known of no machine" in reason


def test_where_nothing_fits_memory_is_named(store: Store) -> None:
    huge = [each.model_copy(update={"peak_bytes": (each.peak_bytes or 0) * 40}) for each in measured()]
    append(store, store.create_run(experiment()), [*huge, RunStateChanged(state="complete")])
    first, reason, *_ = said(evidence_of(store, experiment()), priced("g4dn.xlarge", 0.5))
    assert first == "nothing can be recommended"
    assert reason.startswith("a worker fits into no machine")


def test_a_start_up_of_nothing_is_none(known: list[Evidence]) -> None:
    (found, *_) = compare(
        experiment(), known, priced("g4dn.xlarge", 0.5), Wishes(most_nodes=1, start_up_s=0.0)
    )
    assert found.run_s is not None
    assert found.run_s.value == pytest.approx(RUN_S)


def test_sums_and_times_have_as_many_digits_as_tell_something() -> None:
    assert [format_money(usd) for usd in (0.0012, 0.006, 1.5, 99.99, 99.996, 123.4, 12345.6)] == [
        "$0.0012", "$0.01", "$1.50", "$99.99", "$100", "$123", "$12,346",
    ]  # fmt: skip
    assert [format_time(s) for s in (90, 7200, 3 * 86400, 12.4 * 86400)] == ["1m30s", "2h00m", "3d00h", "12d"]
    assert format_range(Estimate(2.0, 1.0, 3.0), format_money) == "$1.00-$3.00"
    assert format_range(Estimate(2.0, 2.0, 2.0), format_money) == "$2.00"

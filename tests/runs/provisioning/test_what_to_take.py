"""What a comparison comes to, said of machines with prices of the test's own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builders.recorded_runs import append
from tests.runs.provisioning.test_offers import (
    SAMPLES,
    T4,
    evidence,
    experiment,
    law_s,
    measured,
    priced,
    store,
)
from workbench.foundation.events import RunStateChanged
from workbench.runs.provisioning.catalogue import Catalogue
from workbench.runs.provisioning.evidence import Evidence, evidence_of
from workbench.runs.provisioning.offers import Offer, Requirements, compare
from workbench.runs.provisioning.recommendation import sentences
from workbench.store.database import Store

__all__ = ["store"]  # a fixture
RUN_S = 40 * 50 * (SAMPLES // 128) * law_s(1, 128)
"""Of the whole run on one T4, start-up apart."""
HOUR_S = 3600.0


NO_WISH = Requirements()


def said(
    known: Sequence[Evidence], catalogue: Catalogue, requirements: Requirements = NO_WISH
) -> list[str]:
    def compare_for(requirements: Requirements) -> list[Offer]:
        return compare(experiment(), known, catalogue, requirements)

    return list(
        sentences(
            compare_for(requirements), requirements, compare=compare_for, catalogue="the.yaml"
        )
    )


@pytest.fixture
def known(store: Store) -> list[Evidence]:
    return evidence(store, T4)


def test_what_to_take_is_said_first_with_its_time_and_cost(known: list[Evidence]) -> None:
    first, *rest = said(known, priced("g4dn.xlarge", 0.5), Requirements(max_nodes=1))
    assert first.startswith("take 1 x g4dn.xlarge of aws (us-east-1), on demand: about ")
    assert "Trials train as 128 samples = 128 x 1 accumulated x 1 worker, 1 at once" in first
    assert not any("may take up to" in line or "extrapolated: measure" in line for line in rest)


def test_what_may_miss_a_wish_is_said(known: list[Evidence]) -> None:
    requirements = Requirements(
        1.01 * (RUN_S + 300.0), 1.01 * (RUN_S + 300.0) / HOUR_S * 0.5, max_nodes=1
    )
    first, late, dear, *_ = said(known, priced("g4dn.xlarge", 0.5), requirements)
    assert first.startswith("take 1 x g4dn.xlarge")
    assert "it may take up to" in late
    assert "the deadline is" in late
    assert "it may cost up to" in dear
    assert "the budget is $" in dear


def test_a_deadline_that_nothing_meets_names_the_fastest_and_what_would_do(
    known: list[Evidence],
) -> None:
    first, reason, *_ = said(known, priced("g4dn.xlarge", 0.5), Requirements(400.0, max_nodes=4))
    assert first == "nothing can be recommended"
    assert reason.startswith(
        "no machine with a price finishes within 6 min 40 s: the fastest is 4 x g4dn.xlarge of aws"
    )
    assert "5 min of it start-up. Allow --time " in reason
    assert reason.endswith("or more machines than --max-nodes 4")


def test_a_budget_that_nothing_meets_names_the_cheapest_and_what_would_do(
    known: list[Evidence],
) -> None:
    first, reason, *_ = said(
        known, priced("g4dn.xlarge", 50.0), Requirements(budget_usd=1.0, max_nodes=4)
    )
    assert first == "nothing can be recommended"
    assert reason.startswith("no machine costs $1.00 or less: the cheapest is ")
    assert "Allow --money " in reason
    allowed = float(reason.partition("--money ")[2].partition(",")[0])
    assert said(known, priced("g4dn.xlarge", 50.0), Requirements(budget_usd=allowed, max_nodes=4))[
        0
    ].startswith("take")


def test_a_deadline_that_is_allowed_suffices(known: list[Evidence]) -> None:
    _, reason, *_ = said(known, priced("g4dn.xlarge", 0.5), Requirements(400.0, max_nodes=1))
    minutes = float(reason.partition("--time ")[2].partition("m")[0])
    assert said(known, priced("g4dn.xlarge", 0.5), Requirements(minutes * 60.0, max_nodes=1))[
        0
    ].startswith("take")


def test_requests_that_exclude_each_other_are_distinguished_from_impossible_ones(
    known: list[Evidence],
) -> None:
    catalogue = priced("g4dn.xlarge", 0.5)
    one, many = (said_of(known, catalogue, nodes) for nodes in (1, 8))
    assert one.run_s is not None
    assert many.run_s is not None
    assert one.cost_usd is not None
    assert many.cost_usd is not None
    assert many.cost_usd.value > one.cost_usd.value
    requirements = Requirements(many.run_s.value * 1.02, one.cost_usd.value * 1.02)
    first, reason, *_ = said(known, catalogue, requirements)
    assert first == "nothing can be recommended"
    assert reason.startswith(
        "deadline and budget can each be met, but not both. Within the deadline the cheapest is 8 x"
        " g4dn"
    )
    assert "Within the budget the fastest is 1 x g4dn.xlarge" in reason


def said_of(known: list[Evidence], catalogue: Catalogue, max_nodes: int) -> Offer:
    """The fastest offer of so many machines at most."""
    return compare(experiment(), known, catalogue, Requirements(1.0, max_nodes=max_nodes))[0]


def test_without_any_price_the_fastest_is_named_and_how_to_fill_one_in(
    known: list[Evidence],
) -> None:
    first, reason, fill_in, *_ = said(known, priced("g4dn.xlarge"), Requirements(max_nodes=2))
    assert first == "nothing can be recommended"
    assert reason.startswith("no machine whose time can be estimated has a price. The fastest is ")
    assert fill_in.startswith("2 of 2 offers have no price. To add one, copy the.yaml to ours.yaml")
    assert "below type: g4dn.xlarge the line  on_demand: {usd_per_hour: PRICE" in fill_in
    assert fill_in.endswith("--catalogue ours.yaml")


def test_where_next_to_nothing_is_known_measuring_comes_first(store: Store) -> None:
    counted = [
        measurement.model_copy(update={"step_flops": 1e6}) for measurement in measured("cpu")
    ]
    append(store, store.create_run(experiment()), [*counted, RunStateChanged(state="complete")])
    first, reason, *_ = said(evidence_of(store, experiment()), priced("g4dn.xlarge", 0.5))
    assert first == "nothing can be recommended"
    assert "over a hundred times the lower ones. Run `workbench advise FILE`" in reason


def test_where_no_time_is_known_measuring_comes_first(store: Store) -> None:
    first, reason, *_ = said(evidence(store, "NVIDIA B900"), priced("g4dn.xlarge", 0.5))
    assert first == "nothing can be recommended"
    assert "the duration of the run cannot be estimated for any machine" in reason


def test_where_nothing_fits_memory_is_named(store: Store) -> None:
    huge = [
        measurement.model_copy(update={"peak_bytes": (measurement.peak_bytes or 0) * 40})
        for measurement in measured()
    ]
    append(store, store.create_run(experiment()), [*huge, RunStateChanged(state="complete")])
    first, reason, *_ = said(evidence_of(store, experiment()), priced("g4dn.xlarge", 0.5))
    assert first == "nothing can be recommended"
    assert reason.startswith("no machine has enough memory for a worker")


def test_a_start_up_of_nothing_is_none(known: list[Evidence]) -> None:
    line, *_ = compare(
        experiment(), known, priced("g4dn.xlarge", 0.5), Requirements(max_nodes=1, start_up_s=0.0)
    )
    assert line.run_s is not None
    assert line.run_s.value == pytest.approx(RUN_S)

"""What advice says of other exchanges.

Seconds a step, steps more, and nothing approximate without a race.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advisor.test_exchange_forecast import MEASURED_S, measured
from tests.advisor.test_plans import choose, make_experiment
from workbench.advisor.advice import StepCost
from workbench.advisor.advice_from_findings import Findings, conclude
from workbench.advisor.advice_lines import describe_exchanges, lines_of
from workbench.advisor.exchange_forecast import exchange_offers, step_costs
from workbench.advisor.plan_study import RatedPlan
from workbench.advisor.plan_variants import plan_of
from workbench.advisor.plans import Knowledge, best_plans
from workbench.advisor.race import Course
from workbench.experiment.plan import PartialPlan, Plan
from workbench.training.exchanges.capabilities import with_options


def plan_with_exchange(name: str, micro_batch: int = 64) -> Plan:
    sizes = PartialPlan.of(
        workers=2, micro_batch=micro_batch, accumulation=1, strategy="ddp", exchange=name
    )
    plan = with_options(sizes).complete()
    assert plan is not None
    return plan


def trained(
    exchange: str,
    *,
    lr: float = 0.1,
    repeat: int = 0,
    step_s: float,
    slower: float = 1.0,
    every: int = 7,
) -> tuple[Course[RatedPlan], list[tuple[float, int]]]:
    """A training whose value rises as 1 - exp(-steps / 100), so many times slower, evaluated now
    and then.
    """
    course = Course(RatedPlan(plan_with_exchange(exchange), lr), repeat)
    steps = list(range(every, 300, every))
    for step in steps:
        course.add(step * step_s, 1.0 - math.exp(-step / (100.0 * slower)), None)
    return course, [(step * step_s, step) for step in steps]


def costs_of(*several: tuple[Course[RatedPlan], list[tuple[float, int]]]) -> dict[str, StepCost]:
    progress = {(course.entrant, course.repeat): steps for course, steps in several}
    return step_costs([course for course, _ in several], progress)


@given(slower=st.floats(0.6, 2.5), gain=st.floats(0.5, 5.0))
def test_the_steps_that_an_exchange_needs_more_are_found_whatever_its_speed(
    slower: float, gain: float
) -> None:
    costs = costs_of(
        trained("allreduce", step_s=0.1),
        trained("powersgd", step_s=0.1 / gain, slower=slower, every=11),
    )
    assert set(costs) == {"powersgd"}
    assert costs["powersgd"].factor.value == pytest.approx(slower, rel=0.06)
    assert costs["powersgd"].factor.low < slower < costs["powersgd"].factor.high
    assert costs["powersgd"].num_pairs == 1


def test_only_trainings_that_are_alike_in_all_else_are_compared() -> None:
    exact = trained("allreduce", step_s=0.1)
    assert costs_of(exact, trained("local", step_s=0.02, lr=0.2)) == {}
    assert costs_of(exact, trained("local", step_s=0.02, repeat=1)) == {}
    assert costs_of(trained("powersgd", step_s=0.1), trained("local", step_s=0.02)) == {}
    more = costs_of(
        exact,
        trained("allreduce", step_s=0.1, repeat=1),
        trained("local", step_s=0.02, slower=1.2),
        trained("local", step_s=0.02, slower=1.4, repeat=1),
    )
    assert more["local"].num_pairs == 2
    assert more["local"].factor.low < 1.2 < 1.4 < more["local"].factor.high


def test_a_faster_step_never_replaces_an_exact_one_without_a_race() -> None:
    link = "200 Mbit/s"
    events = [measured(link), measured(link, exchange="local", exchange_period=8)]
    knowledge = Knowledge(events, [1, 1], limit_bytes=None)
    exact, fast = (plan_of(each.plan) for each in events)

    def best(*plans: Plan) -> list[Plan]:
        return best_plans(plans, knowledge, "time", base_batch=128, noise_scale=None)

    assert best(fast, exact) == [exact, fast], "it is the second, to be raced beside the first"
    assert best(fast) == [fast], "where nothing else is allowed there is nothing to choose"
    assert (
        best_plans([fast, exact], knowledge, "throughput", base_batch=128, noise_scale=None)[0]
        == exact
    )
    quick = [measured("200 Mbit/s", exchange="bf16"), measured("1 Gbit/s")]
    on_fast_link = Knowledge(quick, [1, 1], limit_bytes=None)
    plans = [plan_of(event.plan) for event in quick]
    assert best_plans(plans, on_fast_link, "time", base_batch=128, noise_scale=None) == [plans[1]]


def test_an_advice_shows_what_exchanges_would_bring() -> None:
    experiment = make_experiment(plan={"workers": 2})
    events = [measured("200 Mbit/s")]
    concluded = conclude(
        Findings(
            experiment=experiment,
            goal="time",
            choices=choose(experiment, workers=2),
            knowledge=Knowledge(events, [1, 1], limit_bytes=None),
            reference=events[0],
            plans=[plan_of(events[0].plan)],
            rates=None,
            race=None,
            noise_scale=None,
            placement="pack",
            num_known=0,
            num_measured=1,
            cost_s=1.0,
        )
    )
    assert concluded.choice.plan.exchange == "allreduce"
    by_name = {exchange.exchange: exchange for exchange in concluded.exchanges}
    assert by_name["allreduce"].is_exact
    assert by_name["powersgd"].step_time_s.value < 0.1 < MEASURED_S["200 Mbit/s"]["allreduce"]
    exact, first, *_ = describe_exchanges(concluded.to_json())
    expected = f"allreduce, exact: {1000 * MEASURED_S['200 Mbit/s']['allreduce']:.0f} ms a step"
    assert exact.startswith(expected)
    assert "approximate" in first
    assert "not known, search plan.exchange to race it" in first
    card = "\n".join(lines_of(concluded.to_json()))
    assert f"exchanges       - {expected}" in card


def test_what_a_race_found_is_stated_with_how_sure_it_is() -> None:
    offers = exchange_offers([measured("200 Mbit/s")], plan_with_exchange("allreduce"))
    stored = [
        {
            "exchange": stated.exchange,
            "batch_text": stated.batch_text,
            "is_exact": stated.is_exact,
            "step_time_s": vars(stated.step_time_s),
            "is_measured": stated.is_measured,
            "cost": {"factor": {"value": 1.2, "low": low, "high": high}, "num_pairs": pairs},
        }
        for stated, (low, high, pairs) in zip(
            (stated for stated in offers if stated.exchange in ("allreduce", "powersgd", "bf16")),
            ((1.1, 1.3, 3), (0.9, 2.6, 1), (1.0, 1.0, 1)),
            strict=True,
        )
    ]
    _, powersgd, bf16 = describe_exchanges({"exchanges": stored})
    assert powersgd.endswith(
        "times the steps: 1.20 of them (1.10 to 1.30 in 3 pairs of trainings), so it pays"
    )
    assert bf16.endswith("1.20 of them (0.90 to 2.60 in 1 pair of trainings), which may be chance")
    slow = {
        **stored[0],
        "cost": {"factor": {"value": 99.0, "low": 98.0, "high": 99.0}, "num_pairs": 2},
    }
    assert describe_exchanges({"exchanges": [stored[-1], slow]})[1].endswith("so it does not pay")


def test_without_links_nothing_is_claimed() -> None:
    assert (
        exchange_offers([measured("1 Gbit/s", is_swept=False)], plan_with_exchange("allreduce"))
        == ()
    )
    assert describe_exchanges({}) == []
    fast = [
        {
            "exchange": "allreduce",
            "is_exact": True,
            "step_time_s": {"value": 0.01},
            "batch_text": "8",
        }
    ]
    assert describe_exchanges({"exchanges": fast})[1].startswith("no approximate exchange")

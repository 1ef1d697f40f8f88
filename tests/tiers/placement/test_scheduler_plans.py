from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tiers.placement.systems import system
from workbench.foundation.formatting import format_rate
from workbench.tiers.placement import scheduler_plans
from workbench.tiers.placement.policies import EndCloud
from workbench.tiers.placement.scheduler_plans import (
    Plan,
    about_limits,
    exit_curve,
    expected_plans,
    played_plans,
    recommend,
    verdict,
)
from workbench.tiers.placement.schedulers import SCHEDULERS, Outcome
from workbench.tiers.placement.tiers_file import Objective


@pytest.fixture(scope="module")
def jammed() -> list[Plan]:
    """What is expected where the cloud has more to do than it can."""
    return expected_plans(system().with_load(1.4), 0.05)


@pytest.mark.slow
def test_the_interval_of_a_plan_holds_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_plans, "_NUM_RESAMPLES", 10)
    given = system().with_load(0.6)
    for plan in [*expected_plans(given, 0.05), *played_plans(given, 4_000)]:
        assert plan.low <= plan.p95_s * (1 + 1e-9)
        assert plan.high >= plan.p95_s * (1 - 1e-9)


def test_a_jammed_scheduler_is_never_recommended(jammed: list[Plan]) -> None:
    by_name = {plan.scheduler: plan for plan in jammed}
    assert np.isinf(by_name["end-cloud"].p95_s)
    chosen = recommend(jammed, Objective())
    assert chosen is not None
    assert max(chosen.outcome.load.values()) < 1.0


def test_a_plan_without_steady_times_names_what_is_full_and_its_limit() -> None:
    given = system(devices=1, servers=1, arrivals_per_s=12.0, link_s=0.05, device_s=(1e-4, 0.2))
    expected = expected_plans(given, 0.0)
    for plans, times in (
        (expected, "there are no steady times (\u2013)"),
        (played_plans(given, 2_000), "times grow with the requests"),
    ):
        about = [line for line in verdict(given, plans, None) if line.startswith("cloud: ")]
        assert len(about) == 1
        assert about[0].startswith("cloud: the link end-cloud is full (load 1")
        assert times in about[0]
    # 12 / s of 0.1 s each.
    assert any(
        "Its limit is 10 requests per second" in line for line in verdict(given, expected, None)
    )
    quiet = system(arrivals_per_s=1e-3)
    assert not any("is full" in line for line in verdict(quiet, expected_plans(quiet, 0.0), None))


def test_the_limit_of_a_link_is_what_it_carries_beside_heartbeats() -> None:
    given = system(devices=1, servers=1, arrivals_per_s=12.0, link_s=0.05, device_s=(1e-4, 0.2))
    given = replace(given, heartbeat_load=np.array([0.4]))
    about = [
        line
        for line in verdict(given, expected_plans(given, 0.0), None)
        if line.startswith("cloud: ")
    ]
    # Of the 0.6 that heartbeats leave, 12 / s of 0.1 s each take 1.2 times as much: in all 0.4 +
    # 0.6 x 1.2.
    assert "the link end-cloud is full (load 112%)" in about[0]
    assert "Its limit is 10 requests per second" in about[0]


@pytest.mark.slow
def test_where_no_scheduler_keeps_up_the_closest_is_named_and_what_it_needs() -> None:
    given = system(devices=1, servers=1, arrivals_per_s=40.0, link_s=0.05, device_s=(0.04, 0.04))
    plans = expected_plans(given, 0.0)
    assert min(plan.outcome.highest_load for plan in plans) >= 1.0
    about = verdict(given, plans, recommend(plans, Objective()))[0]
    assert about.startswith(
        "No scheduler keeps up with 40 requests per second and machine of end. mapping comes"
        " closest, with fewer than 26."
    )
    # Half of the requests need both stages: 16.7 per second on the device. The link carries the
    # inputs of 10 per second.
    limit = 1 / 0.06 + 10
    fits = expected_plans(
        system(
            devices=1, servers=1, arrivals_per_s=0.97 * limit, link_s=0.05, device_s=(0.04, 0.04)
        ),
        0.0,
    )
    assert recommend(fits, Objective()) is not None


def test_a_plan_that_is_full_is_never_called_the_fastest() -> None:
    given = system(devices=1, servers=1, arrivals_per_s=12.0, link_s=0.05, device_s=(1e-4, 0.2))
    plans = played_plans(given, 2_000)
    about = verdict(given, plans, None)[0]
    keeping_up = [plan.scheduler for plan in plans if plan.outcome.highest_load < 1.0]
    assert any(f"The fastest is {name}," in about for name in keeping_up)


def test_nothing_is_recommended_beyond_the_limits() -> None:
    given = system().with_load(0.5)
    plans = expected_plans(given, 0.05)
    assert recommend(plans, Objective(p95_latency="1us")) is None
    assert "No scheduler meets place.objective" in verdict(given, plans, None)[0]
    # 8 servers, where the share of requests that goes on takes 0.04 s each, from 1000 devices.
    full_per_s = 8 / (float((given.evidence.confidence[:, 0] < 0.5).mean()) * 0.04) / 1000
    expected = (
        f"With end-cloud, cloud reaches the load 0.7 at {format_rate(0.7 * full_per_s)} requests"
        f" per second and machine of end. Its limit is {format_rate(full_per_s)}, and now there are"
        f" {format_rate(given.arrivals_per_s)}."
    )
    assert expected in verdict(given, plans, None)
    assert recommend(plans, Objective(accuracy=0.999)) is None


def test_nothing_is_said_about_the_load_of_a_scheduler_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(EndCloud, "fits", lambda _, given: "it cannot", raising=False)
    given = system().with_load(0.5)
    told = verdict(given, expected_plans(given, 0.05), None)
    assert [line for line in told if "end-cloud" in line] == ["end-cloud is left out: it cannot."]


def test_tiers_that_computed_more_than_their_limits_are_named_and_not_recommended() -> None:
    given = replace(system(), limits=(np.inf, 0.3))
    ran = [
        Plan(
            name,
            Outcome(np.zeros(1), 0.9, 0.0, 0.0, {"end": 0.5, "cloud": load}),
            p95_s,
            p95_s,
            p95_s,
            p95_s,
        )
        for name, load, p95_s in (("cloud", 0.31, 0.1), ("end-cloud", 0.3, 0.2))
    ]
    assert [plan.outcome.over(given) for plan in ran] == [["cloud"], []]
    assert recommend(ran, Objective(), given) == ran[1]
    assert about_limits(given, ran, is_measured=True) == [
        "cloud: a machine of cloud computed 31% of the time, and its max_load or max_power allows"
        " 30%."
    ]


def test_a_lower_accuracy_that_is_allowed_makes_room_for_a_faster_plan(jammed: list[Plan]) -> None:
    exact, loose = recommend(jammed, Objective()), recommend(jammed, Objective(accuracy=0.6))
    assert exact is not None
    assert loose is not None
    assert loose.p95_s <= exact.p95_s


@pytest.mark.slow
def test_thresholds_range_from_all_to_none_and_hold_that_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_plans, "_NUM_THRESHOLDS", 9)
    given = system()
    points = exit_curve(given)
    thresholds = [point.threshold for point in points]
    assert thresholds == sorted(set(thresholds))
    assert (thresholds[0], thresholds[-1]) == (0.0, 1.0)
    assert (points[0].share, points[-1].share) == (1.0, 0.0)
    (own,) = [point for point in points if point.threshold == 0.5]
    assert list(own.outcomes) == [
        name for name in SCHEDULERS.names() if name not in ("cut", "next-tier")
    ]
    assert own.share == pytest.approx(float((given.exits == 0).mean()))
    expected = EndCloud().expect(given)
    assert np.array_equal(own.outcomes["end-cloud"].response_s, expected.response_s)


def test_the_more_leave_early_the_less_is_sent_and_the_less_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_plans, "_NUM_THRESHOLDS", 9)
    sent = [point.outcomes["end-cloud"] for point in exit_curve(system(servers=100))]
    assert np.all(np.diff([expected.bytes_per_sample for expected in sent]) >= 0)
    assert np.all(np.diff([expected.load["cloud"] for expected in sent]) >= 0)
    assert sent[0].accuracy < sent[-1].accuracy
    assert sent[0].bytes_per_sample == 0

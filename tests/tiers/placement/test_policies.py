from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, assume, given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.tiers.placement.systems import system
from workbench.tiers.placement.mapping import Mapping, Placing
from workbench.tiers.placement.policies import Cloud, End, EndCloud, Threshold
from workbench.tiers.placement.schedulers import SCHEDULERS, Outcome, Policy
from workbench.tiers.placement.simulated_queues import draw_requests
from workbench.tiers.placement.system import System

NUMBER = 60_000


def play(policy: Policy, scene: System) -> Outcome:
    requests = draw_requests(
        NUMBER, scene.counts[0], scene.arrivals_per_s, len(scene.exits), seed=0
    )
    return policy.play(scene, requests)


def least_p95_s(scene: System, load: float) -> float:
    """Return a p95 that no scheduler can beat which answers every request at the last exit that it
    needs.

    More than 5 % of the requests go on, each of which takes as long as the faster of both ways does
    without a queue. The servers complete at most a share of 1 / load of them: where the others are
    more than 5 % of all, p95 is that of a device.
    """
    first_s, here_s = scene.stage_s[0]
    there_s = scene.send_s[-1] + scene.stage_s[-1, 1] + scene.back_s[-1]
    share = float((scene.exits > 0).mean())
    assert share > 0.05
    has_to_stay = share * max(0.0, 1.0 - 1.0 / load) > 0.05
    return float(first_s + (here_s if has_to_stay else min(here_s, there_s)))


@pytest.mark.parametrize("load", [0.7, 0.9, 1.1])
def test_mapping_is_faster_than_end_and_end_cloud_at_equal_accuracy(load: float) -> None:
    scene = system().with_load(load)
    ours, end, sent = (play(policy, scene) for policy in (Mapping(), End(), EndCloud()))
    assert ours.accuracy == pytest.approx(end.accuracy) == pytest.approx(sent.accuracy)
    best_s = min(end.quantile_s(0.95), sent.quantile_s(0.95))
    assert least_p95_s(scene, load) <= ours.quantile_s(0.95) < 0.97 * best_s


@pytest.mark.parametrize("load", [0.5, 1.3, 1.5])
def test_mapping_is_as_fast_as_any_scheduler_where_one_of_both_is_already(load: float) -> None:
    scene = system().with_load(load)
    ours, end, sent = (play(policy, scene) for policy in (Mapping(), End(), EndCloud()))
    assert ours.accuracy == pytest.approx(end.accuracy) == pytest.approx(sent.accuracy)
    best_s = min(end.quantile_s(0.95), sent.quantile_s(0.95))
    assert ours.quantile_s(0.95) == pytest.approx(best_s) == pytest.approx(least_p95_s(scene, load))


@pytest.mark.parametrize("load", [1.1, 1.3, 1.5])
def test_mapping_leaves_no_queue_in_which_the_last_tier_is_no_faster_than_a_device(
    load: float,
) -> None:
    scene = system().with_load(load)
    ours, end = play(Mapping(), scene), play(End(), scene)
    assert ours.load["cloud"] > 0.9
    assert np.mean(ours.response_s) < 0.8 * np.mean(end.response_s)


@pytest.mark.slow
@given(
    devices=st.integers(2, 1000),
    servers=st.integers(1, 16),
    kept_load=st.floats(0.2, 1.5),
    rest_s=st.floats(0.01, 1.0),
    first=st.floats(0.01, 0.5),
    there=st.floats(0.05, 2.0),
    send_s=st.floats(0.001, 0.3),
    threshold=st.floats(0.1, 0.9),
)
@examples(10, phases=[Phase.generate])
def test_mapping_is_never_much_slower_than_the_better_of_end_and_end_cloud(
    *,
    devices: int,
    servers: int,
    kept_load: float,
    rest_s: float,
    first: float,
    there: float,
    send_s: float,
    threshold: float,
) -> None:
    """`kept_load` is the load of the devices if nothing is sent; above 1 they jam.

    Where both ways jam, response times depend on how long is played.
    """
    first_s = first * rest_s
    scene = system(
        devices=devices,
        servers=servers,
        device_s=(first_s, rest_s),
        server_s=(0.001, there * rest_s),
        send_s=send_s,
        threshold=threshold,
        arrivals_per_s=kept_load / (first_s + threshold * rest_s),
    )
    sent_load = EndCloud().expect(scene).load
    assume(sent_load["end"] < 0.95)
    assume(min(kept_load, sent_load["cloud"]) < 0.95)
    requests = draw_requests(10_000, devices, scene.arrivals_per_s, len(scene.exits), seed=0)
    mapping, end, sent = (
        policy.play(scene, requests).quantile_s(0.95) for policy in (Mapping(), End(), EndCloud())
    )
    assert mapping <= 1.06 * min(end, sent)


def test_mapping_sends_what_ends_earlier_here_where_devices_are_saturated() -> None:
    busy = system(
        devices=2, device_s=(0.002, 0.14), server_s=(0.001, 0.1), arrivals_per_s=14.0, send_s=0.05
    )
    quiet = replace(busy, arrivals_per_s=0.1)
    assert Mapping().settled(quiet).placing == Placing((0, 1))
    assert Mapping().settled(busy).placing != Placing((0, 1))
    assert play(Mapping(), quiet).bytes_per_sample == 0.0
    assert play(Mapping(), busy).quantile_s(0.95) < play(End(), busy).quantile_s(0.95) / 100
    assert Mapping().expect(busy).load["end"] < 1.0


def test_mapping_lets_no_queue_grow_without_end_where_that_can_be_avoided() -> None:
    # So few requests go on that those which wait for ever on the last tier do not show in the p95
    # of all.
    scene = system(
        devices=100,
        servers=1,
        device_s=(0.01, 0.2),
        server_s=(0.001, 0.04),
        arrivals_per_s=10.0,
        send_s=0.02,
        threshold=0.033,
    )
    assert EndCloud().expect(scene).load["cloud"] > 1.0
    assert EndCloud().expect(scene).quantile_s(0.95) < 0.1
    assert max(Mapping().expect(scene).load.values()) < 1.0
    assert max(play(Mapping(), scene).load.values()) < 1.0


@pytest.mark.parametrize("policy", [End(), EndCloud(), Cloud(), Mapping(), Threshold()])
@pytest.mark.parametrize(
    ("load", "sent_accuracy", "received_s"),
    [(0.2, None, 0.0), (0.4, 0.7, 0.0), (0.4, None, 0.01)],
)
def test_what_closed_forms_expect_is_what_is_played(
    policy: Policy, load: float, sent_accuracy: float | None, received_s: float
) -> None:
    scene = system(
        servers=2, server_s=(0.02, 0.04), sent_accuracy=sent_accuracy, received_s=received_s
    ).with_load(load)
    expected, played = policy.expect(scene), play(policy, scene)
    assert played.accuracy == pytest.approx(expected.accuracy, abs=0.01)
    assert played.bytes_per_sample == pytest.approx(expected.bytes_per_sample, rel=0.03, abs=0.5)
    assert np.mean(played.response_s) == pytest.approx(np.mean(expected.response_s), rel=0.03)
    for tier, load_there in expected.load.items():
        assert played.load[tier] == pytest.approx(load_there, rel=0.05, abs=0.01)


def test_mapping_keeps_what_would_wait_too_long_and_so_bounds_the_response() -> None:
    scene = system().with_load(1.5)
    expected, played = Mapping().expect(scene), play(Mapping(), scene)
    assert played.load["cloud"] == pytest.approx(expected.load["cloud"], rel=0.05)
    # The work of requests that have not ended when the last one arrives is counted, too.
    assert played.load["cloud"] <= 1.001
    assert played.quantile_s(0.95) == pytest.approx(expected.quantile_s(0.95), rel=0.1)


def test_threshold_keeps_the_load_of_the_last_tier_at_busy() -> None:
    scene = system().with_load(1.5)
    played, sent = play(Threshold(), scene), play(EndCloud(), scene)
    assert Threshold().expect(scene).load["cloud"] <= scene.busy
    assert played.load["cloud"] == pytest.approx(scene.busy, abs=0.1)
    assert played.quantile_s(0.95) < sent.quantile_s(0.95) / 10
    assert played.accuracy < sent.accuracy


def test_threshold_changes_nothing_while_the_last_tier_is_idle() -> None:
    scene = system().with_load(0.3)
    assert play(Threshold(), scene).accuracy == play(EndCloud(), scene).accuracy


def test_a_device_without_the_later_stages_answers_at_its_last_exit() -> None:
    scene = system(device_s=(0.005, np.inf)).with_load(0.5)
    assert End().expect(scene).accuracy == pytest.approx(scene.evidence.is_correct[:, 0].mean())
    expected, sent = Mapping().expect(scene), EndCloud().expect(scene)
    assert expected.bytes_per_sample == pytest.approx(sent.bytes_per_sample)
    assert expected.accuracy == pytest.approx(sent.accuracy)


def test_every_registered_scheduler_can_be_loaded() -> None:
    for name in SCHEDULERS.names():
        assert SCHEDULERS.load(name)().summary


@pytest.mark.parametrize(("policy", "share", "times"), [(EndCloud(), 0.5, 1), (Cloud(), 1.0, 2)])
def test_a_server_works_on_the_frames_that_it_receives(
    policy: Policy, share: float, times: int
) -> None:
    quiet, busy = (
        policy.expect(system(servers=80, received_s=received_s)) for received_s in (0.0, 0.02)
    )
    # 100 requests per second at 80 servers.
    assert busy.load["cloud"] - quiet.load["cloud"] == pytest.approx(
        100 * share * times * 0.02 / 80, rel=0.05
    )
    assert busy.load["end"] == quiet.load["end"]
    longer_s = np.mean(busy.response_s) - np.mean(quiet.response_s)
    assert longer_s == pytest.approx(share * times * 0.02, rel=0.1)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("load", [0.01, 0.6, 1.3])
def test_schedulers_that_decide_the_same_are_equally_accurate(batch: int, load: float) -> None:
    scene = replace(system(servers=2).with_load(load), batches=(1, batch))
    confidence, is_correct = scene.evidence.confidence, scene.evidence.is_correct
    right = [
        bool(correct[0] if first >= 0.5 else correct[1])
        for first, correct in zip(confidence[:, 0], is_correct, strict=True)
    ]
    accuracy = sum(right) / len(right)
    for policy in (End(), Cloud(), EndCloud(), Mapping()):
        requests = draw_requests(500, 1000, scene.arrivals_per_s, len(right), seed=3)
        assert policy.expect(scene).accuracy == pytest.approx(accuracy, abs=1e-12)
        assert policy.play(scene, requests).accuracy == pytest.approx(accuracy, abs=1e-12)


def test_bytes_of_batches_are_those_of_all_samples_and_not_of_the_drawn_ones() -> None:
    scene = replace(system(servers=2).with_load(0.5), batches=(1, 8))
    share = float((scene.evidence.confidence[:, 0] < 0.5).mean())
    assert EndCloud().expect(scene).bytes_per_sample == pytest.approx(100 * share)
    assert Cloud().expect(scene).bytes_per_sample == pytest.approx(800)


def test_exits_that_open_lower_the_accuracy_by_the_share_of_time_in_which_they_are_open() -> None:
    scene = system(servers=8).with_load(1.5)
    played = play(Threshold(), scene)
    closed, opened = scene.evidence.is_correct[:, 1], scene.evidence.is_correct[:, 0]
    stays = scene.evidence.confidence[:, 0] >= 0.5
    # Opened entirely, every request is answered by the first exit.
    assert opened.mean() < played.accuracy < np.where(stays, opened, closed).mean()
    flooded = play(Threshold(), system(servers=1, send_s=0.0).with_load(5000.0))
    assert flooded.accuracy == pytest.approx(float(opened.mean()), abs=0.02)


@pytest.mark.parametrize("batch", [1, 8])
def test_a_server_behind_a_full_link_has_the_load_of_what_is_sent_to_it(batch: int) -> None:
    scene = system(devices=1, servers=1, arrivals_per_s=30.0, link_s=0.1, device_s=(1e-4, np.inf))
    scene = replace(scene, batches=(1, batch))
    ours, sent = Mapping(Placing((1,))).expect(scene), EndCloud().expect(scene)
    # 30 / s, half of which need 0.1 s of the link and 0.04 s of the server each.
    for outcome in (ours, sent):
        assert outcome.link_load["end-cloud"] == pytest.approx(30 * 0.1 / 2, rel=0.03)
        assert outcome.load["cloud"] == pytest.approx(30 * 0.04 / 2, rel=0.03)
        assert np.isinf(outcome.quantile_s(0.95))


def test_a_device_that_is_full_by_its_first_stage_does_not_make_the_last_tier_full() -> None:
    scene = system(devices=1, servers=1, arrivals_per_s=30.0, device_s=(0.05, np.inf))
    placed = Mapping(Placing((1,))).expect(scene)
    assert placed.load["end"] == pytest.approx(30 * 0.05, rel=0.03)
    assert placed.load["cloud"] == pytest.approx(30 * 0.04 / 2, rel=0.05)

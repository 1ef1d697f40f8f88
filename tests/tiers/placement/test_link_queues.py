from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tiers.placement.systems import system
from workbench.tiers.placement.link_queues import (
    link_loads,
    link_waits,
    played_link_waits_s,
    without_heartbeats,
)
from workbench.tiers.placement.mapping import Mapping
from workbench.tiers.placement.policies import Cloud, EndCloud
from workbench.tiers.placement.queues import Wait, wait_of
from workbench.tiers.placement.schedulers import Outcome, Policy
from workbench.tiers.placement.simulated_queues import draw_requests
from workbench.tiers.placement.system import System

NUMBER = 200_000


def chain(counts: tuple[int, ...], links_s: tuple[float, ...]) -> System:
    names = ("end", "edge", "cloud")[-len(counts) :]
    return replace(system(), names=names, counts=counts, links_s=np.array(links_s))


def played_s(scene: System, sent_per_s: float) -> np.ndarray:
    requests = draw_requests(NUMBER, scene.counts[0], sent_per_s / scene.counts[0], 1)
    waits_s = played_link_waits_s(scene, scene.links_s, requests.arrival_s, requests.device)
    return waits_s[requests.counted]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("num_devices", [1, 50])
def test_a_link_makes_wait_as_a_queue_with_constant_service_does(
    load: float, num_devices: int
) -> None:
    scene, sent_per_s = chain((num_devices, 4), (0.1,)), load / 0.1 * num_devices
    [wait] = link_waits(scene, scene.links_s, sent_per_s)
    waits_s = played_s(scene, sent_per_s)
    exact_s = load * 0.1 / (2 * (1 - load))  # M/D/1
    assert link_loads(scene, scene.links_s, sent_per_s) == pytest.approx({"edge-cloud": load})
    assert wait.mean_s == pytest.approx(exact_s)
    assert waits_s.mean() == pytest.approx(exact_s, rel=0.02 if load < 0.9 else 0.06)
    drawn_s = wait.draw(NUMBER, np.random.default_rng(0))
    for share in (0.5, 0.9, 0.95, 0.99):
        assert np.quantile(waits_s, share) == pytest.approx(
            np.quantile(drawn_s, share), rel=0.06, abs=1e-3
        )


def test_waits_for_constant_service_have_their_known_distribution() -> None:
    service_s, load = 2.0, 0.6
    drawn_s = replace(wait_of(load / service_s, service_s), constant_s=service_s).draw(
        NUMBER, np.random.default_rng(1)
    )
    # Erlang (1909), for waits shorter than one service: (1 - load) exp(arrivals per second * wait).
    for wait_s in (0.0, 1.0, 1.9):
        known = (1 - load) * np.exp(load / service_s * wait_s)
        assert (drawn_s <= wait_s).mean() == pytest.approx(known, abs=0.005)


@pytest.mark.parametrize(
    ("counts", "links_s"),
    [
        ((1, 1, 1), (0.1, 0.05)),
        ((1, 1, 1), (0.05, 0.1)),
        ((160, 4, 1), (0.5, 0.06)),
        ((6, 6, 2), (0.02, 0.3)),
    ],
)
def test_links_in_a_row(counts: tuple[int, ...], links_s: tuple[float, float]) -> None:
    scene = chain(counts, links_s)
    sent_per_s = 0.6 / max(link_loads(scene, scene.links_s, 1.0).values())
    expected_s = sum(wait.mean_s for wait in link_waits(scene, scene.links_s, sent_per_s))
    assert played_s(scene, sent_per_s).mean() == pytest.approx(expected_s, rel=0.05)


def test_what_leaves_a_device_far_enough_apart_does_not_wait() -> None:
    scene = chain((10, 1), (0.1,))
    assert link_waits(scene, scene.links_s, 30.0, before_s=0.1) == []
    assert len(link_waits(scene, scene.links_s, 30.0, before_s=0.05)) == 1


def play(policy: Policy, scene: System, number: int = NUMBER) -> Outcome:
    requests = draw_requests(
        number, scene.counts[0], scene.arrivals_per_s, len(scene.exits), seed=0
    )
    return policy.play(scene, requests)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("policy", [EndCloud(), Cloud()])
def test_queues_on_links_are_planned_as_they_are_played(policy: Policy, load: float) -> None:
    link_s = 0.4
    used = 0.5 * link_s if isinstance(policy, EndCloud) else 2 * link_s
    scene = system(devices=20, link_s=link_s, send_s=link_s, arrivals_per_s=load / used)
    expected, played = policy.expect(scene), play(policy, scene)
    assert expected.link_load["end-cloud"] == pytest.approx(load, rel=0.02)
    assert played.link_load["end-cloud"] == pytest.approx(load, rel=0.05)
    assert np.mean(played.response_s) == pytest.approx(np.mean(expected.response_s), rel=0.05)
    assert played.quantile_s(0.95) == pytest.approx(expected.quantile_s(0.95), rel=0.05)


@pytest.mark.parametrize("policy", [EndCloud(), Cloud(), Mapping()])
def test_heartbeats_are_part_of_the_load_of_a_link_in_plans_and_simulations(policy: Policy) -> None:
    # Heartbeats take 0.2 of the time. A frame takes 0.08 s, which is 0.1 s of the time that they
    # leave: half of 4 requests per second are sent as features, all of them as inputs, which are
    # twice as large.
    scene = replace(
        system(devices=20, link_s=0.1, send_s=0.1, arrivals_per_s=4.0, device_s=(0.005, 9.0)),
        heartbeat_load=np.array([0.2]),
    )
    load = 0.2 + (4.0 * 0.16 if isinstance(policy, Cloud) else 2.0 * 0.08)
    assert policy.expect(scene).link_load["end-cloud"] == pytest.approx(load, rel=0.02)
    assert play(policy, scene).link_load["end-cloud"] == pytest.approx(load, rel=0.05)


def test_a_link_is_full_when_requests_take_what_heartbeats_leave() -> None:
    # Two links in a row: heartbeats take a quarter of the first, a half of the second.
    scene = replace(chain((4, 2, 1), (0.2, 0.1)), heartbeat_load=np.array([0.25, 0.5]))
    # 8 requests per second: 2 x 0.2 = 0.4 and 4 x 0.1 = 0.4 of what is left.
    loads = link_loads(scene, scene.links_s, 8.0)
    assert loads == pytest.approx({"end-edge": 0.25 + 0.75 * 0.4, "edge-cloud": 0.5 + 0.5 * 0.4})
    assert without_heartbeats(scene, loads) == pytest.approx({"end-edge": 0.4, "edge-cloud": 0.4})
    assert link_loads(scene, scene.links_s, 20.0) == pytest.approx(
        {"end-edge": 1.0, "edge-cloud": 1.0}
    )


def test_mapping_computes_here_what_would_wait_too_long_for_a_link() -> None:
    scene = system(devices=20, link_s=0.15, send_s=0.15, device_s=(0.005, 0.3), arrivals_per_s=10.0)
    assert EndCloud().expect(scene).link_load["end-cloud"] == pytest.approx(0.75, rel=0.05)
    expected, played, sent = (
        Mapping().expect(scene),
        play(Mapping(), scene, 30_000),
        play(EndCloud(), scene),
    )
    assert played.quantile_s(0.95) < sent.quantile_s(0.95)
    assert played.quantile_s(0.95) == pytest.approx(expected.quantile_s(0.95), rel=0.15)
    assert played.link_load["end-cloud"] == pytest.approx(expected.link_load["end-cloud"], rel=0.15)


def test_a_link_that_cannot_carry_what_is_sent_has_no_finite_wait() -> None:
    scene = system(devices=20, link_s=0.4, arrivals_per_s=6.0)
    expected = EndCloud().expect(scene)
    assert expected.highest_load > 1
    assert expected.quantile_s(0.95) == np.inf
    assert (
        Wait(1.0, np.inf, constant_s=0.4).draw(3, np.random.default_rng(0)).tolist() == [np.inf] * 3
    )

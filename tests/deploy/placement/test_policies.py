from __future__ import annotations

import numpy as np
import pytest

from tests.deploy.placement.systems import system
from workbench.deploy.placement.played_queues import draw_requests
from workbench.deploy.placement.policies import Cloud, End, EndCloud, Mapping, Threshold
from workbench.deploy.placement.schedulers import SCHEDULERS

NUMBER = 60_000


def play(policy: object, given) -> object:
    requests = draw_requests(NUMBER, given.counts[0], given.arrivals_per_s, len(given.exits), seed=0)
    return policy.play(given, requests)


@pytest.mark.parametrize("load", [0.5, 0.7, 0.9, 1.1, 1.3, 1.5])
def test_mapping_is_faster_than_end_and_end_cloud_at_equal_accuracy(load: float) -> None:
    given = system().with_load(load)
    ours, end, sent = (play(policy, given) for policy in (Mapping(), End(), EndCloud()))
    assert ours.accuracy == pytest.approx(end.accuracy) == pytest.approx(sent.accuracy)
    assert ours.quantile_s(0.95) <= end.quantile_s(0.95)
    assert ours.quantile_s(0.95) <= sent.quantile_s(0.95) * (1 + 1e-9)


@pytest.mark.parametrize("policy", [End(), EndCloud(), Cloud(), Mapping(), Threshold()])
@pytest.mark.parametrize(
    ("load", "sent_accuracy", "received_s"),
    [(0.2, None, 0.0), (0.4, None, 0.0), (0.4, 0.7, 0.0), (0.4, None, 0.01)],
)
def test_what_closed_forms_expect_is_what_is_played(
    policy: object, load: float, sent_accuracy: float | None, received_s: float
) -> None:
    given = system(
        servers=2, server_s=(0.02, 0.04), sent_accuracy=sent_accuracy, received_s=received_s
    ).with_load(load)
    expected, played = policy.expect(given), play(policy, given)
    assert played.accuracy == pytest.approx(expected.accuracy, abs=0.01)
    assert played.bytes_per_sample == pytest.approx(expected.bytes_per_sample, rel=0.03, abs=0.5)
    assert np.mean(played.response_s) == pytest.approx(np.mean(expected.response_s), rel=0.03)
    for tier, load_there in expected.load.items():
        assert played.load[tier] == pytest.approx(load_there, rel=0.05, abs=0.01)


def test_mapping_keeps_what_would_wait_too_long_and_so_bounds_the_response() -> None:
    given = system().with_load(1.5)
    expected, played = Mapping().expect(given), play(Mapping(), given)
    assert played.load["cloud"] == pytest.approx(expected.load["cloud"], rel=0.05)
    assert played.load["cloud"] <= 1.0 + 1e-9
    assert played.quantile_s(0.95) == pytest.approx(expected.quantile_s(0.95), rel=0.1)


def test_threshold_keeps_the_load_of_the_last_tier_at_busy() -> None:
    given = system().with_load(1.5)
    played, sent = play(Threshold(), given), play(EndCloud(), given)
    assert Threshold().expect(given).load["cloud"] <= given.busy
    assert played.load["cloud"] == pytest.approx(given.busy, abs=0.1)
    assert played.quantile_s(0.95) < sent.quantile_s(0.95) / 10
    assert played.accuracy < sent.accuracy


def test_threshold_changes_nothing_while_the_last_tier_is_idle() -> None:
    given = system().with_load(0.3)
    assert play(Threshold(), given).accuracy == play(EndCloud(), given).accuracy


def test_a_device_without_the_later_stages_answers_at_its_last_exit() -> None:
    given = system(device_s=(0.005, np.inf)).with_load(0.5)
    assert End().expect(given).accuracy == pytest.approx(given.evidence.is_correct[:, 0].mean())
    assert Mapping().expect(given).bytes_per_sample == EndCloud().expect(given).bytes_per_sample


def test_every_registered_scheduler_can_be_loaded() -> None:
    for name in SCHEDULERS.names():
        assert SCHEDULERS.load(name)().summary


@pytest.mark.parametrize(("policy", "share", "times"), [(EndCloud(), 0.5, 1), (Cloud(), 1.0, 2)])
def test_a_server_works_on_the_frames_that_it_receives(policy: object, share: float, times: int) -> None:
    quiet, busy = (policy.expect(system(servers=80, received_s=received_s)) for received_s in (0.0, 0.02))
    # 100 requests per second at 80 servers.
    assert busy.load["cloud"] - quiet.load["cloud"] == pytest.approx(
        100 * share * times * 0.02 / 80, rel=0.05
    )
    assert busy.load["end"] == quiet.load["end"]
    longer_s = np.mean(busy.response_s) - np.mean(quiet.response_s)
    assert longer_s == pytest.approx(share * times * 0.02, rel=0.1)

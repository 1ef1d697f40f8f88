"""Trials across machines with addresses of their own, on links that are slow, and cut in the
middle.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.clusters import Cluster
from tests.services.network import Network, why_not
from tests.services.sweeps import Sweep, start_on
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.events import (
    AdviceGiven,
    AttemptEnded,
    PlanMeasured,
    TrialReported,
    TrialStarted,
)
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.slow]
MEGABITS_PER_S = 100
WIDTH = 256
NUM_PARAMETERS = 64 * WIDTH + WIDTH + WIDTH * 10 + 10
SILENT_WITHIN_S = 45.0  # on a busy machine; Ray itself takes more than a minute


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    network = Network()
    yield network
    network.close()


@pytest.fixture(scope="module")
def cluster(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head at the middle of the network, and two machines with two CPUs each."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), address=network.address)
    try:
        for _ in range(2):
            place = network.add()
            network.limit(place, MEGABITS_PER_S)
            cluster.add(num_cpus=2, place=place)
        yield cluster
    finally:
        cluster.close()


def start(cluster: Cluster, store: Store, folder: Path, placement: str, **fields: Any) -> Sweep:
    settings: dict[str, Any] = {
        "name": placement,
        "model": {"name": "mlp", "hidden_width": WIDTH, "num_layers": 1},
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "search": {"lr": {"choices": [0.02]}},
        "training": {"epochs": 4, "global_batch": 64},
        "plan": {"workers": 2},
        "budget": {"trials": 1},
        "resources": {"placement": placement, "concurrency": 1, "max_retries": 5},
    }
    return start_on(cluster, store, Experiment(**settings | fields), folder)


def machines_of(cluster: Cluster, sweep: Sweep) -> set[str]:
    """The machines on which the workers of the last attempt are."""
    pids = set(sweep.of(TrialStarted)[-1].worker_pids)
    return {
        node.name for node in cluster.nodes if pids & {process.pid for process in node.processes()}
    }


def samples_per_s(sweep: Sweep) -> float:
    speeds = [event.samples_per_s for event in sweep.of(TrialReported)]
    return statistics.median(value for value in speeds if value is not None)


def test_a_trial_across_a_slow_link_trains_the_same_and_is_as_slow_as_the_link(
    cluster, network, store, tmp_path
):
    packed = start(cluster, store, tmp_path, "pack")
    packed.wait_for(TrialStarted)
    assert len(machines_of(cluster, packed)) == 1
    packed.wait("complete", timeout_s=120)
    before = [network.carried_bytes(place) for place in network.places]
    spread = start(cluster, store, tmp_path, "spread")
    spread.wait_for(TrialStarted)
    assert len(machines_of(cluster, spread)) == 2
    spread.wait("complete", timeout_s=180)
    sent = [network.carried_bytes(place) for place in network.places]
    num_steps = max(event.step for event in spread.of(TrialReported))
    gradient_bytes = 4 * NUM_PARAMETERS
    # Of two workers each sends half of the gradient, and half of the sum: all of it once a step.
    for was, is_now in zip(before, sent, strict=True):
        assert is_now - was > gradient_bytes * num_steps
    assert spread.trials[0].values["val_loss"] == pytest.approx(
        packed.trials[0].values["val_loss"], rel=1e-3
    )
    link_s = 8 * gradient_bytes / (MEGABITS_PER_S * 1e6)
    assert 64 / samples_per_s(spread) > 0.8 * link_s
    assert samples_per_s(spread) < samples_per_s(packed)


def test_an_advised_sweep_measures_both_places_of_workers_and_keeps_off_the_slow_link(
    cluster, store, tmp_path
):
    sweep = start(
        cluster, store, tmp_path, "auto", resources={"concurrency": 1, "advice": "always"}
    ).wait("complete", timeout_s=120)
    (given,) = sweep.of(AdviceGiven)
    advice: Any = given.advice
    assert advice["settings"]["resources.placement"] == "pack"
    assert any("workers are placed on few" in sentence for sentence in advice["measured"])
    measured = [event for event in sweep.of(PlanMeasured) if event.by_trial is None]
    assert {tuple(event.workers_per_node or ()) for event in measured} == {(2,), (1, 1)}
    assert len(machines_of(cluster, sweep)) == 1


def test_a_trial_across_a_link_with_latency_waits_for_it_at_every_step(tmp_path, store):
    delay_s = 0.04  # far longer than a step takes without it, also on a busy machine
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    network = Network()
    cluster = Cluster(tmp_path / "cluster", address=network.address)
    try:
        for _ in range(2):
            cluster.add(num_cpus=2, place=network.add(delay_s=delay_s))
        packed = start(cluster, store, tmp_path, "pack").wait("complete", timeout_s=120)
        spread = start(cluster, store, tmp_path, "spread").wait("complete", timeout_s=240)
        assert len(machines_of(cluster, packed)) == 1
        assert len(machines_of(cluster, spread)) == 2
    finally:
        cluster.close()
        network.close()
    # Both links lie between two workers, and the sum of a gradient takes two messages one after
    # another.
    assert 64 / samples_per_s(spread) > 2 * (2 * delay_s) > 64 / samples_per_s(packed)
    assert spread.trials[0].values["val_loss"] == pytest.approx(
        packed.trials[0].values["val_loss"], rel=1e-3
    )


def test_a_trial_whose_link_is_cut_goes_on_elsewhere_within_seconds(
    cluster, network, store, tmp_path
):
    sweep = start(cluster, store, tmp_path, "spread", training={"epochs": 400, "global_batch": 64})
    wait_until(lambda: len(sweep.of(TrialReported)) >= 3)
    assert len(machines_of(cluster, sweep)) == 2
    network.cut(network.places[1])
    try:
        ended = wait_until(lambda: sweep.of(AttemptEnded), timeout_s=SILENT_WITHIN_S)
        assert ended[0].reason == "lost"
        wait_until(lambda: len(sweep.of(TrialStarted)) >= 2)
        assert machines_of(cluster, sweep) == {cluster.nodes[0].name}
        resumed = sweep.of(TrialStarted)[-1]
        assert resumed.resumed_from is not None
        reported = len(sweep.of(TrialReported))
        wait_until(lambda: len(sweep.of(TrialReported)) > reported)
    finally:
        network.mend(network.places[1])
    sweep.store.command(sweep.run_id, "stop", {})
    sweep.wait("stopped")

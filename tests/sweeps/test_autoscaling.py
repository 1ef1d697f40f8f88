"""A cluster that has no machines until they are asked for.

Ray's own autoscaler, and real raylets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.services.clusters import Cluster
from tests.services.sweeps import start_on
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.events import Noted, TrialStarted
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster", grows_to=2)
    yield cluster
    cluster.close()


def num_nodes(cluster: Cluster) -> int:
    """Raylets that run; nobody waits for those that the autoscaler has ended."""
    num = 0
    for process in cluster.head.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            num += "raylet" in process.name() and process.status() != psutil.STATUS_ZOMBIE
    return num


def test_a_run_has_the_cluster_grow_from_nothing_and_shrink_again(
    growing: Cluster, store: Store, tmp_path: Path
) -> None:
    experiment = Experiment(
        name="growing",
        train={"name": "tests.faults.trained_function:descend", "steps": 20, "pause_s": 0.4},
        objectives=[{"metric": "loss", "goal": "minimize"}],
        sampler="random",
        budget={"trials": 4},
        search={"x": {"low": 0.0, "high": 1.0}, "y": {"low": 1, "high": 9}},
        resources={"autoscaling": True, "concurrency": 2},
    )
    sweep = start_on(growing, store, experiment, tmp_path)
    sweep.wait("complete", timeout_s=180)
    assert [trial.state for trial in sweep.trials] == ["complete"] * 4
    joined = [event.message for event in sweep.of(Noted) if "joined the cluster" in event.message]
    assert len(joined) == 2
    assert {len(event.hosts) for event in sweep.of(TrialStarted)} == {1}
    assert num_nodes(growing) == 1 + 2
    wait_until(lambda: num_nodes(growing) == 1, timeout_s=180)

"""A cluster that has no machines until they are asked for: Ray's own autoscaler, and real raylets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import make_experiment, start_on, wait_until

from tests.cluster import Cluster
from workbench.events import Noted, TrialStarted
from workbench.store import Store

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster", grows_to=2)
    yield cluster
    cluster.close()


def num_raylets(cluster: Cluster) -> int:
    return sum("raylet" in Path(process.name()).name for process in cluster.head.processes())


def test_a_run_has_the_cluster_grow_from_nothing_and_shrink_again(
    growing: Cluster, store: Store, tmp_path: Path
) -> None:
    experiment = make_experiment(
        "curve", name="growing", budget={"trials": 4}, options={"steps": 20, "pause_s": 0.2},
        resources={"autoscaling": True, "concurrency": 2},
    )  # fmt: skip
    sweep = start_on(growing, store, experiment, tmp_path)
    sweep.wait("complete", timeout_s=180)
    assert [trial.state for trial in sweep.trials] == ["complete"] * 4
    joined = [event.message for event in sweep.of(Noted) if "joined the cluster" in event.message]
    assert len(joined) == 2
    assert {len(event.hosts) for event in sweep.of(TrialStarted)} == {1}
    assert num_raylets(growing) == 1 + 2
    wait_until(lambda: num_raylets(growing) == 1, timeout_s=180)

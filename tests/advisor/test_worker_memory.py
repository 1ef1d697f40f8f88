"""How much memory one worker of an experiment may hold."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.advisor.memory import memory_limit_bytes
from workbench.cluster.workers.capacity import capacity_of
from workbench.experiment import Experiment
from workbench.hardware.resources.cluster import ClusterInventory, NodeInventory

GB = 10**9


@pytest.mark.parametrize(
    ("settings", "expected_gb"),
    [
        pytest.param({}, 2, id="as many workers as there are cores"),
        pytest.param(
            {"plan": {"workers": 1}, "resources": {"concurrency": 1}}, 8, id="one at a time"
        ),
        pytest.param(
            {"plan": {"workers": 2}, "resources": {"concurrency": 1}}, 4, id="two of one trial"
        ),
        pytest.param({"plan": {"workers": 1}, "budget": {"trials": 2}}, 4, id="two trials"),
        pytest.param({"resources": {"concurrency": 1}}, 2, id="a trial may take all workers"),
        pytest.param({"plan": {"workers": 1}}, 2, id="as many trials as there are cores"),
    ],
)
def test_workers_share_the_memory_of_their_node_with_those_that_run_at_the_same_time(
    settings: dict[str, Any], expected_gb: int
) -> None:
    fields: dict[str, Any] = {
        "model": "mlp",
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "search": {"lr": {"low": 1e-3, "high": 1e-1}},
        "budget": {"trials": 20},
        **settings,
    }
    experiment = Experiment(**fields)
    cluster = ClusterInventory((NodeInventory("a", "a", 4.0, 0.0, 8 * GB),))
    assert (
        memory_limit_bytes(experiment, capacity_of(experiment, cluster), cluster)
        == expected_gb * GB
    )

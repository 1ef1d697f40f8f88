"""What a run uses of a cluster: workers and where they go, trials at once, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.sweeps import make_experiment
from workbench.foundation.errors import ResourcesError
from workbench.hardware.resources import ClusterInventory, NodeInventory
from workbench.sweeps.trial_resources import share_of


def cluster_of(*num_cpus: float) -> ClusterInventory:
    return ClusterInventory(
        tuple(
            NodeInventory(f"node-{index}", "host", cpus, 0.0, 1)
            for index, cpus in enumerate(num_cpus)
        )
    )


@pytest.mark.parametrize(
    ("said", "advised", "placed"),
    [
        ("auto", "spread", "spread"),
        ("auto", "pack", "pack"),
        ("pack", "spread", "pack"),
        ("spread", "pack", "spread"),
    ],
)
def test_workers_go_where_a_person_says_or_else_where_the_advice_does(
    said: str, advised: Any, placed: str
) -> None:
    experiment = make_experiment("curve", resources={"placement": said})
    share = share_of("run", experiment, cluster_of(2, 2), advised_placement=advised)
    assert share.request.placement == placed


def test_a_cluster_without_machines_is_refused_unless_it_is_said_to_grow() -> None:
    fixed = make_experiment("curve", plan={"workers": 2}, resources={"concurrency": 3})
    with pytest.raises(ResourcesError, match=r"resources\.autoscaling: .* has no machine"):
        share_of("run", fixed, cluster_of())
    growing = make_experiment(
        "curve", plan={"workers": 2}, resources={"concurrency": 3, "autoscaling": True}
    )
    share = share_of("run", growing, cluster_of())
    assert (share.concurrency, share.num_fitting) == (3, 3)
    assert share.request.autoscaling
    assert share_of("run", growing, cluster_of(16)).num_fitting == 8


@pytest.mark.parametrize(
    ("resources", "field", "allowed"),
    [
        ({"cpus_per_worker": 3}, "resources.cpus_per_worker", "at most 2"),
        ({"gpus_per_worker": 2}, "resources.gpus_per_worker", "at most 1"),
    ],
)
def test_a_worker_that_no_machine_can_hold_is_refused_by_its_size(
    resources: dict[str, int], field: str, allowed: str
) -> None:
    node = NodeInventory("a", "a", num_cpus=2, num_gpus=1, memory_bytes=2**30)
    cluster = ClusterInventory((node, node))
    with pytest.raises(ResourcesError) as caught:
        share_of("run", make_experiment("curve", resources=resources), cluster)
    assert (caught.value.field, caught.value.allowed) == (field, allowed)


def test_no_more_trials_are_proposed_than_the_hardware_can_run_unless_it_grows() -> None:
    many = make_experiment("curve", resources={"concurrency": 99})
    share = share_of("run", many, cluster_of(2))
    assert (share.concurrency, share.at_once) == (99, 2)
    assert share.describe_concurrency(99, 2).endswith("room for 2 (1 CPU each), so the others wait")
    growing = make_experiment("curve", resources={"concurrency": 99, "autoscaling": True})
    assert share_of("run", growing, cluster_of(2)).at_once == 99


def test_room_is_described_by_what_a_trial_takes() -> None:
    share = share_of("run", make_experiment("curve", resources={"concurrency": 3}), cluster_of(2))
    assert share.describe_room() == "2 (1 CPU each)"
    pair = make_experiment("curve", plan={"workers": 2}, resources={"gpus_per_worker": 1})
    nodes = ClusterInventory((NodeInventory("node", "host", 8, 4.0, 1),))
    assert share_of("run", pair, nodes).describe_room() == "2 (2 CPUs and 2 GPUs each)"

"""Node monitors: no round waits, nothing is counted twice, and a node that does not answer has a
state.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.services.waiting import wait_until
from workbench.cluster.workers import node_monitors
from workbench.cluster.workers.node_monitors import NodeMonitors
from workbench.hardware.resources import ClusterInventory, NodeSample, WatchedWorker

pytestmark = pytest.mark.ray
ANSWER_S = 0.1


@pytest.fixture
def collected(ray_head: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeMonitors]:
    """NodeMonitors that take the only node for another one than their own, and lose patience
    soon.
    """
    for name, value_s in {
        "NODES_FRESH_S": 0.0,
        "SILENT_AFTER_S": 1.0,
        "RETRY_S": 0.0,
        "FORGET_S": 1.0,
    }.items():
        monkeypatch.setattr(node_monitors, name, value_s)
    made = NodeMonitors()
    made._here = "here"
    yield made
    made.close()


@pytest.mark.slow
def test_nodes_are_followed_whatever_becomes_of_them(
    collected: NodeMonitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    there = ray.get_runtime_context().get_node_id()
    employed = {there: [WatchedWorker(os.getpid(), trial=3)]}

    def wait_for(is_it: Callable[[NodeSample], bool]) -> NodeSample:
        def find() -> NodeSample | None:
            seen = collected.collect(employed, ANSWER_S)
            assert seen["here"].state == "ok"
            return seen[there] if there in seen and is_it(seen[there]) else None

        node = wait_until(find)
        assert node is not None
        return node

    first = wait_for(lambda sample: sample.state == "ok")
    assert [(worker.pid, worker.trial) for worker in first.workers] == [(os.getpid(), 3)]
    told = wait_for(lambda sample: sample.elapsed_s > 0)
    assert told.memory_used_bytes

    actor = collected._nodes[there].actor
    process = psutil.Process(ray.get(actor.__ray_call__.remote(lambda _: os.getpid())))
    process.send_signal(signal.SIGSTOP)
    late = wait_for(lambda sample: sample.elapsed_s == 0 and sample.state == "ok")
    assert late.memory_used_bytes  # as it was last, and nothing counted twice
    assert late.cpu_energy_j is None
    silent = wait_for(lambda sample: sample.state == "silent")
    assert (silent.machine, silent.memory_used_bytes, silent.workers) == (first.machine, None, ())
    process.send_signal(signal.SIGCONT)
    wait_for(lambda sample: sample.state == "ok")

    process.kill()
    wait_for(
        lambda sample: collected._nodes[there].actor not in (None, actor) and sample.elapsed_s > 0
    )

    monkeypatch.setattr(node_monitors, "cluster_inventory", lambda: ClusterInventory(()))
    assert wait_for(lambda sample: sample.state == "gone").machine == first.machine
    time.sleep(1.1)
    assert collected.collect(employed, ANSWER_S).keys() == {"here"}

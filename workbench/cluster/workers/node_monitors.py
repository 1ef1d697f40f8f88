"""Monitor every node of the cluster by a sampler on each, round by round.

The node of this process is sampled in it. On every other node runs a small actor that reserves no
CPU and ends with this process. A round does not wait. If a node does not answer in time, its last
sample is reported with its state.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError

from workbench.cluster.workers.nodes import on_node
from workbench.hardware.resources import (
    Inventory,
    NodeInventory,
    NodeSample,
    Sampler,
    WatchedWorker,
    cluster_inventory,
)

NODES_FRESH_S = 5.0
SILENT_AFTER_S = 10.0
"""How long a node may take to answer before it is reported as silent."""
RETRY_S = 10.0
FORGET_S = 60.0
"""How long a node that has left the cluster is still reported."""


class NodeMonitor:
    """The sampler of one node, in an actor on that node."""

    def __init__(self) -> None:
        """Detect the hardware of the node."""
        self._sampler = Sampler()

    def sample(self, employed: Sequence[WatchedWorker]) -> NodeSample:
        """Return the current usage of the node.

        Args:
            employed: The workers on it that are reported one by one.
        """
        return self._sampler.sample(employed)


@dataclass
class _Node:
    """A node of the cluster, and what is known of it."""

    inventory: NodeInventory
    listed_s: float
    """When the cluster listed it last."""
    answered_s: float
    last: NodeSample | None = None
    is_new: bool = False
    """Whether the last sample has not been returned yet."""
    actor: Any = None
    pending: Any = None
    start_after_s: float = 0.0


class NodeMonitors:
    """The monitors of the attached cluster. They must be used by one thread."""

    def __init__(self) -> None:
        """Start with the node of this process. The others follow with the first round."""
        self._here = ray.get_runtime_context().get_node_id()
        self._own = Sampler()
        self._nodes: dict[str, _Node] = {}
        self._listed_s = float("-inf")

    def collect(
        self, employed: Mapping[str, Sequence[WatchedWorker]], timeout_s: float
    ) -> dict[str, NodeSample]:
        """Sample all nodes.

        Args:
            employed: The workers that are reported one by one, by node.
            timeout_s: How long to wait for the other nodes.

        Returns:
            A sample by node. Nodes that have never answered are missing.
        """
        self._list_nodes()
        self._request(employed)
        sample_here = self._own.sample(employed.get(self._here, ()))
        pending = [node.pending for node in self._nodes.values() if node.pending is not None]
        if pending:
            ray.wait(pending, num_returns=len(pending), timeout=timeout_s)
        for node in self._nodes.values():
            if node.pending is not None:
                self._receive(node)
        others = {name: self._sample_of(node) for name, node in self._nodes.items()}
        return {self._here: sample_here} | {
            name: sample for name, sample in others.items() if sample is not None
        }

    def close(self) -> None:
        """End the monitors of all nodes."""
        self._own.close()
        for node in self._nodes.values():
            if node.actor is not None:
                ray.kill(node.actor)
        self._nodes.clear()

    def _list_nodes(self) -> None:
        """List the nodes of the cluster, and forget those that left a while ago."""
        now_s = time.monotonic()
        if now_s - self._listed_s < NODES_FRESH_S:
            return
        self._listed_s = now_s
        for inventory in cluster_inventory().nodes:
            if inventory.node_id == self._here:
                continue
            node = self._nodes.setdefault(inventory.node_id, _Node(inventory, now_s, now_s))
            node.listed_s = now_s
        for name in [
            name for name, node in self._nodes.items() if now_s - node.listed_s > FORGET_S
        ]:
            del self._nodes[name]

    def _request(self, employed: Mapping[str, Sequence[WatchedWorker]]) -> None:
        now_s = time.monotonic()
        for name, node in self._nodes.items():
            if node.pending is not None or node.listed_s < self._listed_s:
                continue
            if node.actor is None:
                if now_s < node.start_after_s:
                    continue
                node.actor, node.start_after_s = _start(name), now_s + RETRY_S
            node.pending = node.actor.sample.remote(list(employed.get(name, ())))

    def _receive(self, node: _Node) -> None:
        """Take the sample of a node if it has arrived."""
        if not ray.wait([node.pending], timeout=0)[0]:
            return
        try:
            node.last, node.is_new = ray.get(node.pending), True
            node.answered_s = time.monotonic()
        except RayError:  # its process ended, and another one is started if the node still exists
            node.actor = None
        node.pending = None

    def _sample_of(self, node: _Node) -> NodeSample | None:
        now_s = time.monotonic()
        if node.listed_s < self._listed_s:
            return NodeSample(_machine(node), time.time(), "gone")
        if now_s - node.answered_s > SILENT_AFTER_S:
            return NodeSample(_machine(node), time.time(), "silent")
        is_new, node.is_new = node.is_new, False
        return node.last if is_new or node.last is None else _without_sums(node.last)


def _without_sums(sample: NodeSample) -> NodeSample:
    """Return a sample to be repeated, without what is counted since the one before."""
    return replace(
        sample,
        elapsed_s=0.0,
        cpu_energy_j=None,
        gpus=tuple(replace(gpu, energy_j=None, xids=()) for gpu in sample.gpus),
        workers=tuple(replace(worker, cpu_energy_j=None) for worker in sample.workers),
    )


def _machine(node: _Node) -> Inventory:
    """Return the hardware of a node, as it reported it or else as the cluster lists it."""
    if node.last is not None:
        return node.last.machine
    return Inventory(node.inventory.host, int(node.inventory.num_cpus), node.inventory.memory_bytes)


def _start(node_id: str) -> Any:
    return ray.remote(NodeMonitor).options(**on_node(node_id)).remote()

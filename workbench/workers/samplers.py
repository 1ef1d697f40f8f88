"""One sampler on every node of the cluster, and what they see, collected round by round.

The node of this process is looked at in it; on every other a small actor, which takes no CPU of Ray's, ends
with this process. A round waits for nobody: a node that does not answer in time is told as it was last, with
its state. What is done with the samples is left to the caller.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError

from workbench.resources import Employed, Inventory, NodeInventory, NodeSample, Sampler, cluster_inventory
from workbench.workers.places import on_node

NODES_FRESH_S = 5.0
SILENT_AFTER_S = 10.0
"""How long a node may take to answer before it is said to be silent."""
RETRY_S = 10.0
FORGET_S = 60.0
"""How long a node that has left the cluster is still told of."""


class NodeSampler:
    """The sampler of one node, in a process of its own there."""

    def __init__(self) -> None:
        """Find out what there is."""
        self._sampler = Sampler()

    def look(self, employed: Sequence[Employed]) -> NodeSample:
        """Return what the node is doing.

        Args:
            employed: The workers there to tell of.
        """
        return self._sampler.look(employed)


@dataclass
class _Node:
    """A node of the cluster, and what is known of it."""

    offers: NodeInventory
    seen_s: float
    """When the cluster knew it last."""
    answered_s: float
    last: NodeSample | None = None
    is_new: bool = False
    """Whether nobody was told of the last sample yet."""
    actor: Any = None
    asked: Any = None
    start_after_s: float = 0.0


class Samplers:
    """The samplers of a cluster that this process is attached to; used by one thread."""

    def __init__(self) -> None:
        """Begin with the node of this process; the others follow with the first round."""
        self._here = ray.get_runtime_context().get_node_id()
        self._own = Sampler()
        self._nodes: dict[str, _Node] = {}
        self._listed_s = float("-inf")

    def round(self, employed: Mapping[str, Sequence[Employed]], timeout_s: float) -> dict[str, NodeSample]:
        """Look at all nodes.

        Args:
            employed: By node, the workers to tell of.
            timeout_s: How long to wait for the others.

        Returns:
            By node, what it is doing; nodes that have not answered yet are missing.
        """
        self._list_nodes()
        self._ask(employed)
        own = self._own.look(employed.get(self._here, ()))
        pending = [node.asked for node in self._nodes.values() if node.asked is not None]
        if pending:
            ray.wait(pending, num_returns=len(pending), timeout=timeout_s)
        for node in self._nodes.values():
            if node.asked is not None:
                self._take(node)
        told = {name: self._tell(node) for name, node in self._nodes.items()}
        return {self._here: own} | {name: sample for name, sample in told.items() if sample is not None}

    def close(self) -> None:
        """End the samplers of all nodes."""
        self._own.close()
        for node in self._nodes.values():
            if node.actor is not None:
                ray.kill(node.actor)
        self._nodes.clear()

    def _list_nodes(self) -> None:
        """Find out which nodes there are, and forget those that left a while ago."""
        now_s = time.monotonic()
        if now_s - self._listed_s < NODES_FRESH_S:
            return
        self._listed_s = now_s
        for offers in cluster_inventory().nodes:
            if offers.node_id == self._here:
                continue
            node = self._nodes.setdefault(offers.node_id, _Node(offers, now_s, now_s))
            node.seen_s = now_s
        for name in [name for name, node in self._nodes.items() if now_s - node.seen_s > FORGET_S]:
            del self._nodes[name]

    def _ask(self, employed: Mapping[str, Sequence[Employed]]) -> None:
        now_s = time.monotonic()
        for name, node in self._nodes.items():
            if node.asked is not None or node.seen_s < self._listed_s:
                continue
            if node.actor is None:
                if now_s < node.start_after_s:
                    continue
                node.actor, node.start_after_s = _start(name), now_s + RETRY_S
            node.asked = node.actor.look.remote(list(employed.get(name, ())))

    def _take(self, node: _Node) -> None:
        """Take the answer of a node where it has come."""
        if not ray.wait([node.asked], timeout=0)[0]:
            return
        try:
            node.last, node.is_new = ray.get(node.asked), True
            node.answered_s = time.monotonic()
        except RayError:  # its process ended; another one is started as long as the node is there
            node.actor = None
        node.asked = None

    def _tell(self, node: _Node) -> NodeSample | None:
        now_s = time.monotonic()
        if node.seen_s < self._listed_s:
            return NodeSample(_machine(node), time.time(), "gone")
        if now_s - node.answered_s > SILENT_AFTER_S:
            return NodeSample(_machine(node), time.time(), "silent")
        is_new, node.is_new = node.is_new, False
        return node.last if is_new or node.last is None else _without_sums(node.last)


def _without_sums(sample: NodeSample) -> NodeSample:
    """Return a sample as it is told once more: what counts from look to look would be counted twice."""
    return replace(
        sample,
        elapsed_s=0.0,
        cpu_energy_j=None,
        gpus=tuple(replace(gpu, energy_j=None, xids=()) for gpu in sample.gpus),
        workers=tuple(replace(worker, cpu_energy_j=None) for worker in sample.workers),
    )


def _machine(node: _Node) -> Inventory:
    """Return what a node has, as far as it or else the cluster told."""
    if node.last is not None:
        return node.last.machine
    return Inventory(node.offers.host, int(node.offers.num_cpus), node.offers.memory_bytes)


def _start(node_id: str) -> Any:
    return ray.remote(NodeSampler).options(**on_node(node_id)).remote()

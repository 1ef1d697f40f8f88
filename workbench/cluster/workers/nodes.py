"""The nodes of the cluster as the pool sees them: which can be used now, and which may come back.

A node that is lost or silent is given no gang. It still counts when the pool checks whether a gang
can ever run: it may come back, so a gang that needs it waits for a while instead of failing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import ray
from ray._private import state as cluster_state

from workbench.cluster.workers.admission import CPU_SHARE, Node, Shape
from workbench.cluster.workers.liveness import LivenessMonitor

FRESH_S = 1.0
RETURN_S = 600.0
"""How long gangs that need a lost node wait for it."""


class Slot(NamedTuple):
    """The node and the shape of a worker."""

    node_id: str
    shape: Shape


class Nodes:
    """All nodes that are in the cluster or left it lately."""

    def __init__(self) -> None:
        """Start without nodes."""
        self._liveness = LivenessMonitor()
        self._seen: dict[str, dict[str, Any]] = {}
        self._seen_s: dict[str, float] = {}
        self._alive: frozenset[str] = frozenset()
        self._silent: frozenset[str] = frozenset()
        self._listed_s = float("-inf")

    def find_silent(self) -> frozenset[str]:
        """Find silent nodes; called every half second or so while the pool has something to do.

        Returns:
            The nodes that have fallen silent since the last call.
        """
        self._refresh()
        before, self._silent = self._silent, self._liveness.poll(self._alive)
        return self._silent - before

    def stop_monitoring(self) -> None:
        """Stop watching for silent nodes until the next `find_silent`."""
        self._liveness.stop()
        self._silent = frozenset()

    def missing(self) -> list[str]:
        """Return a sentence on each node that cannot be used now.

        What it has, and whether it is lost.
        """
        self._refresh()
        gone = dict.fromkeys(self._silent, "silent") | dict.fromkeys(
            self._seen.keys() - self._alive, "lost"
        )
        return [
            f"a node with {_size(self._seen[node_id])} is {how}"
            for node_id, how in sorted(gone.items())
        ]

    def known(self) -> list[Node]:
        """Return all nodes, including those that may come back, as if none was in use."""
        self._refresh()
        return [_whole(node_id, seen) for node_id, seen in self._seen.items()]

    def usable(self, shape: Shape, leased: Sequence[Slot], idle: Sequence[Slot]) -> list[Node]:
        """Return the nodes that can be used now, with how much of each is in use.

        Args:
            shape: The shape of the workers in question.
            leased: The pool's leased workers.
            idle: The pool's idle workers.
        """
        self._refresh()
        available = cluster_state.available_resources_per_node()
        nodes = []
        for node_id in sorted(self._alive - self._silent):
            total, free = self._seen[node_id]["Resources"], available.get(node_id, {})
            busy = _at(node_id, leased)
            waiting = _at(node_id, idle)
            own_cpus = CPU_SHARE * sum(each.cpus for each in (*busy, *waiting))
            own_gpus = sum(each.gpus for each in (*busy, *waiting))
            node = Node(
                node_id,
                cpus=total.get("CPU", 0.0),
                gpus=total.get("GPU", 0.0),
                leased_cpus=sum(each.cpus for each in busy),
                leased_gpus=sum(each.gpus for each in busy),
                foreign_cpus=max(0.0, total.get("CPU", 0.0) - free.get("CPU", 0.0) - own_cpus),
                foreign_gpus=max(0.0, total.get("GPU", 0.0) - free.get("GPU", 0.0) - own_gpus),
                num_idle=waiting.count(shape),
            )
            nodes.append(node)
        return nodes

    def _refresh(self) -> None:
        now_s = time.monotonic()
        if now_s - self._listed_s <= FRESH_S:
            return
        self._listed_s = now_s
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        self._alive = frozenset(alive)
        self._seen |= alive
        self._seen_s |= dict.fromkeys(alive, now_s)
        for node_id in [
            node_id for node_id, seen_s in self._seen_s.items() if now_s - seen_s > RETURN_S
        ]:
            del self._seen[node_id], self._seen_s[node_id]


def _at(node_id: str, slots: Collection[Slot]) -> list[Shape]:
    return [slot.shape for slot in slots if slot.node_id == node_id]


def _whole(node_id: str, seen: dict[str, Any]) -> Node:
    resources = seen["Resources"]
    return Node(node_id, cpus=resources.get("CPU", 0.0), gpus=resources.get("GPU", 0.0))


def _size(seen: dict[str, Any]) -> str:
    node = _whole("", seen)
    gpus = f" and {node.gpus:g} GPUs" if node.gpus else ""
    return f"{node.cpus:g} CPUs{gpus}"

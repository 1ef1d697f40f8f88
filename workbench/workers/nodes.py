"""The machines of the cluster as the pool sees them: which can be used now, and which may come back.

A node that is lost or silent takes no gang. Its workers still count when the pool asks whether a gang can
ever run: what was there a while ago may be there again, so whoever needs it waits instead of failing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import ray
from ray._private import state as cluster_state

from workbench.workers.admission import CPU_SHARE, Node, Shape
from workbench.workers.lookouts import Lookouts

FRESH_S = 1.0
RETURN_S = 600.0
"""How long a node that was lost is waited for, by those who cannot do without it."""


class Used(NamedTuple):
    """A worker's place."""

    node_id: str
    shape: Shape


class Nodes:
    """All nodes that are or were there lately."""

    def __init__(self) -> None:
        """Know none yet."""
        self._lookouts = Lookouts()
        self._seen: dict[str, dict[str, Any]] = {}
        self._seen_s: dict[str, float] = {}
        self._alive: frozenset[str] = frozenset()
        self._silent: frozenset[str] = frozenset()
        self._asked_s = float("-inf")

    def look(self) -> frozenset[str]:
        """Look which nodes are silent; called every half second or so while the pool has something to do.

        Returns:
            The nodes that have fallen silent since the last look.
        """
        self._refresh()
        before, self._silent = self._silent, self._lookouts.look(self._alive)
        return self._silent - before

    def rest(self) -> None:
        """Look no more until the next time."""
        self._lookouts.recall()
        self._silent = frozenset()

    def missing(self) -> list[str]:
        """Say of each node that cannot be used now why, in words."""
        self._refresh()
        gone = dict.fromkeys(self._silent, "silent") | dict.fromkeys(self._seen.keys() - self._alive, "lost")
        return [f"a node with {_size(self._seen[node_id])} is {how}" for node_id, how in sorted(gone.items())]

    def hoped_for(self) -> list[Node]:
        """Describe the nodes, also those that may come back, as if nobody used any."""
        self._refresh()
        return [_whole(node_id, seen) for node_id, seen in self._seen.items()]

    def usable(self, shape: Shape, leased: Sequence[Used], idle: Sequence[Used]) -> list[Node]:
        """Describe the nodes that can be used now, and who uses how much of them.

        Args:
            shape: The workers in question.
            leased: Where workers of ours are leased.
            idle: Where idle ones wait.
        """
        self._refresh()
        available = cluster_state.available_resources_per_node()
        nodes = []
        for node_id in sorted(self._alive - self._silent):
            total, free = self._seen[node_id]["Resources"], available.get(node_id, {})
            busy = _at(node_id, leased)
            waiting = _at(node_id, idle)
            ours_cpus = CPU_SHARE * sum(each.cpus for each in (*busy, *waiting))
            ours_gpus = sum(each.gpus for each in (*busy, *waiting))
            node = Node(
                node_id,
                cpus=total.get("CPU", 0.0),
                gpus=total.get("GPU", 0.0),
                leased_cpus=sum(each.cpus for each in busy),
                leased_gpus=sum(each.gpus for each in busy),
                foreign_cpus=max(0.0, total.get("CPU", 0.0) - free.get("CPU", 0.0) - ours_cpus),
                foreign_gpus=max(0.0, total.get("GPU", 0.0) - free.get("GPU", 0.0) - ours_gpus),
                num_idle=waiting.count(shape),
            )
            nodes.append(node)
        return nodes

    def _refresh(self) -> None:
        now_s = time.monotonic()
        if now_s - self._asked_s <= FRESH_S:
            return
        self._asked_s = now_s
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        self._alive = frozenset(alive)
        self._seen |= alive
        self._seen_s |= dict.fromkeys(alive, now_s)
        for node_id in [node_id for node_id, seen_s in self._seen_s.items() if now_s - seen_s > RETURN_S]:
            del self._seen[node_id], self._seen_s[node_id]


def _at(node_id: str, used: Collection[Used]) -> list[Shape]:
    return [each.shape for each in used if each.node_id == node_id]


def _whole(node_id: str, seen: dict[str, Any]) -> Node:
    resources = seen["Resources"]
    return Node(node_id, cpus=resources.get("CPU", 0.0), gpus=resources.get("GPU", 0.0))


def _size(seen: dict[str, Any]) -> str:
    node = _whole("", seen)
    gpus = f" and {node.gpus:g} GPUs" if node.gpus else ""
    return f"{node.cpus:g} CPUs{gpus}"

"""The nodes of the cluster as the pool sees them: usable, silent, lost, and requested ones.

A node that is lost or silent is given no gang. It still counts when the pool checks whether a gang
can ever run: it may come back, so a gang that needs it waits for a while instead of failing.

Ray waits for a minute before it gives a node up. So the pool has a responder on each other node, an
actor that only answers pings. A node is silent if its responder has not answered for `SILENCE_S`.
It may be frozen, disconnected or overloaded. If it answers again, it is used as before.

On an autoscaling cluster, the pool requests nodes for all gangs that are leased or waiting. A whole
Ray cluster has a single request, and keeps nodes for it until it changes. So only the pool makes
the request while a gang wants autoscaling, and withdraws it afterwards. `await_nodes` waits for
nodes without a pool.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workbench.cluster.ray_internals import free_by_node
from workbench.cluster.workers.admission import CPU_SHARE, Node, Request, Shape

FRESH_S = 1.0
RETURN_S = 600.0
"""How long gangs that need a lost node wait for it."""
SILENCE_S = 5.0
"""How long a node may take to answer a ping."""
RESTART_S = 10.0
"""How long to wait before a responder that ended is replaced."""
ON_HEAD: dict[str, Any] = {
    "num_cpus": 0,
    "resources": {"node:__internal_head__": 0.001},  # a soft node affinity is only a hint
    "scheduling_strategy": (
        "DEFAULT"
    ),  # not in its creator's placement group, with which it would die
}
"""Options of an actor on the node of the Ray head, so that it is lost only when the cluster is."""


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
        """Find silent nodes. The pool calls this about every half second while it is in use.

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
        """Return a sentence on each node that cannot be used now, lost or silent."""
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
        return [_whole(node_id, description) for node_id, description in self._seen.items()]

    def usable(self, shape: Shape, leased: Sequence[Slot], idle: Sequence[Slot]) -> list[Node]:
        """Return the nodes that can be used now, with how much of each is in use.

        Args:
            shape: The shape of the workers in question.
            leased: The pool's leased workers.
            idle: The pool's idle workers.
        """
        self._refresh()
        available = free_by_node()
        nodes = []
        for node_id in sorted(self._alive - self._silent):
            total, free = self._seen[node_id]["Resources"], available.get(node_id, {})
            busy = _at(node_id, leased)
            waiting = _at(node_id, idle)
            own_cpus = CPU_SHARE * sum(worker.cpus for worker in (*busy, *waiting))
            own_gpus = sum(worker.gpus for worker in (*busy, *waiting))
            node = Node(
                node_id,
                cpus=total.get("CPU", 0.0),
                gpus=total.get("GPU", 0.0),
                leased_cpus=sum(worker.cpus for worker in busy),
                leased_gpus=sum(worker.gpus for worker in busy),
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


def _whole(node_id: str, description: dict[str, Any]) -> Node:
    resources = description["Resources"]
    return Node(node_id, cpus=resources.get("CPU", 0.0), gpus=resources.get("GPU", 0.0))


def _size(description: dict[str, Any]) -> str:
    node = _whole("", description)
    gpus = f" and {node.gpus:g} GPUs" if node.gpus else ""
    return f"{node.cpus:g} CPUs{gpus}"


class ResourceDemand:
    """The resources that this process last requested of the cluster."""

    def __init__(self) -> None:
        """Start without a request."""
        self._requested: list[dict[str, float]] = []

    def update(self, gangs: Sequence[Request]) -> None:
        """Request nodes for these gangs together. Withdraw that where none wants autoscaling.

        Args:
            gangs: All that are leased or waiting.
        """
        wanted: list[dict[str, float]] = []
        if any(gang.autoscaling for gang in gangs):
            wanted = [_bundle(gang) for gang in gangs for _ in range(gang.num_workers)]
        if wanted != self._requested:
            # Its import takes as long as half of Ray's.
            from ray.autoscaler.sdk import request_resources

            request_resources(bundles=wanted)
            self._requested = wanted

    def describe(self) -> list[str]:
        """Return what was requested of the cluster, in words, or nothing without a request."""
        if not self._requested:
            return []
        cpus = sum(bundle["CPU"] for bundle in self._requested)
        gpus = sum(bundle.get("GPU", 0.0) for bundle in self._requested)
        size = f"{cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
        return [f"the cluster was asked to grow to {size}"]


def _bundle(gang: Request) -> dict[str, float]:
    shape = gang.shape
    return {"CPU": float(shape.cpus)} | ({"GPU": shape.gpus} if shape.gpus else {})


class Responder:
    """An actor that answers for its node."""

    def ping(self) -> None:
        """Return."""


@dataclass(eq=False)
class _Node:
    """A node, its responder and the ping under way."""

    responder: Any
    pinged_s: float
    ping: asyncio.Task[None]
    has_answered: bool = False


class LivenessMonitor:
    """Pings the nodes of a cluster. All methods run on one event loop."""

    def __init__(self) -> None:
        """Start without responders."""
        self._here = ray.get_runtime_context().get_node_id()
        self._nodes: dict[str, _Node] = {}
        self._restart_s: dict[str, float] = {}

    def poll(self, node_ids: Collection[str]) -> frozenset[str]:
        """Ping all nodes, without waiting, and return those that are silent.

        Args:
            node_ids: The nodes that Ray believes to be alive.
        """
        now_s = time.monotonic()
        for node_id in self._nodes.keys() - set(node_ids):
            ray.kill(self._nodes.pop(node_id).responder)
        for node_id in set(node_ids) - {self._here}:
            node = self._nodes.get(node_id)
            if node is None:
                if now_s >= self._restart_s.get(node_id, 0.0):
                    self._nodes[node_id] = _start_responder(node_id)
            elif node.ping.done():
                self._on_answer(node_id, node)
        return frozenset(
            node_id
            for node_id, node in self._nodes.items()
            if node.has_answered and now_s - node.pinged_s > SILENCE_S
        )

    def _on_answer(self, node_id: str, node: _Node) -> None:
        """Take an answer and ping again. A responder that ended is replaced after a while."""
        if node.ping.exception() is not None:
            del self._nodes[node_id]
            self._restart_s[node_id] = time.monotonic() + RESTART_S
            return
        node.has_answered, node.pinged_s, node.ping = True, time.monotonic(), _ping(node.responder)

    def stop(self) -> None:
        """End all responders."""
        for node in self._nodes.values():
            node.ping.cancel()
            ray.kill(node.responder)
        self._nodes.clear()


def _start_responder(node_id: str) -> _Node:
    responder = ray.remote(Responder).options(**on_node(node_id)).remote()
    return _Node(responder, time.monotonic(), _ping(responder))


def _ping(responder: Any) -> asyncio.Task[None]:
    async def ping() -> None:
        await responder.ping.remote()

    return asyncio.get_running_loop().create_task(ping())


def on_node(node_id: str) -> dict[str, Any]:
    """Return the options of an actor that runs on one node, and nowhere else.

    Args:
        node_id: Ray's id of the node.
    """
    return {
        "num_cpus": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
    }

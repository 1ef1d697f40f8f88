"""Notice within seconds that a node has fallen silent.

Ray itself waits for a minute before it gives one up.

On each node but its own the pool keeps a responder, an actor that does nothing but answer pings. A
node whose responder has not answered for `SILENCE_S` is silent: frozen, disconnected or overloaded.
What follows from that is left to the pool; a node that answers again is like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import ray

from workbench.cluster.workers.placement import on_node

SILENCE_S = 5.0
"""How long a node may take to answer a ping."""
RESTART_S = 10.0
"""How long to wait before a responder that ended is replaced."""


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
    """Pings the nodes of a cluster; all methods run on one event loop."""

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
        """Take an answer and ping again; a responder that ended is replaced after a while."""
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

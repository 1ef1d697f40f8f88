"""Notices nodes that fall silent, in seconds: Ray itself waits for a minute before it gives one up.

On each node but its own the pool keeps a lookout, a process that does nothing but answer. One that does not
answer for `SILENCE_S` stands for its node: frozen, cut off, or out of breath. What follows from that is left
to the pool; a node that answers again is like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import ray

from workbench.workers.places import on_node

SILENCE_S = 5.0
"""How long a node may take to answer."""
RESTART_S = 10.0
"""How long to wait before another lookout is sent where one ended."""


class Lookout:
    """A process that answers for its node."""

    def answer(self) -> None:
        """Answer."""


@dataclass(eq=False)
class _Post:
    """A node and its lookout."""

    handle: Any
    asked_s: float
    asking: asyncio.Task[None]
    has_answered: bool = False


class Lookouts:
    """The lookouts of a cluster; all methods run on one event loop."""

    def __init__(self) -> None:
        """Send none yet."""
        self._here = ray.get_runtime_context().get_node_id()
        self._posts: dict[str, _Post] = {}
        self._restart_s: dict[str, float] = {}

    def look(self, node_ids: Collection[str]) -> frozenset[str]:
        """Ask all nodes, without waiting, and say which are silent.

        Args:
            node_ids: The nodes that Ray believes to be alive.
        """
        now_s = time.monotonic()
        for node_id in self._posts.keys() - set(node_ids):
            ray.kill(self._posts.pop(node_id).handle)
        for node_id in set(node_ids) - {self._here}:
            post = self._posts.get(node_id)
            if post is None:
                if now_s >= self._restart_s.get(node_id, 0.0):
                    self._posts[node_id] = _send(node_id)
            elif post.asking.done():
                self._hear(node_id, post)
        return frozenset(
            node_id
            for node_id, post in self._posts.items()
            if post.has_answered and now_s - post.asked_s > SILENCE_S
        )

    def _hear(self, node_id: str, post: _Post) -> None:
        """Take an answer, and ask again; a lookout that ended is replaced after a while."""
        if post.asking.exception() is not None:
            del self._posts[node_id]
            self._restart_s[node_id] = time.monotonic() + RESTART_S
            return
        post.has_answered, post.asked_s, post.asking = True, time.monotonic(), _ask(post.handle)

    def recall(self) -> None:
        """End all lookouts."""
        for post in self._posts.values():
            post.asking.cancel()
            ray.kill(post.handle)
        self._posts.clear()


def _send(node_id: str) -> _Post:
    handle = ray.remote(Lookout).options(**on_node(node_id)).remote()
    return _Post(handle, time.monotonic(), _ask(handle))


def _ask(handle: Any) -> asyncio.Task[None]:
    async def ask() -> None:
        await handle.answer.remote()

    return asyncio.get_running_loop().create_task(ask())

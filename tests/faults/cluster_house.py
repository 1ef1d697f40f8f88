"""The house of the campaign on a cluster.

PostgreSQL, a head, two nodes, and links between them where these can be made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from tests.faults.house import House
from tests.services.clusters import Cluster, Node
from tests.services.network import Network, Place, why_not
from tests.services.postgresql import PASSWORD, Server, find_programs

NODE_CPUS = (2, 1)
"""One trial on two workers finds room on the first, and on both together."""
_SECONDS = {
    "node": (0, 15),
    "silence": (1, 80),
    "cut": (1, 80),
    "join": (5, 30),
    "store": (1, 80),
    "head": (0, 10),
}
"""How long faults last: Ray gives a node up after a minute, and so does a run its store."""
LINK_MEGABITS_PER_S = 1000


class ClusterHouse(House):
    """Several machines, of which each may be lost, fall silent, be cut off, or come for a while."""

    victims = tuple(_SECONDS)
    others = (*_SECONDS, "driver", "worker", "pool")
    ends_all = frozenset({"head"})
    more_resources = {"placement": "spread"}

    def __init__(self, folder: Path, *, longest_s: float = 100.0) -> None:
        """Start everything.

        Args:
            folder: Where everything lies.
            longest_s: How long a fault may last.
        """
        programs = find_programs()
        if programs is None:
            raise RuntimeError("PostgreSQL is not installed (apt-get install postgresql)")
        self._longest_s = longest_s
        self._cpus: dict[Node, int] = {}
        self._places: dict[Node, Place] = {}
        self._untouched: list[Node] = []
        with contextlib.ExitStack() as stack:
            self._server = Server(programs)
            stack.callback(self._server.close)
            self._network = None if why_not() is not None else Network()
            if self._network is not None:
                stack.callback(self._network.close)
            environment = {"PGPASSWORD": PASSWORD, "WORKBENCH_HOME": str(folder / "home")}
            address = "127.0.0.1" if self._network is None else self._network.address
            self._cluster = Cluster(folder / "cluster", address=address, environment=environment)
            stack.callback(self._cluster.close)
            for num_cpus in NODE_CPUS:
                self._add(num_cpus)
            store = self._server.url(self._server.make_database())
            super().__init__(folder, store=store, environment=self._cluster.environment)
            self._stack = stack.pop_all()

    def processes(self) -> list[psutil.Process]:
        """The processes of the head and of its nodes."""
        found: list[psutil.Process] = []
        for node in (self._cluster.head, *self._cpus):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += node.processes()[::-1]
        return self._remember(found)

    def find(self, victim: str) -> list[Any]:
        """What a fault of this kind could hit now; nothing is hit by two at once."""
        match victim:
            case "store":
                return [self._server]
            case "head" | "join":
                return [self._cluster.head]
            case "node" | "silence" | "cut":
                return [node for node in self._untouched if node.is_alive]
        return super().find(victim)

    def strike(self, victim: str, target: Any) -> Callable[[], None] | None:
        """Let a fault happen to what `find` returned; return how it passes, if it does."""
        match victim:
            case "store":
                target.stop()
                return target.start
            case "head":
                target.kill()
                return self._restart_head
            case "join":
                joined = self._add(1)
                return lambda: self._lose(joined)
            case "node":
                num_cpus = self._cpus[target]
                self._lose(target)
                return lambda: self._add(num_cpus) and None
            case "silence" | "cut":
                return self._hush(target, cut=victim == "cut")
        return super().strike(victim, target)

    def lasts_s(self, fault: Any) -> float:
        """Say how long a fault lasts that passes."""
        least, most = _SECONDS.get(fault.victim, (0, 0))
        return min(least + fault.patience * (most - least), self._longest_s)

    def tidy(self) -> None:
        """Start a node again where Ray has ended it, because it was silent for too long."""
        for node in [node for node in self._untouched if not node.is_alive]:
            self._untouched.remove(node)
            self._add(self._cpus.pop(node))

    def close(self) -> None:
        """End everything, also what should have ended."""
        self.store.close()
        left = [process for process in self.seen if process.is_running()]
        self._stack.close()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _add(self, num_cpus: int) -> Node:
        place = None
        if self._network is not None:
            place = self._network.add()
            self._network.limit(place, LINK_MEGABITS_PER_S)
        node = self._cluster.add(num_cpus, place)
        self._cpus[node] = num_cpus
        if place is not None:
            self._places[node] = place
        self._untouched.append(node)
        return node

    def _lose(self, node: Node) -> None:
        if node in self._untouched:
            self._untouched.remove(node)
        if self._cpus.pop(node, None) is not None and node.is_alive:
            node.kill()

    def _hush(self, node: Node, *, cut: bool) -> Callable[[], None]:
        """Let a node fall silent: its link is cut where it has one, else it is frozen."""
        self._untouched.remove(node)
        place = self._places.get(node)

        def pass_() -> None:
            if cut and place is not None and self._network is not None:
                self._network.mend(place)
            else:
                node.thaw()
            self._untouched.append(node)

        if cut and place is not None and self._network is not None:
            self._network.cut(place)
        else:
            node.freeze()
        return pass_

    def _restart_head(self) -> None:
        """Start the head again, and nodes as its own.

        Those of the old one are to end by themselves.
        """
        wanted = list(self._cpus.values())
        self._cpus.clear()
        self._untouched.clear()
        self._cluster.restart_head()
        for num_cpus in wanted:
            self._add(num_cpus)

    def _sessions(self) -> Iterable[str | Path]:
        return [self._cluster.session]

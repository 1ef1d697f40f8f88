"""Who gets workers next, and on which nodes: the rules of the pool, without processes.

A gang is admitted whole or not at all, and nobody passes the request at the head of the queue, so none
starves and none deadlocks. Among waiting requests the highest priority comes first, then the run that
holds the fewest CPUs, then the oldest. Processes are left to `pool`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.errors import ResourcesError

CPU_SHARE = 0.9
"""Part of a CPU that a worker asks Ray for per CPU it uses, so that coordinators (0.001) always fit."""
BETWEEN_TRIALS_S = 1.0
"""How long a run whose trial has ended is expected to ask for the workers of its next one."""
_ROUNDING = 1e-6

Placement = Literal["pack", "spread"]
PLACEMENTS: tuple[Placement, ...] = ("pack", "spread")


@dataclass(frozen=True)
class Shape:
    """What one worker uses."""

    cpus: int = 1
    gpus: float = 0.0


@dataclass(frozen=True)
class Node:
    """One machine as the pool sees it."""

    node_id: str
    cpus: float
    """CPUs in total."""
    gpus: float
    leased_cpus: float = 0.0
    """CPUs of workers that are leased out."""
    leased_gpus: float = 0.0
    foreign_cpus: float = 0.0
    """CPUs, as Ray counts, that others hold."""
    foreign_gpus: float = 0.0
    num_idle: int = 0
    """Idle workers of the shape in question."""

    def fits(self, shape: Shape) -> int:
        """Count workers of a shape that could run here now, idle ones included."""
        return max(
            self.num_idle,
            min(
                _count(self.cpus - self.leased_cpus, shape.cpus),
                _count(self.cpus - CPU_SHARE * self.leased_cpus - self.foreign_cpus, CPU_SHARE * shape.cpus),
                _count(self.gpus - self.leased_gpus - self.foreign_gpus, shape.gpus),
            ),
        )

    def could_fit(self, shape: Shape) -> int:
        """Count workers of a shape that could run here if nothing else did."""
        return min(_count(self.cpus, shape.cpus), _count(self.gpus, shape.gpus))


@dataclass(frozen=True)
class Request:
    """A gang that somebody asked for."""

    run_id: str
    trial: int | None = None
    """The trial that it is for, by which it can be cancelled."""
    num_workers: int = 1
    shape: Shape = Shape()
    placement: Placement = "pack"
    priority: int = 0
    together: int = 1
    """How many requests of the run should be there before this one is served, for a while at least."""
    preload: tuple[str, ...] = ()
    """Modules that its trials will need, imported when a worker starts."""
    excluded: frozenset[str] = frozenset()
    """Nodes that it must not run on, by id."""
    autoscaling: bool = False
    """Whether it waits for machines that the cluster does not have yet, and asks for them."""

    def accepts(self, shape: Shape, node_id: str) -> bool:
        """Say whether a worker of a shape on a node may serve it."""
        return shape == self.shape and node_id not in self.excluded

    @property
    def of_trial(self) -> tuple[str, int] | None:
        """Run and trial that it is for, or None."""
        return None if self.trial is None else (self.run_id, self.trial)


def check_feasible(request: Request, nodes: Sequence[Node]) -> None:
    """Refuse a request that no wait can satisfy; one that lets the cluster grow always can be.

    Raises:
        ResourcesError: If the cluster could not hold the gang even when empty.
    """
    if request.autoscaling:
        return
    nodes = [node for node in nodes if node.node_id not in request.excluded]
    could_fit = sum(node.could_fit(request.shape) for node in nodes)
    if could_fit >= request.num_workers:
        return
    shape = f"{request.shape.cpus} CPU and {request.shape.gpus:g} GPU"
    there_is = ", ".join(f"{node.cpus:g} CPU and {node.gpus:g} GPU" for node in nodes) or "nothing"
    raise ResourcesError(
        f"{request.num_workers} workers with {shape} each can never run here: nodes have {there_is}",
        field="resources",
        allowed=f"at most {could_fit} such workers",
        next_step="Ask for fewer or smaller workers, or attach to a larger cluster.",
    )


def order(waiting: Sequence[Request], held_cpus: Mapping[str, float]) -> int:
    """Return the index of the request that is next.

    Args:
        waiting: Requests, oldest first; at least one.
        held_cpus: CPUs that each run's leased workers use, by run id.
    """
    oldest: dict[tuple[int, str], int] = {}
    for index, request in enumerate(waiting):
        oldest.setdefault((-request.priority, request.run_id), index)
    # Of thousands of requests only the oldest of each run and priority can be next.
    return min((priority, held_cpus.get(run_id, 0.0), index) for (priority, run_id), index in oldest.items())[
        2
    ]


class Returning:
    """Runs between two trials: they will ask for workers in a moment, before lower priorities get them.

    Without this a run of a higher priority would lose its place at the end of each of its trials.
    """

    def __init__(self) -> None:
        """Know of none."""
        self._expected: list[tuple[Request, float]] = []

    def ended(self, request: Request, now_s: float) -> None:
        """Take note that a lease has ended.

        Args:
            request: What was leased.
            now_s: The time, of any clock.
        """
        self._expected = [(each, until_s) for each, until_s in self._expected if until_s > now_s]
        self._expected.append((request, now_s + BETWEEN_TRIALS_S))

    def asked(self, request: Request) -> None:
        """Take note that a run asks: it is expected for one trial less."""
        for index, (each, _) in enumerate(self._expected):
            if each.run_id == request.run_id:
                del self._expected[index]
                return

    def outranks(self, request: Request, now_s: float) -> bool:
        """Say whether a request must wait for a run of a higher priority that is between two trials."""
        return any(each.priority > request.priority and until_s > now_s for each, until_s in self._expected)


def queued(waiting: Sequence[Request], held_cpus: Mapping[str, float]) -> list[Request]:
    """Return the requests in the order in which they will be served if nothing else changes.

    Args:
        waiting: Requests, oldest first.
        held_cpus: As in `order`.
    """
    held, queue = dict(held_cpus), []
    left: dict[tuple[int, str], deque[tuple[int, Request]]] = {}
    for index, request in enumerate(waiting):
        left.setdefault((-request.priority, request.run_id), deque()).append((index, request))
    while left:
        key = min(left, key=lambda key: (key[0], held.get(key[1], 0.0), left[key][0][0]))
        _, request = left[key].popleft()
        if not left[key]:
            del left[key]
        held[request.run_id] = held.get(request.run_id, 0.0) + request.shape.cpus * request.num_workers
        queue.append(request)
    return queue


def place(request: Request, nodes: Sequence[Node]) -> list[str] | None:
    """Choose a node for each worker of a gang.

    Args:
        request: The gang.
        nodes: Nodes as they are now.

    Returns:
        One node id per worker, or None where the gang does not fit now.
    """
    nodes = [node for node in nodes if node.node_id not in request.excluded]
    room = {node.node_id: node.fits(request.shape) for node in nodes}
    if sum(room.values()) < request.num_workers:
        return None
    idle = {node.node_id: node.num_idle for node in nodes}
    if request.placement == "spread":
        return _spread(request.num_workers, room, idle)
    whole = [node_id for node_id, free in room.items() if free >= request.num_workers]
    if whole:
        best = max(whole, key=lambda node_id: (min(idle[node_id], request.num_workers), -room[node_id]))
        return [best] * request.num_workers
    chosen: list[str] = []
    for node_id in sorted(room, key=lambda node_id: -room[node_id]):
        chosen += [node_id] * min(room[node_id], request.num_workers - len(chosen))
    return chosen


def _spread(num_workers: int, room: Mapping[str, int], idle: Mapping[str, int]) -> list[str]:
    """Take each time the node with the fewest workers of the gang, of those the warmest, emptiest, first."""
    nodes = [
        (0, -idle[node_id], -free, index, node_id)
        for index, (node_id, free) in enumerate(room.items())
        if free > 0
    ]
    heapq.heapify(nodes)
    chosen: list[str] = []
    while len(chosen) < num_workers:
        count, warm, free, index, node_id = nodes[0]
        chosen.append(node_id)
        if free == -1:
            heapq.heappop(nodes)
        else:
            heapq.heapreplace(nodes, (count + 1, warm, free + 1, index, node_id))
    return chosen


def _count(free: float, each: float) -> int:
    return 10**9 if each == 0 else max(0, int((free + _ROUNDING) / each))

"""How many workers a cluster holds, and which request gets them next, on which nodes and GPUs.

These are the rules of the pool, without processes. A gang is admitted whole or not at all, and no
request overtakes the one at the head of the queue, so there is neither starvation nor deadlock.
Among waiting requests the highest priority comes first, then the run that holds the fewest CPUs,
then the oldest. Processes are left to `pool`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from workbench.experiment import Experiment
from workbench.foundation.errors import ResourcesError
from workbench.hardware.resources import ClusterInventory, Gpu

CPU_SHARE = 0.9
"""Fraction of each CPU in use that a worker reserves in Ray, so that small actors of others fit."""
BETWEEN_TRIALS_S = 1.0
"""How long a run whose trial has ended is expected to request workers for its next one."""
_ROUNDING = 1e-6
_PCIE = ("", "SYS", "NODE", "PHB", "PXB", "PIX")
"""Links without NVLinks, from unknown and slow to fast."""
_MAX_GROUPS = 500
"""Up to so many groups of workers are all compared. Of more, groups are grown."""

Placement = Literal["pack", "spread"]
PLACEMENTS: tuple[Placement, ...] = ("pack", "spread")


@dataclass(frozen=True)
class Shape:
    """What one worker uses."""

    cpus: int = 1
    gpus: float = 0.0


@dataclass(frozen=True)
class Node:
    """A node as the pool sees it."""

    node_id: str
    cpus: float
    """CPUs in total."""
    gpus: float
    leased_cpus: float = 0.0
    """CPUs of workers that are leased out."""
    leased_gpus: float = 0.0
    foreign_cpus: float = 0.0
    """CPUs that others hold, as Ray counts them."""
    foreign_gpus: float = 0.0
    num_idle: int = 0
    """Idle workers of the shape in question."""

    def fits(self, shape: Shape) -> int:
        """Return how many workers of a shape could run here now, idle ones included."""
        return max(
            self.num_idle,
            min(
                _count(self.cpus - self.leased_cpus, shape.cpus),
                _count(
                    self.cpus - CPU_SHARE * self.leased_cpus - self.foreign_cpus,
                    CPU_SHARE * shape.cpus,
                ),
                _count(self.gpus - self.leased_gpus - self.foreign_gpus, shape.gpus),
            ),
        )

    def could_fit(self, shape: Shape) -> int:
        """Return how many workers of a shape could run here if nothing else did."""
        return min(_count(self.cpus, shape.cpus), _count(self.gpus, shape.gpus))


@dataclass(frozen=True)
class Request:
    """A request for a gang."""

    run_id: str
    trial: int | None = None
    """The trial it is for, by which it can be cancelled."""
    num_workers: int = 1
    shape: Shape = Shape()
    placement: Placement = "pack"
    priority: int = 0
    preload: tuple[str, ...] = ()
    """Modules that its trials will need, imported when a worker starts."""
    excluded: frozenset[str] = frozenset()
    """Ids of nodes that it must not run on."""
    autoscaling: bool = False
    """Whether it requests nodes that the cluster does not have yet, and waits for them."""
    environment: str = ""
    """Digest of the environment variables that its workers have."""
    fresh: bool = False
    """Whether each worker must be a process that has run no trial, and runs no other afterwards."""
    stop_grace_s: float = 5.0
    """How long its trials may take to stop before their workers are killed."""
    speedup: float | None = None
    """How many times as fast its trial trains as with one worker. None if not measured."""

    def accepts(self, shape: Shape, node_id: str, environment: str = "") -> bool:
        """Return whether a worker of a shape and environment on a node may serve it."""
        return (
            shape == self.shape and node_id not in self.excluded and environment == self.environment
        )

    @property
    def of_trial(self) -> tuple[str, int] | None:
        """The run and trial it is for, or None."""
        return None if self.trial is None else (self.run_id, self.trial)


def check_feasible(request: Request, nodes: Sequence[Node]) -> None:
    """Refuse a request that could never be served. A cluster that grows can serve any.

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
    present = ", ".join(f"{node.cpus:g} CPU and {node.gpus:g} GPU" for node in nodes) or "nothing"
    raise ResourcesError(
        f"{request.num_workers} workers with {shape} each can never run here: the nodes have"
        f" {present}",
        field="resources",
        allowed=f"at most {could_fit} such workers",
        next_step="Request fewer or smaller workers, or attach to a larger cluster.",
    )


def next_index(waiting: Sequence[Request], held_cpus: Mapping[str, float]) -> int:
    """Return the index of the request to serve next.

    Args:
        waiting: Requests, oldest first, at least one.
        held_cpus: CPUs that each run's leased workers use, by run id.
    """
    oldest: dict[tuple[int, str], int] = {}
    for index, request in enumerate(waiting):
        oldest.setdefault((-request.priority, request.run_id), index)
    # Only the oldest request of each run and priority can be next, of maybe thousands.
    return min(
        (priority, held_cpus.get(run_id, 0.0), index)
        for (priority, run_id), index in oldest.items()
    )[2]


@dataclass(frozen=True)
class Shortage:
    """The workers that another run waits for.

    Attributes:
        run_id: The run.
        num_requested: How many workers its next trial needs.
        num_missing: How many workers of the asker would have to be returned for them.
        other_speedup: How many times as fast as with one worker that run trains now.
        own_speedup: The same for the asker.
    """

    run_id: str
    num_requested: int
    num_missing: int
    other_speedup: float
    own_speedup: float


def find_shortage(
    asker: Request, waiting: Sequence[Request], leased: Sequence[Request], nodes: Sequence[Node]
) -> Shortage | None:
    """Return what the next request of another run lacks, if workers of the asker would help.

    Args:
        asker: What a trial holds.
        waiting: The waiting requests, oldest first.
        leased: What is leased.
        nodes: The nodes, with the idle workers of the shape that the next request has.

    Returns:
        The shortage. None if nothing waits, if the next request is the asker's or has a lower
        priority, or if it waits for something else.
    """
    held: dict[str, float] = {}
    speedups: dict[str, float] = {}
    for request in leased:
        cpus = request.shape.cpus * request.num_workers
        held[request.run_id] = held.get(request.run_id, 0.0) + cpus
        speedup = request.num_workers if request.speedup is None else request.speedup
        speedups[request.run_id] = speedups.get(request.run_id, 0.0) + speedup
    if not waiting:
        return None
    request = waiting[next_index(waiting, held)]
    room = sum(node.fits(request.shape) for node in nodes if node.node_id not in request.excluded)
    missing = request.num_workers - room
    if request.run_id == asker.run_id or request.priority < asker.priority or missing <= 0:
        return None
    if request.shape.gpus > 0 and asker.shape.gpus == 0:
        return None
    num_missing = math.ceil(missing * request.shape.cpus / asker.shape.cpus - _ROUNDING)
    if request.shape.gpus > 0:
        of_gpus = math.ceil(missing * request.shape.gpus / asker.shape.gpus - _ROUNDING)
        num_missing = max(num_missing, of_gpus)
    return Shortage(
        run_id=request.run_id,
        num_requested=request.num_workers,
        num_missing=num_missing,
        other_speedup=speedups.get(request.run_id, 0.0),
        own_speedup=speedups.get(asker.run_id, 0.0),
    )


class RunsBetweenTrials:
    """Runs whose trial has just ended: workers are kept for them for a moment.

    Without this a run of a higher priority would lose its place at the end of each of its trials.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._expected: list[tuple[Request, float]] = []

    def on_lease_ended(self, request: Request, now_s: float) -> None:
        """Expect another request of the run whose lease has ended.

        Args:
            request: What was leased.
            now_s: The time, of any clock.
        """
        self._expected = [(other, until_s) for other, until_s in self._expected if until_s > now_s]
        self._expected.append((request, now_s + BETWEEN_TRIALS_S))

    def on_requested(self, request: Request) -> None:
        """Expect one request less of the run that has just made one."""
        for index, (expected, _) in enumerate(self._expected):
            if expected.run_id == request.run_id:
                del self._expected[index]
                return

    def outranks(self, request: Request, now_s: float) -> bool:
        """Return whether a request waits for a run of a higher priority between two trials."""
        return any(
            expected.priority > request.priority and until_s > now_s
            for expected, until_s in self._expected
        )


def serving_order(waiting: Sequence[Request], held_cpus: Mapping[str, float]) -> list[Request]:
    """Return the requests in the order in which they will be served if nothing else changes.

    Args:
        waiting: Requests, oldest first.
        held_cpus: As in `next_index`.
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
        held[request.run_id] = (
            held.get(request.run_id, 0.0) + request.shape.cpus * request.num_workers
        )
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
        best = max(
            whole, key=lambda node_id: (min(idle[node_id], request.num_workers), -room[node_id])
        )
        return [best] * request.num_workers
    chosen: list[str] = []
    for node_id in sorted(room, key=lambda node_id: -room[node_id]):
        chosen += [node_id] * min(room[node_id], request.num_workers - len(chosen))
    return chosen


def _spread(num_workers: int, room: Mapping[str, int], idle: Mapping[str, int]) -> list[str]:
    """Fill the node with the fewest workers first. On a tie that with most idle, then free."""
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
    # Neighbouring ranks share a node: workers that divide a model exchange more with each other.
    return sorted(chosen, key=chosen.index)


def nearest(gpus: Sequence[tuple[Gpu, ...]], number: int) -> list[int]:
    """Choose the workers of a node whose GPUs are nearest to each other.

    They are on the same socket before others, then their slowest link is as fast as possible, then
    all their links. Between equal choices, those on the sockets with the fewest idle GPUs win, so
    that larger groups stay together.

    Args:
        gpus: The GPUs of each idle worker, none if it has none or they are unknown.
        number: Number of workers to choose.

    Returns:
        Their places, so that each is near the one before it. The first ones if links are unknown,
        or if workers share a GPU.

    Example:
        >>> from workbench.hardware.resources import Gpu
        >>> links = [("X", "SYS", "SYS"), ("SYS", "X", "NV4"), ("SYS", "NV4", "X")]
        >>> nearest([(Gpu(n, "H100", 0, f"GPU-{n}", links[n]),) for n in range(3)], 2)
        [1, 2]
    """
    uuids = [gpu.uuid for held in gpus for gpu in held]
    are_known = all(held and all(gpu.links for gpu in held) for held in gpus)
    if number >= len(gpus) or not are_known or len(set(uuids)) < len(uuids):
        return list(range(min(number, len(gpus))))
    pairs = {
        (first, second): _worst(
            [_nearness(one, other) for one in gpus[first] for other in gpus[second]]
        )
        for first, second in itertools.permutations(range(len(gpus)), 2)
    }
    num_near = [
        sum(pairs[place, other][0] for other in range(len(gpus)) if other != place)
        for place in range(len(gpus))
    ]

    def cost(places: tuple[int, ...]) -> tuple[int, int, int, int, tuple[int, ...]]:
        chosen = [pairs[pair] for pair in itertools.combinations(places, 2)]
        speeds = [speed for _, speed in chosen]
        return (
            sum(not is_near for is_near, _ in chosen),
            -min(speeds, default=0),
            -sum(speeds),
            sum(num_near[place] for place in places),
            places,
        )

    if math.comb(len(gpus), number) <= _MAX_GROUPS:
        best = min(itertools.combinations(range(len(gpus)), number), key=cost)
    else:
        best = min((_grown(first, len(gpus), number, cost) for first in range(len(gpus))), key=cost)
    ordered, left = [best[0]], set(best[1:])
    while left:
        ordered.append(max(left, key=lambda place: (pairs[ordered[-1], place], -place)))
        left.remove(ordered[-1])
    return ordered


def _grown(
    first: int, total: int, number: int, cost: Callable[[tuple[int, ...]], Any]
) -> tuple[int, ...]:
    """Return a group that starts with one worker, and takes in the one that costs least."""
    group = (first,)
    while len(group) < number:
        others = [place for place in range(total) if place not in group]
        group = min((tuple(sorted((*group, place))) for place in others), key=cost)
    return group


def _nearness(one: Gpu, other: Gpu) -> tuple[bool, int]:
    """Return whether two GPUs are on the same socket, and how fast their link is, as a rank."""
    link = one.links[other.index] if other.index < len(one.links) else ""
    is_near = one.cpus == other.cpus if one.cpus and other.cpus else link not in ("SYS", "")
    if link.startswith("NV"):
        return is_near, len(_PCIE) + int(link.removeprefix("NV"))
    return is_near, _PCIE.index(link)


def _worst(pairs: Sequence[tuple[bool, int]]) -> tuple[bool, int]:
    return all(is_near for is_near, _ in pairs), min(speed for _, speed in pairs)


def _count(free: float, needed: float) -> int:
    if needed == 0:
        return 10**9  # no limit
    return max(0, int((free + _ROUNDING) / needed))


@dataclass(frozen=True)
class Capacity:
    """What a cluster holds when nobody else uses it.

    Attributes:
        shape: What one worker uses.
        workers_per_node: How many workers each node holds.
        placement: Whether a gang is packed onto few nodes or spread over many.
    """

    shape: Shape
    workers_per_node: tuple[int, ...]
    placement: Placement = "pack"

    @property
    def num_workers(self) -> int:
        """Workers that all nodes hold together."""
        return sum(self.workers_per_node)

    @property
    def has_full_nodes(self) -> bool:
        """Whether there are workers on several nodes, one of which holds several."""
        return 1 < sum(number > 0 for number in self.workers_per_node) < self.num_workers


def capacity_of(experiment: Experiment, cluster: ClusterInventory) -> Capacity:
    """Decide what one worker uses, and count how many there can be.

    Args:
        experiment: `gpus_per_worker: auto` means one where the cluster has GPUs, or the part of one
            that `per_gpu` says, but none for a function that does not say it.
        cluster: The cluster.
    """
    resources = experiment.resources
    gpus = resources.gpus_of_worker
    if resources.gpus_per_worker == "auto":
        wants_one = experiment.trains_model or experiment.command is not None or gpus != "auto"
        wanted = 1.0 if gpus == "auto" else gpus
        gpus = wanted if wants_one and cluster.num_gpus >= 1 else 0.0
    assert gpus != "auto"
    shape = Shape(resources.cpus_per_worker, gpus)
    return Capacity(
        shape,
        tuple(
            min(
                int(node.num_cpus // shape.cpus),
                int(node.num_gpus / shape.gpus + _ROUNDING) if shape.gpus else int(node.num_cpus),
            )
            for node in cluster.nodes
        ),
        "spread" if resources.placement == "spread" else "pack",
    )


def trials_at_once(experiment: Experiment, capacity: Capacity) -> int:
    """Return how many trials run at the same time at most.

    Args:
        experiment: Its concurrency and its number of trials limit that.
        capacity: How many workers there can be.
    """
    concurrency, trials = experiment.resources.concurrency, experiment.max_configurations()
    most = capacity.num_workers if concurrency == "auto" else concurrency
    return most if trials is None else min(most, trials * experiment.repeats)


def free_cores_of(
    experiment: Experiment, cluster: ClusterInventory, *, is_alone: bool = False
) -> int:
    """Count the CPU cores that each worker may use besides its own, while most trials run.

    Args:
        experiment: Its concurrency and its number of trials limit how many run at once.
        cluster: The cluster. The node with the fewest cores per worker counts.
        is_alone: Count as if only one trial ran at a time.
    """
    capacity = capacity_of(experiment, cluster)
    at_once = 1 if is_alone else trials_at_once(experiment, capacity)
    most = at_once * (experiment.plan.decided.workers or 1)
    spare = [
        int(node.num_cpus / min(count, most) - capacity.shape.cpus)
        for node, count in zip(cluster.nodes, capacity.workers_per_node, strict=True)
        if count > 0
    ]
    return max(0, min(spare, default=0))

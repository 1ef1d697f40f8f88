"""The workers of a pool: starts them, keeps the idle ones for gangs, and ends them after a while.

`pool` leases workers and admits gangs. `admission` chooses their nodes and GPUs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workbench.cluster.ray_internals import is_known_dead
from workbench.cluster.workers.admission import CPU_SHARE, Node, Request, Shape, nearest, place
from workbench.cluster.workers.caller_environment import fetch
from workbench.cluster.workers.nodes import Nodes, Slot
from workbench.cluster.workers.worker import Worker, WorkerInfo

START_TIMEOUT_S = 600.0
"""Only ends what hangs: on a busy machine, loading torch may take minutes."""
_CALL_THREADS = 4  # of a worker: one waits for events, the others answer other calls


@dataclass(eq=False)
class WorkerHandle:
    """A worker, its node, and how often it was leased."""

    actor: Any
    node_id: str
    shape: Shape
    environment: str = ""
    """Digest of its environment variables."""
    info: WorkerInfo | None = None
    num_trials: int = 0
    idle_since_s: float = 0.0

    def may_serve(self, request: Request) -> bool:
        """Return whether it may be leased for a request while it is idle.

        Args:
            request: The request.
        """
        return request.accepts(self.shape, self.node_id, self.environment) and not (
            request.fresh and self.num_trials
        )

    @property
    def slot(self) -> Slot:
        """The node and the shape of the worker."""
        return Slot(self.node_id, self.shape)

    @property
    def is_dead(self) -> bool:
        """Whether the worker has died, as far as this process knows."""
        return is_known_dead(self.actor)


def start_worker(node_id: str, request: Request) -> Any:
    """Start a worker, without waiting for it.

    Args:
        node_id: The node to start it on.
        request: The first request that it will serve.
    """
    shape, environment = request.shape, fetch(request.environment)
    at_start = (
        environment.needed_at_start()
    )  # Ray has processes ready that were started without them
    return (
        ray.remote(Worker)
        .options(
            num_cpus=CPU_SHARE * shape.cpus,
            num_gpus=shape.gpus,
            max_concurrency=_CALL_THREADS,
            max_restarts=1,  # killed before the pool when memory runs out
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            **({"runtime_env": {"env_vars": at_start}} if at_start else {}),
        )
        .remote(shape.cpus, shape.gpus, request.preload, environment)
    )


async def wait_until_ready(workers: Sequence[WorkerHandle]) -> BaseException | None:
    """Wait until new workers answer, and return what went wrong, or None."""

    async def wait_for(worker: WorkerHandle) -> None:
        if worker.info is None:
            worker.info = await asyncio.wait_for(
                result_of(worker.actor.info.remote()), START_TIMEOUT_S
            )

    results = await asyncio.gather(
        *(wait_for(worker) for worker in workers), return_exceptions=True
    )
    return next((result for result in results if isinstance(result, BaseException)), None)


async def result_of(reference: Any) -> Any:
    """Wait for the result of a call."""
    return await reference


class IdleWorkers:
    """Workers without a lease, and the nodes on which new ones can start."""

    def __init__(
        self, nodes: Nodes, leased: Callable[[], list[WorkerHandle]], idle_s: float
    ) -> None:
        """Start without workers.

        Args:
            nodes: The nodes of the cluster.
            leased: Returns the workers that leases hold.
            idle_s: Seconds after which an idle worker is returned to the cluster.
        """
        self._nodes = nodes
        self._leased = leased
        self._idle_s = idle_s
        self._idle: list[WorkerHandle] = []

    def __len__(self) -> int:
        return len(self._idle)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that are ready."""
        return tuple(worker.info.pid for worker in self._idle if worker.info is not None)

    def add(self, worker: WorkerHandle) -> None:
        """Add a worker whose lease has ended, or that starts before it is needed."""
        worker.idle_since_s = time.monotonic()
        self._idle.append(worker)

    def on_started(self, workers: Sequence[WorkerHandle]) -> None:
        """Let new workers count as idle from now on, and end those that did not start.

        Not leased ones.

        Args:
            workers: Some that were added before they had started.
        """
        for worker in workers:
            if worker in self._idle and worker.info is None:
                self._idle.remove(worker)
                ray.kill(worker.actor)
            worker.idle_since_s = time.monotonic()

    def take(self, request: Request) -> list[WorkerHandle] | None:
        """Take idle workers and start the rest of a gang, or return None if it does not fit."""
        self._idle = [worker for worker in self._idle if not worker.is_dead]
        matching = [worker for worker in self._idle if worker.may_serve(request)]
        matching.sort(
            key=lambda worker: worker.info is not None
        )  # those that have started are taken first
        if request.num_workers == 1 and matching:
            (warm,) = self._take_nearest(matching, matching[-1].node_id, 1)
            return [warm]
        chosen = place(request, self.usable_nodes(request.shape, matching))
        if chosen is None:
            return None
        warm_on = {
            node_id: self._take_nearest(matching, node_id, number)
            for node_id, number in Counter(chosen).items()
        }
        workers = [
            warm_on[node_id].pop(0)
            if warm_on[node_id]
            else WorkerHandle(None, node_id, request.shape, request.environment)
            for node_id in chosen
        ]
        for worker in workers:
            if worker.actor is None:
                self._make_room(worker.node_id, workers)
                worker.actor = start_worker(worker.node_id, request)
        return workers

    def _take_nearest(
        self, matching: Sequence[WorkerHandle], node_id: str, number: int
    ) -> list[WorkerHandle]:
        """Take the idle workers of a node that are nearest to each other, the latest first.

        Args:
            matching: Idle workers that may serve the request, the latest last.
            node_id: The node.
            number: Number of workers, of which fewer may be idle.
        """
        here = [worker for worker in reversed(matching) if worker.node_id == node_id]
        started = [worker for worker in here if worker.info is not None]
        if len(started) >= number:  # the GPUs of the others are not known yet
            here = started
        gpus = [() if worker.info is None else worker.info.placed for worker in here]
        taken = [here[place] for place in nearest(gpus, number)]
        for worker in taken:
            self._idle.remove(worker)
        return taken

    def _make_room(self, node_id: str, newcomers: list[WorkerHandle]) -> None:
        """End idle workers of a node until the workers about to run there fit."""
        node = next(node for node in self._nodes.known() if node.node_id == node_id)
        busy = [*newcomers, *self._leased()]
        for oldest in sorted(self._idle, key=lambda worker: worker.idle_since_s):
            here = [worker.shape for worker in (*busy, *self._idle) if worker.node_id == node_id]
            if (
                sum(shape.cpus for shape in here) <= node.cpus
                and sum(shape.gpus for shape in here) <= node.gpus
            ):
                return
            if oldest.node_id == node_id:
                self._idle.remove(oldest)
                ray.kill(oldest.actor)

    def usable_nodes(self, shape: Shape, warm: Sequence[WorkerHandle] | None = None) -> list[Node]:
        """Return the nodes that can be used now.

        Args:
            shape: The shape of the workers in question.
            warm: Idle workers that may serve them, or None for all.
        """
        leased = [worker.slot for worker in self._leased()]
        idle = [worker.slot for worker in self._idle]
        nodes = self._nodes.usable(shape, leased, idle)
        if warm is None:
            return nodes
        counts = Counter(worker.node_id for worker in warm)
        return [dataclasses.replace(node, num_idle=counts[node.node_id]) for node in nodes]

    def end_all(self) -> None:
        """End every idle worker."""
        for worker in self._idle:
            ray.kill(worker.actor)
        self._idle.clear()

    def end_on(self, node_ids: Collection[str]) -> None:
        """End the idle workers of some nodes."""
        for worker in self._idle:
            if worker.node_id in node_ids:
                ray.kill(worker.actor)
        self._idle = [worker for worker in self._idle if worker.node_id not in node_ids]

    def end_overdue(self) -> None:
        """End the workers that have been idle for too long."""
        now_s = time.monotonic()
        for worker in list(self._idle):
            if worker.info is not None and now_s - worker.idle_since_s >= self._idle_s:
                self._idle.remove(worker)
                ray.kill(worker.actor)

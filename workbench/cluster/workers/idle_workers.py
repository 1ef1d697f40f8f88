"""The idle workers of a pool.

Taken by gangs, joined by new ones where these fit, and ended in time.

Who leases workers, and when a gang is admitted, is left to `pool`; on which nodes it runs, to
`admission`.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import ray

from workbench.cluster.workers.admission import Node, Request, Shape, place
from workbench.cluster.workers.nodes import Nodes
from workbench.cluster.workers.worker_handles import WorkerHandle, start_worker


class IdleWorkers:
    """Workers that no lease holds, and where new ones can start beside the leased ones."""

    def __init__(
        self, nodes: Nodes, leased: Callable[[], list[WorkerHandle]], idle_s: float
    ) -> None:
        """Begin without workers.

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
        """Take idle workers and start the rest of a gang; return None where it does not fit."""
        self._idle = [worker for worker in self._idle if not worker.is_dead]
        matching = [worker for worker in self._idle if worker.may_serve(request)]
        matching.sort(
            key=lambda worker: worker.info is not None
        )  # those that have started are taken first
        if request.num_workers == 1 and matching:
            self._idle.remove(matching[-1])
            return [matching[-1]]
        chosen = place(request, self.usable_nodes(request.shape, matching))
        if chosen is None:
            return None
        workers: list[WorkerHandle] = []
        for node_id in chosen:
            warm = next(
                (worker for worker in reversed(matching) if worker.node_id == node_id), None
            )
            if warm is not None:
                matching.remove(warm)
                self._idle.remove(warm)
            workers.append(warm or WorkerHandle(None, node_id, request.shape, request.environment))
        for worker in workers:
            if worker.actor is None:
                self._make_room(worker.node_id, workers)
                worker.actor = start_worker(worker.node_id, request)
        return workers

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
            warm: Idle workers that may serve them; all if None.
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

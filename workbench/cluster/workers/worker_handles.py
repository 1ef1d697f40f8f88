"""The pool's handle of each worker: start it, wait until it answers, notice that it died.

Who gets which worker when is left to `pool`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.core.generated import gcs_pb2
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workbench.cluster.workers.admission import CPU_SHARE, Request, Shape
from workbench.cluster.workers.caller_environment import fetch, needed_at_start
from workbench.cluster.workers.nodes import Slot
from workbench.cluster.workers.worker import Worker, WorkerInfo

START_TIMEOUT_S = 120.0
_CALL_THREADS = 4  # of a worker: one waits for events, the others answer other calls
_ACTOR: Any = gcs_pb2  # generated without types
_DEAD = (_ACTOR.ActorTableData.RESTARTING, _ACTOR.ActorTableData.DEAD)


@dataclass(eq=False)
class WorkerHandle:
    """One worker, where it runs, and how often it was leased."""

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
        """Where it runs and what it uses."""
        return Slot(self.node_id, self.shape)

    @property
    def is_dead(self) -> bool:
        """Whether the worker has died, as far as this process knows."""
        return self.actor._get_local_state() in _DEAD


def start_worker(node_id: str, request: Request) -> Any:
    """Start a worker, without waiting for it.

    Args:
        node_id: The node to start it on.
        request: The first request that it will serve.
    """
    shape, variables = request.shape, fetch(request.environment)
    at_start = needed_at_start(variables)  # Ray has processes ready that were started without them
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
        .remote(shape.cpus, shape.gpus, request.preload, variables)
    )


async def wait_until_ready(workers: Sequence[WorkerHandle]) -> BaseException | None:
    """Wait until new workers answer; return what went wrong, or None."""

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

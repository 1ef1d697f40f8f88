"""Seats of the pool: one worker each and where it is, started, made ready, and found gone.

Who is seated when is left to `pool`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.core.generated import gcs_pb2
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workbench.workers.admission import CPU_SHARE, Request, Shape
from workbench.workers.nodes import Used
from workbench.workers.worker import Worker, WorkerInfo

START_TIMEOUT_S = 120.0
_CALL_THREADS = 4  # of a worker: one waits for news, the others answer
_ACTOR: Any = gcs_pb2  # generated without types
_GONE = (_ACTOR.ActorTableData.RESTARTING, _ACTOR.ActorTableData.DEAD)


@dataclass(eq=False)
class Seat:
    """One worker and its place."""

    handle: Any
    node_id: str
    shape: Shape
    info: WorkerInfo | None = None
    num_leases: int = 0
    idle_since_s: float = 0.0

    @property
    def place(self) -> Used:
        """What it uses, and where."""
        return Used(self.node_id, self.shape)

    @property
    def is_gone(self) -> bool:
        """Whether its worker has died, as far as is known here."""
        return self.handle._get_local_state() in _GONE


def start_worker(node_id: str, request: Request) -> Any:
    """Start a worker, without waiting for it.

    Args:
        node_id: Where.
        request: What it will serve first.
    """
    shape = request.shape
    return (
        ray.remote(Worker)
        .options(
            num_cpus=CPU_SHARE * shape.cpus, num_gpus=shape.gpus,
            max_concurrency=_CALL_THREADS, max_restarts=1,  # one is ended before the pool where memory lacks
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        .remote(shape.cpus, shape.gpus, request.preload)
    )  # fmt: skip


async def make_ready(seats: Sequence[Seat]) -> str | None:
    """Wait until new workers answer; return what went wrong, or None."""

    async def ask(seat: Seat) -> None:
        if seat.info is None:
            seat.info = await asyncio.wait_for(answer(seat.handle.info.remote()), START_TIMEOUT_S)

    results = await asyncio.gather(*(ask(seat) for seat in seats), return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    return str(errors[0] or type(errors[0]).__name__).splitlines()[0] if errors else None


async def answer(reference: Any) -> Any:
    """Wait for what a call will return."""
    return await reference

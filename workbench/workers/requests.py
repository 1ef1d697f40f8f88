"""What a driver asks of the pool, briefly: it never waits for workers.

Leasing them is left to the gang, and answering to the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from workbench.workers.admission import Shape
from workbench.workers.lease import PoolStatus
from workbench.workers.pool import connect_pool

POOL_PATIENCE_S = 0.5
FEWEST_CPUS = 0.1
"""Of others, that are worth a word: who only follows, or waits for work, asks Ray for hundredths."""


def cancel(run_id: str, trial: int) -> Any:
    """Stop and give back whatever is leased to a trial, soon and without waiting for it.

    Args:
        run_id: The run.
        trial: The trial.

    Returns:
        A Ray reference that is there when it is done.
    """
    return connect_pool().cancel.remote(run_id, trial)


def num_free(shape: Shape, timeout_s: float) -> int:
    """Ask how many workers more could run now.

    Args:
        shape: What one of them uses.
        timeout_s: How long to wait for the pool.

    Returns:
        Their number; 0 where somebody waits for workers, or the pool does not answer.
    """
    try:
        return ray.get(connect_pool().num_free.remote(shape), timeout=timeout_s)
    except (GetTimeoutError, RayActorError):
        return 0


def status(timeout_s: float) -> PoolStatus | None:
    """Ask the pool what it holds.

    Args:
        timeout_s: How long to wait for the pool.

    Returns:
        What it holds; None where the pool does not answer.
    """
    try:
        return ray.get(connect_pool().status.remote(), timeout=timeout_s)
    except (GetTimeoutError, RayActorError):
        return None


@dataclass(frozen=True)
class Obstacle:
    """What keeps a run from its workers.

    Attributes:
        place: Its place in the queue, from 1; None where it waits for none.
        num_queued: How many gangs are waited for in all.
        missing: What is said of nodes that are lost, silent, or asked for.
        holders: Other runs and what they hold, in words.
    """

    place: int | None
    num_queued: int
    missing: tuple[str, ...]
    holders: tuple[str, ...]

    def __str__(self) -> str:
        place = f"place {self.place} of {self.num_queued} in the queue"
        told = [*self.holders, *self.missing]
        if self.place is not None and self.num_queued > 1:
            told.append(place)
        return ", ".join(told)


def obstacle(run_id: str) -> Obstacle | None:
    """Say what keeps a run from the workers that it waits for.

    Args:
        run_id: The run, which is not told of itself.

    Returns:
        What is in its way; None where nothing is, or the pool does not answer.
    """
    pool = status(POOL_PATIENCE_S)
    if pool is None:
        return None
    others = {other: held for other, held in pool.leased.items() if other != run_id}
    told = [f"run {other} has {held}" for other, held in sorted(others.items())]
    if pool.foreign_cpus >= FEWEST_CPUS:
        told.append(f"others than the workbench use {pool.foreign_cpus:g} CPUs of this cluster")
    places = [place for place, request in enumerate(pool.queue, start=1) if request.run_id == run_id]
    found = Obstacle(places[0] if places else None, pool.num_waiting, pool.missing, tuple(told))
    return found if str(found) else None

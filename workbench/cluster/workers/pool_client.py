"""Short calls of a driver to the pool, none of which waits for workers.

Leasing them is left to `gang`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from workbench.cluster.workers.admission import Request, Shape, Shortage
from workbench.cluster.workers.pool import PoolStatus, connect_pool
from workbench.foundation.formatting import format_count

POOL_TIMEOUT_S = 0.5
MIN_FOREIGN_CPUS = 0.1
"""The CPUs from which other programs are reported. Actors that only wait reserve hundredths."""


def cancel(run_id: str, trial: int) -> Any:
    """Stop and return whatever is leased to a trial, without waiting for it.

    Args:
        run_id: The run.
        trial: The trial.

    Returns:
        A Ray reference that is ready when it is done.
    """
    return connect_pool().cancel.remote(run_id, trial)


def withdraw(run_id: str, trials: list[int]) -> None:
    """Forget the requests of trials that still wait for workers, so that none of them starts.

    Args:
        run_id: The run.
        trials: The trials.
    """
    connect_pool().withdraw.remote(run_id, trials)


def prepare(request: Request) -> None:
    """Start workers before they are needed, so that the first trials find them warm.

    Args:
        request: How many of which shape, and what to import.
    """
    connect_pool().prepare.remote(request)


def num_free(shape: Shape, timeout_s: float) -> int:
    """Return how many more workers could run now.

    Args:
        shape: What one of them uses.
        timeout_s: How long to wait for the pool.

    Returns:
        Their number, or 0 if a request waits for workers, or the pool does not answer.
    """
    try:
        return ray.get(connect_pool().num_free.remote(shape), timeout=timeout_s)
    except (GetTimeoutError, RayActorError):
        return 0


def shortage(asker: Request, timeout_s: float) -> Shortage | None:
    """Return what the next request of another run lacks, if workers of the asker would help.

    Args:
        asker: What a trial holds.
        timeout_s: How long to wait for the pool.

    Returns:
        The shortage, or None if there is none, or the pool does not answer.
    """
    try:
        return ray.get(connect_pool().shortage.remote(asker), timeout=timeout_s)
    except (GetTimeoutError, RayActorError):
        return None


def status(timeout_s: float) -> PoolStatus | None:
    """Return the status of the pool.

    Args:
        timeout_s: How long to wait for the pool.

    Returns:
        The status, or None if the pool does not answer.
    """
    try:
        return ray.get(connect_pool().status.remote(), timeout=timeout_s)
    except (GetTimeoutError, RayActorError):
        return None


@dataclass(frozen=True)
class Obstacle:
    """What keeps a run from its workers.

    Attributes:
        num_ahead: How many requests of other runs are served first, or None if it requests nothing.
        missing: A sentence on each node that is lost, silent or requested.
        holders: A sentence on each other run that holds workers.
    """

    num_ahead: int | None
    missing: tuple[str, ...]
    holders: tuple[str, ...]

    def is_like(self, reported: Obstacle | None) -> bool:
        """Return whether it was reported. What others hold changes with each of their trials."""
        return reported is not None and (self.num_ahead, self.missing) == (
            reported.num_ahead,
            reported.missing,
        )

    def __str__(self) -> str:
        parts = [*self.holders, *self.missing]
        if self.num_ahead:
            parts.append(f"{format_count(self.num_ahead, 'request')} of other runs served first")
        elif parts and self.num_ahead == 0:
            parts.append("this run is next")
        return ", ".join(parts)


def obstacle(run_id: str) -> Obstacle | None:
    """Return what keeps a run from the workers that it waits for.

    Args:
        run_id: The run. Its own workers are not reported.

    Returns:
        What is in its way, or None if nothing is, or the pool does not answer.
    """
    pool = status(POOL_TIMEOUT_S)
    if pool is None:
        return None
    others = {other: held for other, held in pool.leased.items() if other != run_id}
    holders = [
        f"run {other} has {format_count(held, 'worker')}" for other, held in sorted(others.items())
    ]
    if pool.foreign_cpus >= MIN_FOREIGN_CPUS:
        holders.append(f"other programs use {pool.foreign_cpus:g} CPUs of this cluster")
    ahead = next((at for at, request in enumerate(pool.queue) if request.run_id == run_id), None)
    in_the_way = Obstacle(ahead, pool.missing, tuple(holders))
    return in_the_way if str(in_the_way) else None

"""What a driver asks of the pool, briefly: it never waits for workers.

Leasing them is left to the gang, and answering to the pool.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from workbench.workers.admission import Shape
from workbench.workers.lease import PoolStatus
from workbench.workers.pool import connect_pool

POOL_PATIENCE_S = 0.5


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


def holders(run_id: str) -> str | None:
    """Say who has the workers that a run waits for.

    Args:
        run_id: The run, which is not told of itself.

    Returns:
        Other runs and what they hold, in words; None where nobody holds any, or the pool does not answer.
    """
    pool = status(POOL_PATIENCE_S)
    if pool is None:
        return None
    others = {other: held for other, held in pool.leased.items() if other != run_id}
    told = [f"run {other} has {held}" for other, held in sorted(others.items())]
    if pool.foreign_cpus:
        told.append(f"others than the workbench use {pool.foreign_cpus:g} CPUs of this cluster")
    return ", ".join(told) or None

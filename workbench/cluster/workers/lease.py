"""What the pool returns, a leased gang and its status, and who holds a lease."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workbench.cluster.ray_internals import actor_state, ended_jobs
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.worker import WorkerInfo


@dataclass(frozen=True)
class Lease:
    """A gang that was leased."""

    lease_id: int
    workers: tuple[Any, ...]
    """Actor handles of the workers, by rank."""
    infos: tuple[WorkerInfo, ...]


@dataclass(frozen=True)
class PoolStatus:
    """Who holds workers of the pool and who waits for some."""

    leased: dict[str, int]
    """Number of leased workers, by run."""
    queue: tuple[Request, ...]
    """Waiting requests, the next one first."""
    idle_pids: tuple[int, ...]
    foreign_cpus: float
    """CPUs that other programs than the workbench hold."""
    missing: tuple[str, ...] = ()
    """A sentence on each node that is lost, silent or requested."""

    @property
    def num_waiting(self) -> int:
        """How many requests wait for workers."""
        return len(self.queue)


@dataclass(frozen=True)
class Owner:
    """The process whose end ends a lease: an actor, or the driver process of a Ray job."""

    job_id: str
    pid: int
    actor_id: str | None = None
    node_id: str = ""
    handle: Any = field(default=None, compare=False)
    """The actor, so that it can be killed when its node is silent."""


def find_dead(owners: set[Owner]) -> set[Owner]:
    """Return the owners that are dead, as the cluster knows them.

    Args:
        owners: Owners of leases.
    """
    ended = ended_jobs()
    return {owner for owner in owners if _is_dead(owner, ended)}


def _is_dead(owner: Owner, ended: set[str]) -> bool:
    if owner.actor_id is None:
        return owner.job_id in ended
    state, pid = actor_state(owner.actor_id)
    # An actor that was restarted has the same id but another process.
    return state in ("DEAD", "RESTARTING") or pid not in (0, owner.pid)

"""What the pool returns: a gang that was leased, and its status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

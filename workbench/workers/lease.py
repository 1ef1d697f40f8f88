"""What the pool answers: a gang that was leased, and what it holds in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.workers.admission import Request
from workbench.workers.worker import WorkerInfo


@dataclass(frozen=True)
class Lease:
    """A gang that was leased."""

    lease_id: int
    workers: tuple[Any, ...]
    """Handles of the workers, by rank."""
    infos: tuple[WorkerInfo, ...]


@dataclass(frozen=True)
class PoolStatus:
    """What the pool holds."""

    leased: dict[str, int]
    """Leased workers, by run."""
    queue: tuple[Request, ...]
    """Who waits, the next one first."""
    idle_pids: tuple[int, ...]
    foreign_cpus: float  # that others than the workbench hold
    missing: tuple[str, ...] = ()
    """What is said of nodes that are lost, silent, or asked for."""

    @property
    def num_waiting(self) -> int:
        """How many gangs are waited for."""
        return len(self.queue)

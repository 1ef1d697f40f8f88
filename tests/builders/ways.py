"""The ways of making a step that are registered, so that tests cover a new one without naming
it.
"""

from __future__ import annotations

from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.strategies.strategy import Worker
from workbench.training.strategies.worker_group import Group

OF_SEVERAL = tuple(name for name in STRATEGIES.names() if capabilities_of(name).max_workers != 1)
"""The strategies that divide a step among workers."""
OF_REPLICAS = tuple(name for name in OF_SEVERAL if capabilities_of(name).axis is None)
"""Those in which each worker computes the whole model."""


def worker_of(
    name: str, rank: int, num_workers: int, group: Group, per_replica: int | None = None
) -> Worker:
    """Return a worker of a strategy.

    Where it divides models, all workers hold one copy together.
    """
    size = (per_replica or num_workers) if capabilities_of(name).axis is not None else 1
    return Worker(rank, num_workers, group=group, workers_per_replica=size)

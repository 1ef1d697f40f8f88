"""Which worker of a trial is slower than the others, from what each does without them.

A worker that waits for others spends the time in its backward pass, or in the forward pass of ways
that gather weights there; so loading and the forward pass of replicas show who is late, and not who
waits.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

import torch

from workbench.training.strategies.strategy import Worker

_ALONE = ("data", "forward")


class SlowestRank(NamedTuple):
    """The worker that takes longest."""

    rank: int
    factor: float
    """How many times as long as the median of the others it takes, at least 1."""


class RankTimes:
    """Seconds that each worker spends alone, over an attempt."""

    def __init__(self, worker: Worker) -> None:
        """Begin with nothing measured by `worker`, one of those of a trial."""
        self._worker = worker
        self._num_windows = 0
        self._totals_s = torch.zeros(worker.num_workers, dtype=torch.float64, device=worker.device)

    def add(self, parts_s: Mapping[str, float]) -> SlowestRank | None:
        """Add a window of steps; every worker must call it.

        The first window is left out, because it holds what only first steps do.

        Args:
            parts_s: Mean seconds a step of this worker, by part.

        Returns:
            The slowest worker so far; None until the second window, for a single worker, and for
            parts of a model, which do not compute alike.
        """
        if self._worker.num_workers == 1 or self._worker.workers_per_replica > 1:
            return None
        self._num_windows += 1
        if self._num_windows == 1:
            return None
        self._totals_s[self._worker.rank] += sum(parts_s.get(part, 0.0) for part in _ALONE)
        own_s = self._worker.group.total(self._totals_s).tolist()
        slowest = max(range(len(own_s)), key=own_s.__getitem__)
        others_s = statistics.median(own_s[:slowest] + own_s[slowest + 1 :])
        return SlowestRank(slowest, own_s[slowest] / others_s) if others_s > 0.0 else None

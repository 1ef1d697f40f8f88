"""Only the gradients of the largest magnitude travel: one value in so many, with its place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from workbench.training.exchanges.allreduce import num_bytes_of
from workbench.training.exchanges.capabilities import BUILT_IN
from workbench.training.exchanges.error_feedback import ErrorFeedback, begin_gather
from workbench.training.exchanges.exchange import Traffic

_SAMPLED = 4096
_MARGIN = 2.0
"""How many times as many values as needed the estimated threshold lets through."""


class Largest(ErrorFeedback):
    """The mean of the largest values of each bucket."""

    capabilities = BUILT_IN["topk"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends: a value and its place; see TrafficStating.traffic."""
        return Traffic(2 * num_bytes_of(shapes) / self._plan.exchange_compression, "gather")

    def send(self, wanted: Tensor, parts: Mapping[str, int]) -> torch.futures.Future[Tensor]:
        """Send the largest values; see ErrorFeedback.send."""
        places = _places_of_largest(
            wanted, math.ceil(wanted.numel() / self._plan.exchange_compression)
        )
        sent = wanted[places].float()
        wanted[places] -= sent
        num_values, num_replicas = wanted.numel(), self._num_replicas

        def mean(rows: list[Tensor]) -> Tensor:
            total = torch.zeros(num_values, device=wanted.device)
            for row in rows:
                values, where = row.chunk(2)
                total.index_add_(0, where, values.clone().view(torch.float32))
            return total.div_(num_replicas)

        payload = torch.cat([sent.view(torch.int32), places.int()])
        return begin_gather(payload, self._group, mean)


def _places_of_largest(values: Tensor, count: int) -> Tensor:
    """Return where the values of the largest magnitude are.

    Sorting all of them takes long: a threshold that is estimated from some leaves few to choose
    from.
    """
    magnitudes, size = values.abs(), values.numel()
    step = max(1, size // _SAMPLED)
    sampled = magnitudes[::step]
    rank = math.ceil(_MARGIN * count / size * sampled.numel()) + 1
    if rank < sampled.numel():
        threshold = sampled.topk(rank, sorted=False).values.min()
        candidates = (magnitudes >= threshold).nonzero().view(-1)
        if len(candidates) >= count:
            return candidates[magnitudes[candidates].topk(count, sorted=False).indices]
    return magnitudes.topk(count, sorted=False).indices

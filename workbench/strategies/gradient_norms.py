"""Squared norms of the gradients of a step and of its parts, from which the noise of gradients is estimated.

A part is one micro batch of one worker. Its own gradient is seen by a hook where it flows into a parameter,
before anything is added to it or exchanged, so nothing is copied and the step stays what it is, bit for bit.
What the norms say, and how often they are worth taking, is left to others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from workbench.strategies.strategy import MicroBatch, StepBatch


class WatchedBatch:
    """A batch that notes the squared norm of the gradient of each of its micro batches, while it is entered.

    Norms are taken in fp32 and added up in fp64. A parameter that a micro batch does not reach adds nothing.
    """

    def __init__(self, batch: StepBatch, leaves: Iterable[Tensor]) -> None:
        """Make one for a single step.

        Args:
            batch: Micro batches that all have samples.
            leaves: The parameters as the backward pass sees them.
        """
        self._batch = batch
        self._leaves = leaves
        self._norms: list[Tensor] = []
        self._weights: list[float] = []
        self._weight = 1.0
        self._handles: list[Any] = []

    def __len__(self) -> int:
        return len(self._batch)

    def __iter__(self) -> Iterator[MicroBatch]:
        for micro_batch in self._batch:
            self._weight = micro_batch.weight
            yield micro_batch

    def __enter__(self) -> WatchedBatch:
        self._handles = [leaf.register_hook(self._note) for leaf in self._leaves if leaf.requires_grad]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def mean_sqr_norm(self) -> Tensor:
        """Return the mean over the micro batches of the squared norm of the gradient of their mean loss."""
        if not self._norms:
            return torch.zeros((), dtype=torch.float64)
        norms = torch.stack(self._norms).double()
        weights = torch.tensor(self._weights, dtype=torch.float64).to(norms.device, non_blocking=True)
        return (norms / weights).square().sum() / len(self)

    def _note(self, gradient: Tensor) -> None:
        dense = _dense(gradient)
        self._norms.append(torch.linalg.vector_norm(dense, dtype=torch.float32))
        self._weights.append(self._weight)


def sqr_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Return the squared norm of what this worker holds of the gradients of parameters.

    Args:
        parameters: Parameters; those without a gradient add nothing, of sharded ones the own shard counts.
    """
    gradients = [_dense(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float32)  # type: ignore[attr-defined]
    return torch.stack(list(norms)).double().square().sum()


def _dense(gradient: Tensor) -> Tensor:
    """Return a tensor of the same norm that is neither sparse nor sharded."""
    if isinstance(gradient, DTensor):
        return gradient.to_local()
    return gradient.coalesce().values() if gradient.is_sparse else gradient

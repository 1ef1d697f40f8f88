"""Squared norms of the gradients of a step and of its parts, to estimate their noise.

A part is one micro batch of one worker. A hook sees its gradient when it reaches a parameter,
before it is added to others or exchanged. So nothing is copied, and the step stays the same bit for
bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from workbench.training.strategies.strategy import MicroBatch, StepBatch
from workbench.training.strategies.tensor_shards import is_cut, local_part

MAX_HELD_BYTES = 4 << 20
"""Gradients are held up to this size, so that the norms of many small ones are taken at once."""


class WatchedBatch:
    """A batch that measures the gradient of each of its micro batches while it is entered.

    Norms are taken in fp32 and added up in fp64. A parameter without a gradient adds nothing.
    """

    def __init__(self, batch: StepBatch, leaves: Iterable[Tensor]) -> None:
        """Watch a single step.

        Args:
            batch: Micro batches that all have samples.
            leaves: The parameters as the backward pass sees them.
        """
        self._batch = batch
        self._leaves = leaves
        self._handles: list[Any] = []
        self._untouched: list[Tensor] = []
        self._weight = 1.0
        self._held: list[Tensor] = []
        self._held_bytes = 0
        self._norms: list[Tensor] = []
        self._factors: list[float] = []

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def num_samples(self) -> int:
        """See StepBatch.num_samples."""
        return self._batch.num_samples

    def __iter__(self) -> Iterator[MicroBatch]:
        for micro_batch in self._batch:
            self._weight = micro_batch.weight
            yield micro_batch
            self._let_go()

    def __enter__(self) -> WatchedBatch:
        watched = [leaf for leaf in self._leaves if leaf.requires_grad]
        self._untouched = [leaf for leaf in watched if not leaf._backward_hooks]
        self._handles = [leaf.register_hook(self._hold) for leaf in watched]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        # Torch would visit an empty collection of hooks in every later backward pass.
        for leaf in self._untouched:
            leaf._backward_hooks = None
        self._handles, self._untouched, self._held = [], [], []

    def sqr_norms(self, parameters: Sequence[Tensor], device: torch.device) -> Tensor:
        """Return the mean squared gradient norm of the micro batches, and that of the whole step.

        Args:
            parameters: The trained parameters with the gradients of the step. If they are sharded,
                only this worker's shard counts.
            device: Their device.

        Returns:
            Two numbers in fp64, on the device.
        """
        gradients = [
            _dense(parameter.grad) for parameter in parameters if parameter.grad is not None
        ]
        norms = [*self._norms, *_norms(gradients)]
        if not norms:
            return torch.zeros(2, dtype=torch.float64, device=device)
        num_parts, num_gradients = len(self._norms), len(gradients)
        # One matrix product makes both sums, so the device is asked for nothing in between.
        factors = torch.tensor(
            [
                [*self._factors, *[0.0] * num_gradients],
                [*[0.0] * num_parts, *[1.0] * num_gradients],
            ],
            dtype=torch.float64,
        )
        return factors.to(device, non_blocking=True) @ torch.stack(norms).double().square()

    def _hold(self, gradient: Tensor) -> None:
        dense = _dense(gradient)
        self._held.append(dense)
        self._held_bytes += dense.nbytes
        if self._held_bytes > MAX_HELD_BYTES:
            self._let_go()

    def _let_go(self) -> None:
        norms = _norms(self._held)
        self._norms += norms
        # A gradient came weighted by its part of the step. That is undone, and the mean is taken.
        self._factors += [1.0 / (self._weight**2 * len(self))] * len(norms)
        self._held, self._held_bytes = [], 0


def _norms(gradients: list[Tensor]) -> Sequence[Tensor]:
    if not gradients:
        return ()
    return torch._foreach_norm(gradients, 2, dtype=torch.float32)  # type: ignore[attr-defined]


def _dense(gradient: Tensor) -> Tensor:
    """Return a tensor of the same norm that is neither sparse nor sharded."""
    if is_cut(gradient):
        return local_part(gradient)
    if gradient.is_sparse:
        return gradient.coalesce().values()
    return gradient

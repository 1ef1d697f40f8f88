"""From the samples of a split to tensors on the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.data import Split
from workbench.data.batches import global_batches, num_equal_batches, worker_part
from workbench.data.ordered import OrderedSplit
from workbench.data.splits import ArraySplit
from workbench.strategies.strategy import MicroBatch

RESIDENT_BYTES = 1 << 30


def _num_bytes(split: ArraySplit) -> int:
    return split.inputs.nbytes + split.targets.nbytes


class Source:
    """Hands out batches of a split as tensors on one device.

    Arrays of up to 1 GiB are put on a GPU once, as copying each batch would cost more than its step.
    """

    def __init__(self, split: Split, device: torch.device) -> None:
        self._split = split
        self._device = device
        self._resident: tuple[Tensor, Tensor] | None = None
        self.all_indices = np.arange(len(split))
        if device.type == "cuda" and isinstance(split, ArraySplit) and _num_bytes(split) <= RESIDENT_BYTES:
            self._resident = (self._move(np.array(split.inputs)), self._move(np.array(split.targets)))

    def __len__(self) -> int:
        return len(self.all_indices)

    def batches(
        self, *, global_batch: int, epoch: int, seed: int, start: int = 0
    ) -> Iterator[np.ndarray[Any, Any]]:
        """Walk through the global batches of an epoch of training; see `data.batches.global_batches`.

        Samples are visited in random order, but where the split has an order of its own.
        """
        is_ordered = isinstance(self._split, OrderedSplit)
        if isinstance(self._split, OrderedSplit):
            self._split.begin(epoch, seed)
        return global_batches(
            len(self), global_batch=global_batch, epoch=epoch, seed=seed, shuffle=not is_ordered, start=start
        )

    def fetch(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return (inputs, targets) of the samples at `indices`: tensors, or tuples and mappings of some."""
        if self._resident is not None:
            on_device = torch.from_numpy(indices).to(self._device, non_blocking=True)
            return self._resident[0][on_device], self._resident[1][on_device]
        inputs, targets = self._split.batch(indices)
        return self._move(inputs), self._move(targets)

    def _move(self, values: Any) -> Any:
        if isinstance(values, Mapping):
            return {name: self._move(part) for name, part in values.items()}
        if isinstance(values, tuple):
            return tuple(self._move(part) for part in values)
        if isinstance(values, list):  # such as texts, which no device takes
            return values
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
        return tensor if self._device.type == "cpu" else tensor.to(self._device, non_blocking=True)


class WorkerBatch:
    """One worker's samples of one optimizer step; see strategies.strategy.StepBatch."""

    def __init__(
        self,
        source: Source,
        indices: np.ndarray,
        *,
        micro_batch: int,
        replica: int = 0,
        num_replicas: int = 1,
    ) -> None:
        """Cut a worker's part of a step.

        Args:
            source: Where the samples are.
            indices: The samples of the step, over all workers.
            micro_batch: Samples that a worker takes at once.
            replica: Which copy of the model the worker belongs to.
            num_replicas: Copies among which the step is divided.
        """
        self._source = source
        self._num_samples = len(indices)
        self._own = worker_part(indices, replica, num_replicas)
        self._spare = indices[:1]
        self._micro_batch = micro_batch
        self._num_micro_batches = num_equal_batches(len(indices), micro_batch, num_replicas)

    def __len__(self) -> int:
        return self._num_micro_batches

    def __iter__(self) -> Iterator[MicroBatch]:
        for first in range(0, self._num_micro_batches * self._micro_batch, self._micro_batch):
            indices = self._own[first : first + self._micro_batch]
            # A worker that has no samples left still exchanges with those that have, by one that counts 0.
            inputs, targets = self._source.fetch(indices if len(indices) else self._spare)
            yield MicroBatch(inputs, targets, len(indices) / self._num_samples)

"""Samples that are on the device.

Steps pick theirs by indices that were copied there for many at once.

To copy the indices of one step takes a small model as long as several of its layers.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

PICKED_AHEAD = 256
"""Micro batches whose indices are copied at once."""


class Resident:
    """The inputs and targets of a split on one device."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs = inputs
        self.targets = targets

    def load(self, wanted: Iterable[np.ndarray]) -> Picking:
        """Begin to pick micro batches, by the indices of their samples."""
        return Picking(self, iter(wanted))


class Picking:
    """Micro batches in the order in which they were wanted; see loaders.Loading."""

    is_stale = False

    def __init__(self, resident: Resident, wanted: Iterator[np.ndarray]) -> None:
        self._resident = resident
        self._wanted = wanted
        self._coming: deque[Tensor] = deque()
        self._copy_indices()

    def next(self) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of the next one."""
        indices = self._coming.popleft()
        if not self._coming:
            self._copy_indices()
        return self._resident.inputs[indices], self._resident.targets[indices]

    def _copy_indices(self) -> None:
        if coming := list(itertools.islice(self._wanted, PICKED_AHEAD)):
            indices = torch.from_numpy(np.concatenate(coming)).to(self._resident.inputs.device)
            self._coming.extend(indices.split([len(each) for each in coming]))

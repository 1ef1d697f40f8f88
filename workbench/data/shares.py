"""A share of the training samples: the first ones of one random order.

So a smaller share is a part of a larger one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.data.batches import Groups
from workbench.data.ordered import OrderedSplit
from workbench.data.splits import ArraySplit, Datasets, Split
from workbench.foundation.errors import ExperimentError


def with_share(datasets: Datasets, share: float, *, seed: int) -> Datasets:
    """Return data of which only a share of the training samples is used.

    Args:
        datasets: The data; validation and test stay as they are.
        share: In (0, 1]; at least one sample is used.
        seed: Decides which.

    Raises:
        ExperimentError: If the samples have an order of their own, so that none can be left out.
    """
    if share == 1.0:
        return datasets
    split = datasets.train
    if isinstance(split, OrderedSplit):
        raise ExperimentError(
            "samples that come in an order of their own are all used",
            field="training.samples",
            allowed="1.0",
            next_step="Remove it, or let the data take a parameter that makes it smaller.",
        )
    order = np.random.default_rng(seed).permutation(len(split))
    indices = np.sort(order[: max(1, round(share * len(split)))])
    return dataclasses.replace(datasets, train=_chosen(split, indices))


def _chosen(split: Split, indices: np.ndarray) -> Split:
    if isinstance(split, ArraySplit) and not isinstance(split.inputs, np.memmap):
        return ArraySplit(split.inputs[indices], split.targets[indices])
    return _ChosenSplit(split, indices)


@dataclass(frozen=True)
class _ChosenSplit:
    split: Any
    indices: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def draws_samples(self) -> bool:
        return getattr(self.split, "draws_samples", False)

    @property
    def shuffle_groups(self) -> Groups | None:
        groups = getattr(self.split, "shuffle_groups", None)
        return None if groups is None else groups._replace(of_sample=groups.of_sample[self.indices])

    def batch(self, indices: np.ndarray, **how: Any) -> tuple[Any, Any]:
        return self.split.batch(self.indices[indices], **how)

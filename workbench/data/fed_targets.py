"""Data for code that computes its loss itself: the targets are its last input, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.data.batches import Groups
from workbench.data.ordered import OrderedSplit
from workbench.data.splits import Datasets, Split


def with_targets_as_inputs(datasets: Datasets) -> Datasets:
    """Return data whose inputs contain the targets; named inputs contain theirs already."""
    return dataclasses.replace(
        datasets,
        train=_feeding(datasets.train),
        validation=_feeding(datasets.validation),
        test=None if datasets.test is None else _feeding(datasets.test),
    )


def _feeding(split: Split) -> Split:
    return _FedOrderedSplit(split) if isinstance(split, OrderedSplit) else _FedSplit(split)


@dataclasses.dataclass(frozen=True)
class _FedSplit:
    split: Any

    def __len__(self) -> int:
        return len(self.split)

    @property
    def draws_samples(self) -> bool:
        return getattr(self.split, "draws_samples", False)

    @property
    def shuffle_groups(self) -> Groups | None:
        return getattr(self.split, "shuffle_groups", None)

    def batch(self, indices: np.ndarray, **how: Any) -> tuple[Any, Any]:
        inputs, targets = self.split.batch(indices, **how)
        if isinstance(inputs, Mapping):
            return inputs, targets
        return (*(inputs if isinstance(inputs, tuple) else (inputs,)), targets), targets


class _FedOrderedSplit(_FedSplit):
    def begin(self, epoch: int, seed: int) -> None:
        self.split.begin(epoch, seed)

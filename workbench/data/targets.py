"""The targets of samples: read before training, as classes, and as inputs.

Targets in memory can all be read before any sample is used. The class of a sample follows from
targets in any form that has one meaning. Values are not judged. Code that computes its loss itself
receives the targets as its last input.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.data.batches import Groups
from workbench.data.collating import TARGET_NAMES, collate
from workbench.data.ordered_splits import OrderedSplit
from workbench.data.splits import ArraySplit, Datasets, MapSplit, Split
from workbench.foundation.errors import DataError

_MAX_NUMBERS = 50_000_000
"""More targets are not read together, because a start should not take that long."""
_MAX_SAMPLES = 1_000_000


def known_targets(split: Split) -> np.ndarray | None:
    """Return the targets of all samples in order, or None if samples would have to be read.

    Args:
        split: The samples.
    """
    if isinstance(split, ArraySplit):
        if split.targets.size > _MAX_NUMBERS:
            return None
        return split.targets
    if not isinstance(split, MapSplit) or split.gather is not collate:
        return None
    return _of_dataset(split.dataset)


def _of_dataset(dataset: Any) -> np.ndarray | None:
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and type(dataset) is torch_data.Subset:
        inner = _of_dataset(dataset.dataset)
        if inner is None:
            return None
        return inner[np.asarray(dataset.indices, dtype=np.int64)]
    if torch_data is not None and type(dataset) is torch_data.TensorDataset:
        targets = dataset.tensors[-1]
        if targets.device.type != "cpu" or targets.numel() > _MAX_NUMBERS:
            return None
        return targets.detach().numpy()
    if not isinstance(dataset, list | tuple) or len(dataset) > _MAX_SAMPLES:
        return None
    return _of_list(dataset)


def _of_list(samples: Sequence[Any]) -> np.ndarray | None:
    """Return the targets of samples in a list, or None if they are not numbers of one shape."""
    name: Any = -1
    if samples and isinstance(samples[0], Mapping):
        name = next((name for name in TARGET_NAMES if name in samples[0]), None)
        if name is None:
            return None
    try:
        targets = [sample[name] for sample in samples]
        size = int(np.prod(np.shape(targets[0])))
        if size * len(targets) > _MAX_NUMBERS:
            return None
        stacked = np.stack([np.asarray(target) for target in targets])
    except (TypeError, ValueError, LookupError, RuntimeError):
        return None  # `collate` says what is wrong with them
    if stacked.dtype.kind not in "biuf":
        return None
    return stacked


def are_shares(targets: np.ndarray, num_classes: int) -> bool:
    """Return whether targets with one class for each sample are shares, such as one-hot.

    Args:
        targets: The targets of some samples.
        num_classes: Number of classes.
    """
    return targets.ndim == 2 and targets.shape[1] == num_classes > 1


def class_of_each(targets: Any, num_classes: int) -> np.ndarray:
    """Return the class of each sample.

    Args:
        targets: Class numbers, (samples,) or (samples, 1), or shares of the classes, (samples,
            classes).
        num_classes: Number of classes.

    Returns:
        Class numbers, (samples,).

    Raises:
        DataError: If samples have other targets than one class each.

    Example:
        >>> class_of_each(np.array([[2.0], [0.0]]), 3).tolist()
        [2, 0]
        >>> class_of_each(np.array([[0, 0, 1], [1, 0, 0]]), 3).tolist()
        [2, 0]
    """
    values = np.asarray(targets)
    if are_shares(values, num_classes):
        return values.argmax(axis=1)
    if values.shape[1:] not in ((), (1,)):
        raise DataError(
            f"the targets are of shape {values.shape}, which is not one class of each sample",
            field="data",
            allowed=f"({len(values)},), ({len(values)}, 1) or ({len(values)}, {num_classes})",
            next_step="Give each sample the number of its class, from 0.",
        )
    return values.reshape(-1).astype(np.int64)


def with_targets_as_inputs(datasets: Datasets) -> Datasets:
    """Return data whose inputs contain the targets, as named inputs already do."""
    return dataclasses.replace(
        datasets,
        train=_with_targets(datasets.train),
        validation=_with_targets(datasets.validation),
        test=None if datasets.test is None else _with_targets(datasets.test),
    )


def _with_targets(split: Split) -> Split:
    if isinstance(split, OrderedSplit):
        return _OrderedSplitWithTargets(split)
    return _SplitWithTargets(split)


@dataclasses.dataclass(frozen=True)
class _SplitWithTargets:
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
        if not isinstance(inputs, tuple):
            inputs = (inputs,)
        return (*inputs, targets), targets


class _OrderedSplitWithTargets(_SplitWithTargets):
    def begin(self, epoch: int, seed: int) -> None:
        self.split.begin(epoch, seed)

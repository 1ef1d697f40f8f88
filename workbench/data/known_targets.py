"""The targets of a split that are in memory, all of which can be looked at before any sample is
used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.data.collating import TARGET_NAMES, collate
from workbench.data.splits import ArraySplit, MapSplit, Split

_MAX_NUMBERS = 50_000_000
"""More are not looked at together, as that would take longer than a start should."""
_MAX_SAMPLES = 1_000_000


def known_targets(split: Split) -> np.ndarray | None:
    """Return the targets of all samples in their order.

    None where samples would have to be read for them.

    Args:
        split: The samples.
    """
    if isinstance(split, ArraySplit):
        return split.targets if split.targets.size <= _MAX_NUMBERS else None
    if not isinstance(split, MapSplit) or split.gather is not collate:
        return None
    return _of_dataset(split.dataset)


def _of_dataset(dataset: Any) -> np.ndarray | None:
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and type(dataset) is torch_data.Subset:
        inner = _of_dataset(dataset.dataset)
        return None if inner is None else inner[np.asarray(dataset.indices, dtype=np.int64)]
    if torch_data is not None and type(dataset) is torch_data.TensorDataset:
        targets = dataset.tensors[-1]
        is_small = targets.device.type == "cpu" and targets.numel() <= _MAX_NUMBERS
        return targets.detach().numpy() if is_small else None
    if not isinstance(dataset, list | tuple) or len(dataset) > _MAX_SAMPLES:
        return None
    return _of_list(dataset)


def _of_list(samples: Sequence[Any]) -> np.ndarray | None:
    """Return the targets of samples in a list; None where they are not numbers of one shape."""
    name = None
    if samples and isinstance(samples[0], Mapping):
        name = next((each for each in TARGET_NAMES if each in samples[0]), None)
        if name is None:
            return None
    try:
        targets = [sample[-1] if name is None else sample[name] for sample in samples]
        size = int(np.prod(np.shape(targets[0])))
        if size * len(targets) > _MAX_NUMBERS:
            return None
        found = np.stack([np.asarray(target) for target in targets])
    except (
        TypeError,
        ValueError,
        LookupError,
        RuntimeError,
    ):  # `collate` says what is wrong with them
        return None
    return found if found.dtype.kind in "biuf" else None

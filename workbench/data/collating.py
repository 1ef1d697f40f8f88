"""From samples to a batch: what stands at the same place of each sample is stacked.

Numbers and arrays become arrays, tensors stay tensors; tuples and mappings stay what they are. Text
and other values become lists. Moving a batch to a device is left to training.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.foundation.errors import DataError, first_line_of

TARGET_NAMES = ("labels", "label", "targets", "target")
"""Under which names the target of a sample that is a mapping is found, the first of them that it
has.
"""
_ALLOWED = "a pair (input, target), (input, input, ..., target), or a mapping of names to values"


def collate(samples: Sequence[Any]) -> tuple[Any, Any]:
    """Make a batch of samples.

    Args:
        samples: At least one; each a pair, a tuple of several inputs and a target, or a mapping.

    Returns:
        Inputs and targets, see `inputs_and_targets`.

    Raises:
        DataError: If the samples are something else, or do not fit together.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return inputs_and_targets(_stack(samples))
    if not isinstance(first, tuple | list) or len(first) < 2:
        raise DataError(
            f"a sample is of type {type(first).__name__}",
            field="data",
            allowed=_ALLOWED,
            next_step="Wrap the data set in one whose __getitem__ returns such samples.",
        )
    *inputs, targets = zip(*samples, strict=True)
    stacked = tuple(_stack(part) for part in inputs)
    return stacked[0] if len(stacked) == 1 else stacked, _stack(targets, keeps_doubles=True)


def inputs_and_targets(batch: Any) -> tuple[Any, Any]:
    """Divide a batch into what the model receives and what its outputs are compared with.

    Args:
        batch: A mapping, a tuple of which the last member is the targets, or something else.

    Returns:
        Of a mapping: the whole of it, as a model takes what it names, and its targets, or the whole
        again where none of its names is in `TARGET_NAMES`. Of anything that is no tuple: twice the
        same.
    """
    if isinstance(batch, Mapping):
        plain = dict(batch)
        return plain, next((plain[name] for name in TARGET_NAMES if name in plain), plain)
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        return batch, batch
    *inputs, targets = batch
    return inputs[0] if len(inputs) == 1 else tuple(inputs), targets


def leaves(batch: Any) -> Iterator[Any]:
    """Yield the arrays, tensors and lists that a batch consists of."""
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if not isinstance(batch, tuple):
        yield batch
        return
    for part in batch:
        yield from leaves(part)


def _stack(values: Sequence[Any], *, keeps_doubles: bool = False) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _stack([value[name] for value in values]) for name in first}
    if isinstance(first, tuple) and any(_is_array(part) for part in first):
        return tuple(_stack(part) for part in zip(*values, strict=True))
    if _is_tensor(first):
        # Whoever returns tensors has loaded torch, so it is not imported here.
        return _joined(sys.modules["torch"].stack, values)
    if isinstance(first, str | bytes):
        return list(values)
    stacked = _joined(lambda parts: np.stack([np.asarray(part) for part in parts]), values)
    if stacked.dtype == object:
        return list(values)
    return stacked if keeps_doubles or stacked.dtype != np.float64 else stacked.astype(np.float32)


def _joined(stack: Any, values: Sequence[Any]) -> Any:
    try:
        return stack(list(values))
    except (ValueError, RuntimeError, TypeError) as error:
        raise DataError(
            f"samples do not fit together: {first_line_of(error)}",
            field="data",
            next_step="Return samples of one shape, or a DataLoader whose collate_fn pads them.",
        ) from error


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | Mapping) or _is_tensor(value)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)

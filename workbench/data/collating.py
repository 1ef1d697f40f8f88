"""Makes a batch of samples by stacking their parts.

Numbers and arrays become arrays, tensors stay tensors, and tuples and mappings keep their
structure. Text and other values become lists. Training moves the batch to a device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.foundation.errors import DataError, first_line_of

TARGET_NAMES = ("labels", "label", "targets", "target")
"""The names under which a mapping holds its target. The first one that it has is used."""
_ALLOWED = "a pair (input, target), (input, input, ..., target), or a mapping of names to values"


def collate(samples: Sequence[Any]) -> tuple[Any, Any]:
    """Make a batch of samples.

    Args:
        samples: At least one pair, tuple of several inputs and a target, or mapping.

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
    return _unpacked(stacked), _stack(targets, keeps_doubles=True)


def inputs_and_targets(batch: Any) -> tuple[Any, Any]:
    """Divide a batch into what the model receives and what its outputs are compared with.

    Args:
        batch: A mapping, a tuple of which the last member is the targets, or something else.

    Returns:
        A mapping is both: the model takes the values that it names, and the target is the first of
        `TARGET_NAMES`, or again the mapping without any. A tuple is divided before its last member.
        Anything else is returned twice.
    """
    if isinstance(batch, Mapping):
        plain = dict(batch)
        return plain, next((plain[name] for name in TARGET_NAMES if name in plain), plain)
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        return batch, batch
    *inputs, targets = batch
    return _unpacked(tuple(inputs)), targets


def _unpacked(inputs: tuple[Any, ...]) -> Any:
    """Return a single input itself, and several as a tuple."""
    return inputs[0] if len(inputs) == 1 else inputs


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
        # Code that returns tensors has loaded torch, so it is not imported here.
        return _joined(sys.modules["torch"].stack, values)
    if isinstance(first, str | bytes):
        return list(values)
    stacked = _joined(lambda parts: np.stack([np.asarray(part) for part in parts]), values)
    if stacked.dtype == object:
        return list(values)
    # Models compute in float32. Targets keep their precision until the loss decides.
    if stacked.dtype == np.float64 and not keeps_doubles:
        return stacked.astype(np.float32)
    return stacked


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

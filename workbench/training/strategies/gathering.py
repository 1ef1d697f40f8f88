"""A state that is divided among workers, gathered on rank 0, which holds each tensor once.

Which part each worker adds is left to those who call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from workbench.training.strategies.group import Group, receive_on_cpu

Key = TypeVar("Key", int, str)


def gather_on_first(
    parts: Mapping[Key, Mapping[str, Any]], group: Group
) -> dict[Key, dict[str, Any]]:
    """Return the parts of all workers on rank 0, and on the others their own.

    Every worker must call it.

    One tensor after the other is sent, from CPU to CPU. Those of rank 0 stay the same objects.

    Args:
        parts: Tensors and plain values by two names; no two workers have the same first name.
        group: The workers.
    """
    found = {key: dict(values) for key, values in parts.items()}
    for sender, described in enumerate(group.gather(_described(parts))):
        if sender == 0:
            continue
        if group.rank == 0:
            for key, values in described.items():
                found[key] = {name: _receive(value, sender) for name, value in values.items()}
        elif group.rank == sender:
            for values in parts.values():
                _send(values.values(), group)
    return found


class _Form(NamedTuple):
    """A tensor that will be sent."""

    shape: torch.Size
    dtype: torch.dtype


def _described(parts: Mapping[Key, Mapping[str, Any]]) -> dict[Key, dict[str, Any]]:
    return {
        key: {
            name: _Form(value.shape, value.dtype) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        for key, values in parts.items()
    }


def _send(values: Iterable[Any], group: Group) -> None:
    for value in values:
        if isinstance(value, Tensor):
            group.send(value, 0, is_known=True).wait()


def _receive(value: Any, sender: int) -> Any:
    if not isinstance(value, _Form):
        return value
    return receive_on_cpu(value.shape, value.dtype, sender)

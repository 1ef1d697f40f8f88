"""Images and weights of convolutions that lie in memory with their channels last, as fast kernels
read them.

Shapes stay what they are, and so do names and values. Which plans can is left to `combinations`.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

_NUM_DIMENSIONS = 4


def lay_channels_last(model: nn.Module) -> None:
    """Lay the weights of convolutions of images with their channels last, in place."""
    # Not `model.to`, which cannot replace parameters without values: those with which memory is
    # estimated.
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if tensor.dim() == _NUM_DIMENSIONS:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)


def with_channels_last(inputs: Any) -> Any:
    """Return inputs of which images lie with their channels last."""

    def lay(values: Tensor) -> Tensor:
        is_image = values.dim() == _NUM_DIMENSIONS
        return values.contiguous(memory_format=torch.channels_last) if is_image else values

    return tree_map_only(Tensor, lay, inputs)


def lay_like_parameters(optimizer: Any) -> None:
    """Lay the state of each parameter as the parameter lies; a checkpoint may have another format.

    Fused optimizers read both in the order of the memory, and do not look at the format.

    Args:
        optimizer: One of torch's; others copy their state into what they hold.
    """
    if not isinstance(optimizer, Optimizer):
        return
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            has_values = isinstance(value, Tensor) and value.shape == parameter.shape
            if has_values and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)

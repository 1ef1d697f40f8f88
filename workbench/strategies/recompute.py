"""Activations that are computed again in the backward pass instead of being kept: less memory, more time.

Of a model's blocks only the inputs are kept. Nothing else changes: dropout drops the same units again, and
running statistics see each batch once.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

MIN_LAYERS = 4
"""A shorter sequence of plain layers is not worth cutting."""


def recompute_blocks(model: nn.Module) -> int:
    """Arrange that a model's blocks are computed again in the backward pass.

    Blocks are the members of lists and sequences that consist of parts themselves. A sequence of n plain
    layers is cut into sqrt(n) pieces, which needs the least memory.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".

    Args:
        model: The model; the `forward` of its blocks is replaced.

    Returns:
        How many blocks there are; 0 where the model has none.
    """
    if isinstance(model, nn.Sequential | nn.ModuleList):
        members = list(model)
        composite = [member for member in members if any(True for _ in member.children())]
        for block in composite:
            block.forward = _computed_again([block], block.forward)  # type: ignore[method-assign]
        if composite or isinstance(model, nn.ModuleList) or len(members) < MIN_LAYERS:
            return len(composite)
        return _cut(model, members)
    return sum(recompute_blocks(child) for child in model.children())


def _cut(sequence: nn.Sequential, layers: list[nn.Module]) -> int:
    num_pieces = round(math.sqrt(len(layers)))
    size = math.ceil(len(layers) / num_pieces)
    pieces = [layers[first : first + size] for first in range(0, len(layers), size)]

    def forward(inputs: Any) -> Any:
        for piece in pieces:
            inputs = _computed_again(piece, functools.partial(_run, piece))(inputs)
        return inputs

    sequence.forward = forward  # type: ignore[method-assign]
    return len(pieces)


def _run(layers: Sequence[nn.Module], inputs: Any) -> Any:
    for layer in layers:
        inputs = layer(inputs)
    return inputs


def _computed_again(modules: Sequence[nn.Module], forward: Callable[..., Any]) -> Callable[..., Any]:
    norms = [part for module in modules for part in module.modules() if isinstance(part, _NormBase)]

    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        contexts = lambda: (contextlib.nullcontext(), _without_statistics(norms))  # noqa: E731
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return call


@contextlib.contextmanager
def _without_statistics(norms: Sequence[_NormBase]) -> Iterator[None]:
    """Keep running statistics as they are: they have seen this batch already."""
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm, _, counted in before:
        norm.momentum = 0.0
        norm.num_batches_tracked = None if counted is None else counted.clone()
    try:
        yield
    finally:
        for norm, momentum, counted in before:
            norm.momentum, norm.num_batches_tracked = momentum, counted

"""Recomputes activations in the backward pass, which takes less memory and more time.

Only the inputs of a model's blocks are kept. The result is the same: dropout drops the same units
again, and running statistics count each batch once. Which blocks keep their activations anyway is
left to `kept_blocks`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from workbench.foundation.errors import ExperimentError

MIN_LAYERS = 4
"""Shorter sequences of plain layers are not cut, because that would save little."""


class Meter(Protocol):
    """Watches the blocks of a forward pass."""

    def inside(self, inputs: Any) -> contextlib.AbstractContextManager[None]:
        """Watch the next block, which receives these inputs."""
        ...


class Block:
    """A part of a model that may be recomputed in the backward pass.

    Attributes:
        is_recomputed: Whether it is recomputed.
        meter: If it is set, it watches the block, and nothing is recomputed.
    """

    def __init__(self, modules: Sequence[nn.Module], forward: Callable[..., Any]) -> None:
        """Make a block that is recomputed.

        Args:
            modules: The modules of the block.
            forward: Computes the block.
        """
        self.is_recomputed = True
        self.meter: Meter | None = None
        self._forward = forward
        self._norms = [
            part for module in modules for part in module.modules() if isinstance(part, _NormBase)
        ]

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the block, and keep its activations or only its inputs."""
        if self.meter is not None:
            with self.meter.inside((args, kwargs)):
                return self._forward(*args, **kwargs)
        if not self.is_recomputed or not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)

        def contexts() -> tuple[Any, Any]:
            return contextlib.nullcontext(), _without_statistics(self._norms)

        return checkpoint(self._forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)


def recompute_blocks(model: nn.Module) -> list[Block]:
    """Let a model's blocks be recomputed in the backward pass.

    Blocks are the members of module lists and sequences, if they have modules inside. A sequence of
    n plain layers is cut into sqrt(n) pieces, which needs the least memory.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".

    Args:
        model: The model. The `forward` of its blocks is replaced.

    Returns:
        The blocks.

    Raises:
        ExperimentError: If the model has no blocks.
    """
    blocks = list(_blocks_of(model))
    if not blocks:
        raise ExperimentError(
            "the model has no blocks that could be recomputed",
            field="plan.recompute",
            allowed="none, or a model with blocks in a torch.nn.Sequential or ModuleList",
        )
    return blocks


def has_blocks(model: nn.Module) -> bool:
    """Return whether `recompute_blocks` would find blocks in a model. The model does not change."""
    return any(True for _ in _divisible(model))


def _blocks_of(model: nn.Module) -> Iterator[Block]:
    for container, composite in _divisible(model):
        for member in composite:
            block = Block([member], member.forward)
            member.forward = block.compute  # type: ignore[method-assign]
            yield block
        if not composite:
            assert isinstance(container, nn.Sequential)
            yield from _cut(container, list(container))


def _divisible(model: nn.Module) -> Iterator[tuple[nn.Module, list[nn.Module]]]:
    """Yield each list or sequence that can be divided, with its members that have modules inside.

    If it yields no members, the sequence has only plain layers.
    """
    if not isinstance(model, nn.Sequential | nn.ModuleList):
        for child in model.children():
            yield from _divisible(child)
        return
    composite = [member for member in model if any(True for _ in member.children())]
    if composite or (isinstance(model, nn.Sequential) and len(model) >= MIN_LAYERS):
        yield model, composite


def _cut(sequence: nn.Sequential, layers: list[nn.Module]) -> list[Block]:
    num_pieces = round(math.sqrt(len(layers)))
    size = math.ceil(len(layers) / num_pieces)
    pieces = [layers[first : first + size] for first in range(0, len(layers), size)]
    blocks = [Block(piece, functools.partial(_run, piece)) for piece in pieces]

    def forward(inputs: Any) -> Any:
        for block in blocks:
            inputs = block.compute(inputs)
        return inputs

    sequence.forward = forward  # type: ignore[method-assign]
    return blocks


def _run(layers: Sequence[nn.Module], inputs: Any) -> Any:
    for layer in layers:
        inputs = layer(inputs)
    return inputs


@contextlib.contextmanager
def _without_statistics(norms: Sequence[_NormBase]) -> Iterator[None]:
    """Keep running statistics as they are, because they have counted this batch already."""
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm, _, counted in before:
        norm.momentum = 0.0
        norm.num_batches_tracked = counted.clone() if counted is not None else None
    try:
        yield
    finally:
        for norm, momentum, counted in before:
            norm.momentum, norm.num_batches_tracked = momentum, counted

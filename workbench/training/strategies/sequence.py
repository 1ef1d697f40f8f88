"""A model as a sequence of pieces, each of which takes the result of the last one, cut into stages.

A `torch.nn.Sequential` is such a sequence. Any other model lists its pieces in a method `pieces`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workbench.foundation.errors import ExperimentError


@dataclass(frozen=True)
class Piece:
    """A part of a model.

    Attributes:
        call: Computes it.
        modules: The modules that hold its parameters and buffers.
    """

    call: Callable[[Any], Any]
    modules: tuple[nn.Module, ...]


def pieces_of(model: nn.Module, num_stages: int) -> list[Piece]:
    """Return the pieces of a model, between any two of which it may be cut.

    A model defines them in a method `pieces`, which returns a list. A piece is a module, or a
    function followed by the modules that it uses, such as `(self.embed, self.tokens,
    self.positions)`.

    Args:
        model: The model.
        num_stages: How many stages it must have pieces for.

    Raises:
        ExperimentError: If it is not a sequence, or has too few pieces.
    """
    if isinstance(model, nn.Sequential):
        stated_pieces = [Piece(member, (member,)) for member in _members(model)]
    elif callable(getattr(model, "pieces", None)):
        stated_pieces = [_read(stated) for stated in model.pieces()]  # type: ignore[operator]
    else:
        raise ExperimentError(
            f"{type(model).__name__} is not known to be a sequence that can be cut into stages",
            field="plan.stages",
            allowed="a torch.nn.Sequential, or a model with a method pieces",
            next_step="Add the method, set plan.stages to 1, or use the strategy fsdp.",
        )
    pieces = list(_without_changed_inputs(stated_pieces))
    if len(pieces) < num_stages:
        raise ExperimentError(
            f"the model has too few pieces for {num_stages} stages",
            field="plan.stages",
            allowed=f"at most {len(pieces)}",
        )
    return pieces


def _members(sequence: nn.Sequential) -> Iterator[nn.Module]:
    for member in sequence:
        if type(member) is nn.Sequential:
            yield from _members(member)
        else:
            yield member


def _read(stated: Any) -> Piece:
    if isinstance(stated, nn.Module):
        return Piece(stated, (stated,))
    call, *modules = stated
    return Piece(call, tuple(modules))


def _without_changed_inputs(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Join a piece that changes its input to the previous one. Received values must not change."""
    waiting: list[Piece] = []
    for piece in pieces:
        if waiting and not getattr(piece.call, "inplace", False):
            yield _joined(waiting)
            waiting = []
        waiting.append(piece)
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]

    def call(inputs: Any) -> Any:
        for piece in pieces:
            inputs = piece.call(inputs)
        return inputs

    return Piece(call, tuple(module for piece in pieces for module in piece.modules))


def costs(pieces: Sequence[Piece], inputs: Any) -> list[float]:
    """Return what each piece costs relative to the others: operations, and numbers written.

    Args:
        pieces: The pieces of a model, which is not training.
        inputs: Some samples; None to count parameters instead.
    """
    if inputs is None:
        return [
            1.0 + sum(item.numel() for module in piece.modules for item in module.parameters())
            for piece in pieces
        ]
    from torch.utils.flop_counter import FlopCounterMode

    costs_of_pieces: list[float] = []
    with torch.no_grad():
        for piece in pieces:
            with FlopCounterMode(display=False) as counted:
                inputs = piece.call(inputs)
            written = inputs.numel() if isinstance(inputs, Tensor) else 0
            costs_of_pieces.append(counted.get_total_flops() + _FLOPS_PER_NUMBER * written)
    return costs_of_pieces


_FLOPS_PER_NUMBER = 10.0
"""A number that is written takes about as long as this many operations of a matrix product."""


def cut(weights: Sequence[float], num_stages: int) -> list[int]:
    """Return where stages start, so that the most costly one costs the least.

    Args:
        weights: The cost of each piece.
        num_stages: At most as many as there are pieces.

    Returns:
        The number of the first piece of each stage, and the number of pieces.

    Example:
        >>> cut([1.0, 1.0, 1.0, 3.0], 2)
        [0, 3, 4]
    """
    sums = [0.0]
    for weight in weights:
        sums.append(sums[-1] + weight)
    num_pieces = len(weights)
    best = {end: (sums[end], [0, end]) for end in range(1, num_pieces + 1)}
    for stage in range(2, num_stages + 1):
        best = {
            end: min(
                (max(best[first][0], sums[end] - sums[first]), [*best[first][1], end])
                for first in range(stage - 1, end)
            )
            for end in range(stage, num_pieces + 1)
        }
    return best[num_pieces][1]

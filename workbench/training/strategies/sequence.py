"""Cuts a model into stages. It must be a sequence of pieces, each computing on the previous result.

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
        call: Computes the part.
        modules: The modules that hold its parameters and buffers.
    """

    call: Callable[[Any], Any]
    modules: tuple[nn.Module, ...]


def pieces_of(model: nn.Module, num_stages: int) -> list[Piece]:
    """Return the pieces of a model. It can be cut between any two of them.

    A model defines them in a method `pieces`, which returns a list. A piece is a module, or a
    function followed by the modules that it uses, such as `(self.embed, self.tokens,
    self.positions)`.

    Args:
        model: The model.
        num_stages: How many stages it will be cut into.

    Raises:
        ExperimentError: If the model is not a sequence, or has too few pieces.
    """
    if isinstance(model, nn.Sequential):
        listed_pieces = [Piece(member, (member,)) for member in _members(model)]
    elif callable(getattr(model, "pieces", None)):
        listed_pieces = [_read(listed) for listed in model.pieces()]  # type: ignore[operator]
    else:
        raise ExperimentError(
            f"{type(model).__name__} cannot be cut into stages: its pieces are unknown",
            field="plan.stages",
            allowed="a torch.nn.Sequential, or a model with a method pieces",
            next_step="Add a method pieces, set plan.stages to 1, or use the strategy fsdp.",
        )
    pieces = list(_without_changed_inputs(listed_pieces))
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


def _read(listed: Any) -> Piece:
    if isinstance(listed, nn.Module):
        return Piece(listed, (listed,))
    call, *modules = listed
    return Piece(call, tuple(modules))


def _without_changed_inputs(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Join a piece that changes its input in place to the previous piece.

    A stage sends its outputs and needs its inputs in the backward pass, so neither may change.
    """
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
    """Return what each piece costs relative to the others, by operations and written numbers.

    Args:
        pieces: The pieces of a model in evaluation mode.
        inputs: Some samples. None counts parameters instead.
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
    """Return where stages start, such that the most expensive stage is as cheap as possible.

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
    # Dynamic programming: best[end] is the best way to cut the first `end` pieces into the stages
    # so far, as (cost of the most expensive stage, where stages start).
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

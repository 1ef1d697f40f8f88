"""Recurrent layers on packed sequences, computed so that an exporter can follow them.

`pack_padded_sequence` lays out the steps of a batch one after another, which depends on its values.
Here a packed sequence keeps its padding and its lengths, and the layers take each sequence to its
own end, with the same outputs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence

_LAYERS: tuple[type[nn.RNNBase], ...] = (nn.LSTM, nn.GRU, nn.RNN)


@contextlib.contextmanager
def packed_with_padding() -> Iterator[None]:
    """Let sequences keep their padding when they are packed, and recurrent layers mind it."""
    operators: Any = rnn
    packing = operators._VF
    forwards = {kind: kind.forward for kind in _LAYERS}
    operators._VF = SimpleNamespace(_pack_padded_sequence=_packed, _pad_packed_sequence=_padded)
    for kind, forward in forwards.items():
        kind.forward = _minding_padding(forward)
    try:
        yield
    finally:
        operators._VF = packing
        for kind, forward in forwards.items():
            kind.forward = forward


def _packed(steps: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Return (batch, steps, features) and the lengths, in place of joined steps."""
    return steps if batch_first else steps.transpose(0, 1), lengths


def _padded(
    steps: Tensor, lengths: Tensor, batch_first: bool, padding: float, total_length: int
) -> tuple[Tensor, Tensor]:
    filled = steps.masked_fill(_is_behind(steps, lengths), padding)
    return filled if batch_first else filled.transpose(0, 1), lengths


def _is_behind(steps: Tensor, lengths: Tensor) -> Tensor:
    places = torch.arange(steps.shape[1], device=steps.device)
    return (places >= lengths.to(steps.device)[:, None])[:, :, None]


def _minding_padding(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def computed(layer: nn.RNNBase, given: Any, hx: Any = None) -> Any:
        if not isinstance(given, PackedSequence):
            return forward(layer, given, hx)
        if layer.proj_size:
            raise NotImplementedError("packed sequences of an LSTM with projections")
        steps, state = _to_each_end(layer, given, hx)
        return PackedSequence(steps, *given[1:]), state

    return computed


def _to_each_end(layer: nn.RNNBase, given: PackedSequence, hx: Any) -> tuple[Tensor, Any]:
    """Return what a layer returns for each step, and its state at the end of each sequence."""
    steps, lengths = given.data, given.batch_sizes.to(given.data.device)
    kind = layer.mode.lower()
    run = getattr(torch, kind)
    num_directions = 2 if layer.bidirectional else 1
    first = _first_states(layer, hx, steps, given.sorted_indices)
    places = torch.arange(steps.shape[1], device=steps.device)
    backwards = (lengths[:, None] - 1 - places).clamp(min=0)
    ends = (lengths - 1)[:, None, None].expand(-1, 1, layer.hidden_size)
    at_ends = []
    for number in range(layer.num_layers):
        of_directions = []
        for direction in range(num_directions):
            place = number * num_directions + direction
            weights = [getattr(layer, name) for name in layer._all_weights[place]]
            begin = tuple(part[place : place + 1] for part in first)
            taken = _taken(steps, backwards) if direction else steps
            state = begin if kind == "lstm" else begin[0]
            outputs = run(taken, state, weights, layer.bias, 1, 0.0, False, False, True)[0]
            at_ends.append(outputs.gather(1, ends)[:, 0])
            of_directions.append(_taken(outputs, backwards) if direction else outputs)
        steps = torch.cat(of_directions, dim=-1)
    last = torch.stack(at_ends)
    if given.unsorted_indices is not None:
        last = last.index_select(1, given.unsorted_indices)
    # Nothing tells the cells of an LSTM at the ends. A model that uses them is not equal.
    return steps, (last, torch.full_like(last, torch.nan)) if kind == "lstm" else last


def _first_states(
    layer: nn.RNNBase, hx: Any, steps: Tensor, order: Tensor | None
) -> tuple[Tensor, ...]:
    num_states = 2 if layer.mode == "LSTM" else 1
    if hx is None:
        num_layers = layer.num_layers * (2 if layer.bidirectional else 1)
        zeros = steps.new_zeros(num_layers, steps.shape[0], layer.hidden_size)
        return (zeros,) * num_states
    states = hx if isinstance(hx, tuple) else (hx,)
    return states if order is None else tuple(part.index_select(1, order) for part in states)


def _taken(steps: Tensor, places: Tensor) -> Tensor:
    return steps.gather(1, places[:, :, None].expand(-1, -1, steps.shape[2]))

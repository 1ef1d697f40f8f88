"""Parameters of a model, or of a part of one, are cut into shards with torch's FSDP2.

A block's parameters are gathered when it is computed, and dropped afterwards. Making a step with
them is left to the strategies.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils import _pytree

from workbench.training.strategies.group import dimension_name
from workbench.training.strategies.sequence import Piece
from workbench.training.strategies.strategy import Worker

MIN_BLOCK_PARAMETERS = 100_000
"""Smaller blocks are gathered with what surrounds them: exchanges of their own would cost more."""


def mesh_of(worker: Worker, shard: int, *, always: str) -> Any:
    """Return all workers as a device mesh: copy, shard and part, as far as they are needed.

    Every worker must call it.

    Args:
        worker: This worker.
        shard: Replicas that divide a copy of the parameters.
        always: The dimension that is needed even where it has one worker.
    """
    copies, parts = worker.num_replicas // shard, worker.workers_per_replica
    sizes = {"copy": copies, "shard": shard, "part": parts}
    return worker.group.mesh(
        **{name: size for name, size in sizes.items() if size > 1 or name == always}
    )


def cut_parameters(
    model: nn.Module, mesh: Any, prepare: Callable[[nn.Module], None] | None = None
) -> None:
    """Cut the parameters of a model in place.

    Args:
        model: The model, on the device.
        mesh: As `mesh_of` returns it.
        prepare: Called with each module whose parameters will be gathered together.
    """
    for block in [*_blocks(model), model]:
        if prepare is not None:
            prepare(block)
        _cut(block, mesh)


def cut_pieces(pieces: Sequence[Piece], mesh: Any) -> Piece:
    """Return pieces of a model as one, with their parameters cut.

    Args:
        pieces: The pieces, whose modules are on the device.
        mesh: As `mesh_of` returns it.
    """
    owners = Counter(
        identity
        for piece in pieces
        for identity in {id(each) for each in _parameters(piece.modules)}
    )
    joined = []
    for piece in pieces:
        parameters = {id(each): each.numel() for each in _parameters(piece.modules)}
        is_shared = any(owners[identity] > 1 for identity in parameters)
        if not is_shared and sum(parameters.values()) >= MIN_BLOCK_PARAMETERS:
            module = _Joined([piece])
            _cut(module, mesh)
            joined.append(Piece(module, (module,)))
        else:
            joined.append(piece)
    stage = _Joined(joined)
    _cut(stage, mesh)
    return Piece(stage, (stage,))


def reshard(model: nn.Module) -> None:
    """Drop the parameters that are still gathered, as they are after a prediction."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


class _Joined(nn.Module):
    """Pieces of a model as a module, which gathers its parameters where it is called."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__()
        self._held = nn.ModuleList(module for piece in pieces for module in piece.modules)
        self._calls = [piece.call for piece in pieces]

    def forward(self, values: Any) -> Any:
        for call in self._calls:
            values = call(values)
        return values


def _parameters(modules: Iterable[nn.Module]) -> Iterator[nn.Parameter]:
    for module in modules:
        yield from module.parameters()


def _cut(block: nn.Module, mesh: Any) -> None:
    replicas = tuple(name for name in mesh.mesh_dim_names if dimension_name(name) != "part")
    block.register_forward_hook(_copy_view)
    block.register_forward_hook(_register_dataclass)
    fully_shard(block, mesh=mesh[replicas])


def _copy_view(_module: nn.Module, _inputs: Any, outputs: Any) -> Any:
    """Copy what is a view: where the next module changes it in place, torch would not gather
    parameters.
    """
    return outputs.clone() if isinstance(outputs, Tensor) and outputs._is_view() else outputs


def _register_dataclass(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
    """Let torch find the tensors in a dataclass that a module returns.

    There it begins the backward pass.
    """
    kind = type(outputs)
    if not dataclasses.is_dataclass(kind) or kind in _pytree.SUPPORTED_NODES:
        return
    names = [field.name for field in dataclasses.fields(kind)]

    def rebuild(values: Iterable[Any], _context: Any) -> Any:
        made = object.__new__(kind)  # its constructor may take something else
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
        return made

    _pytree.register_pytree_node(
        kind, lambda value: ([getattr(value, name) for name in names], None), rebuild
    )


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield what to gather separately, innermost first: large members of lists and sequences."""
    owners = Counter(
        id(parameter) for module in model.modules() for parameter in module._parameters.values()
    )
    for module in reversed(list(model.modules())):
        if not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        for member in module.children():
            parameters = list(member.parameters())
            if isinstance(member, nn.ModuleList | nn.ModuleDict | FSDPModule):
                continue  # it has no forward pass to gather for, or is cut already
            is_shared = any(owners[id(parameter)] > 1 for parameter in parameters)
            if not is_shared and sum(item.numel() for item in parameters) >= MIN_BLOCK_PARAMETERS:
                yield member

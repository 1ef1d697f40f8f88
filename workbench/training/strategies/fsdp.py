"""Parameters, gradients and optimizer state are cut into shards, one for each worker (FSDP2).

A block's parameters are gathered when the block is computed and dropped afterwards, so a model may
be larger than one device. All workers must call the model equally often: see StepBatch and
`predict`. With hybrid sharding, a few workers, such as the workers of a node, divide one copy of
the parameters. Workers that hold the same shard of different copies add up its gradients. The
strategies `tensor` and `pipeline` cut the parameters of their parts in the same way.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils import _pytree

from workbench.training.strategies.capabilities import BUILT_IN
from workbench.training.strategies.ddp import DataParallel
from workbench.training.strategies.sequence import Piece
from workbench.training.strategies.strategy import Worker, as_it_is, compile_forward
from workbench.training.strategies.tensor_shards import (
    WEIGHTS,
    Place,
    StateParts,
    own_shard,
    parts_of,
)
from workbench.training.strategies.worker_group import dimension_name

MIN_BLOCK_PARAMETERS = 100_000
"""Smaller blocks are gathered together with the module around them, in fewer exchanges."""


class FullySharded(DataParallel):
    """The step of `ddp`, with parameters, gradients and optimizer state cut into shards."""

    capabilities = BUILT_IN["fsdp"]
    _without_gradients = torch.no_grad

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch. See Strategy.predict."""
        with as_it_is():
            return super().predict(inputs)

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off. See Strategy.train."""
        # The mean weights are shards, and they are swapped with the weights. But parameters may
        # still be gathered after a prediction.
        if self._mean is not None:
            reshard(self._model)
        super().train(mode)

    def state(self) -> dict[str, Any]:
        """Return model, optimizer and scaler, gathered on rank 0. See Strategy.state."""

        def gather(shard: DTensor) -> Tensor | None:
            whole = shard.full_tensor()
            if self._worker.rank != 0:
                return None
            return whole.cpu()

        return _pytree.tree_map_only(DTensor, gather, super().state())

    def parts(self) -> StateParts:
        """Return the part of the state that this worker writes. See WritableInParts.parts."""
        # Ranks that divide a copy follow each other: see `mesh_of`.
        copy, shard = divmod(self._worker.rank, self._worker.num_workers // self._num_holders)
        return parts_of(super().state(), lambda key: Place(copy, shard, 0))

    def load(self, state: dict[str, Any]) -> None:
        """Load the state of a strategy. See Strategy.load."""
        own = self._model.state_dict()
        weights = {
            key: {
                name: own_shard(value, own[name])
                for name, value in state[key].items()
                if name in own
            }
            for key in WEIGHTS
            if key in state
        }
        optimizer = dict(state["optimizer"])
        optimizer["state"] = {
            index: {
                name: own_shard(value, self._parameters[index]) for name, value in values.items()
            }
            for index, values in optimizer["state"].items()
        }
        super().load({**state, **weights, "optimizer": optimizer})

    def alone_bytes(self) -> int:
        """Return the size of all parameters and gradients. See Probeable.alone_bytes."""
        return 2 * sum(
            parameter.numel() * parameter.element_size() for parameter in self._parameters
        )

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Compute on parameters that are gathered already. See Probeable.alone.

        In the meantime, parameters and gradients are held whole. A step must have been made before.
        """
        cut = [module for module in self._model.modules() if isinstance(module, FSDPModule)]
        self._keep_gathered(cut, True)
        for module in cut:
            module.unshard()
        try:
            with super().alone():
                yield
        finally:
            # These gradients belong to whole parameters, which the optimizer does not know.
            for parameter in self._model.parameters():
                parameter.grad = None
            self._keep_gathered(cut, False)
            for module in cut:
                module.reshard()

    def _keep_gathered(self, cut: Sequence[FSDPModule], kept: bool) -> None:
        for module in cut:
            module.set_reshard_after_backward(not kept, recurse=False)
            # Parameters of the outermost module stay gathered after the forward pass anyway.
            if module is not self._model:
                module.set_reshard_after_forward(not kept, recurse=False)

    def close(self) -> None:
        """Drop everything. See Strategy.close."""
        self._whole_parameters.clear()
        super().close()

    def _place(self, model: nn.Module) -> nn.Module:
        self._num_averaged = self._worker.num_replicas
        self._exchanges = True
        self._whole_parameters: list[Tensor] = []
        shard = self._settings.shard or self._worker.num_workers
        self._num_holders = self._worker.num_workers // shard
        cut_parameters(
            model,
            mesh_of(self._worker, shard, always="shard"),
            prepare=compile_forward if self._settings.compiles else None,
        )
        return model

    def _leaves(self) -> Iterable[Tensor]:
        if not self._whole_parameters:  # torch reuses the same tensors for each gathering
            for module in self._model.modules():
                if isinstance(module, FSDPModule):
                    module.unshard()
                    whole = [item for item in module.parameters() if not isinstance(item, DTensor)]
                    module.reshard()
                    self._whole_parameters += [item for item in whole if item.requires_grad]
        return self._whole_parameters

    def _exchange_gradients(self, now: bool) -> None:
        if now != self._exchanges:  # the call is slow: it visits every module of the model
            assert isinstance(self._model, FSDPModule)
            self._model.set_requires_gradient_sync(now)
            self._exchanges = now


def mesh_of(worker: Worker, shard: int, *, always: str) -> Any:
    """Return all workers as a device mesh with the needed dimensions: copy, shard and part.

    Every worker must call it.

    Args:
        worker: This worker.
        shard: Replicas that divide a copy of the parameters.
        always: A dimension that is included even if it has one worker.
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
    """Join pieces of a model into one whose parameters are cut.

    Args:
        pieces: The pieces, whose modules are on the device.
        mesh: As `mesh_of` returns it.
    """
    # A parameter that several pieces share cannot be gathered for one of them and dropped after it.
    # It is left to the outermost module, as are pieces that are too small.
    owners = Counter(
        identity
        for piece in pieces
        for identity in {id(parameter) for parameter in _parameters(piece.modules)}
    )
    joined = []
    for piece in pieces:
        parameters = {id(parameter): parameter.numel() for parameter in _parameters(piece.modules)}
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
    """Drop the parameters that are still gathered, as after a prediction."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


class _Joined(nn.Module):
    """Pieces of a model as one module, because only modules gather their parameters."""

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
    """Copy a view. If a module changed it in place, parameters would stay ungathered."""
    if isinstance(outputs, Tensor) and outputs._is_view():
        return outputs.clone()
    return outputs


def _register_dataclass(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
    """Let torch find the tensors in a returned dataclass, to start the backward pass."""
    kind = type(outputs)
    if not dataclasses.is_dataclass(kind) or kind in _pytree.SUPPORTED_NODES:
        return
    names = [field.name for field in dataclasses.fields(kind)]

    def rebuild(values: Iterable[Any], _context: Any) -> Any:
        made = object.__new__(kind)  # its constructor may take other arguments
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
        return made

    _pytree.register_pytree_node(
        kind, lambda value: ([getattr(value, name) for name in names], None), rebuild
    )


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks to gather separately, innermost first: large members of module lists."""
    owners = Counter(
        id(parameter) for module in model.modules() for parameter in module._parameters.values()
    )
    # Outer modules come first in `modules`. FSDP must cut inner blocks before the outer ones.
    for module in reversed(list(model.modules())):
        if not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        for member in module.children():
            parameters = list(member.parameters())
            if isinstance(member, nn.ModuleList | nn.ModuleDict | FSDPModule):
                continue  # has no forward pass that could gather, or is cut already
            is_shared = any(owners[id(parameter)] > 1 for parameter in parameters)
            if not is_shared and sum(item.numel() for item in parameters) >= MIN_BLOCK_PARAMETERS:
                yield member

"""Tensors that are cut into shards: a worker's part, the whole, and its part of a stored state.

Torch's module for such tensors takes a second to import. If nothing has imported it, nothing is
cut. If no worker holds a whole state, each worker writes parts of tensors, and each part is written
once. A part says where it belongs in the whole tensor. So any strategy can assemble the tensors
that it needs, with any number of workers. Writing and reading files is left to `checkpoint`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from workbench.training.strategies.worker_group import dimension_name

_MODULE = "torch.distributed.tensor"
Key = tuple[str | int, ...]
"""The path of a tensor in a state: ("model", name), or ("optimizer", "state", number, name)."""
WEIGHTS = ("model", "trained")


def is_cut(tensor: Any) -> bool:
    """Return whether a tensor is cut, so that several workers hold a shard of it."""
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(tensor, getattr(module, "DTensor", ()))


def local_part(tensor: Tensor) -> Tensor:
    """Return this worker's shard of a tensor, or the whole tensor if it is not cut."""
    whole: Any = tensor
    if not is_cut(tensor):
        return tensor
    return whole.to_local()


def gathered(value: Any) -> Any:
    """Return the whole of a tensor that may be cut. All workers that hold shards must call it.

    Other values are returned unchanged.
    """
    if not is_cut(value):
        return value
    from torch.distributed.tensor import Replicate

    placements = list(value.placements)
    for dimension in range(len(placements)):  # torch warns if several change at once
        placements[dimension] = Replicate()
        value = value.redistribute(placements=placements)
    return value.to_local()


def own_shard(value: Any, like: Any) -> Any:
    """Return this worker's shard of a whole tensor if `like` is cut, or else the value itself."""
    if not is_cut(like) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    whole = value.to(like.device, like.dtype)
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


@dataclass
class StateParts:
    """One worker's part of a state.

    Attributes:
        tensors: The shape of the whole tensor, and the parts on the CPU with their first indices,
            by key.
        values: The values that are not tensors, by key.
        rest: The part that is the same on every worker.
    """

    tensors: dict[Key, tuple[tuple[int, ...], list[tuple[tuple[int, ...], Tensor]]]] = field(
        default_factory=dict
    )
    values: dict[Key, Any] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """The place of a worker among the workers that hold the same tensors.

    Attributes:
        copy: Number of the copy that replicas divide among themselves, from 0.
        shard: Number of the worker's replica among the replicas that divide a copy, from 0.
        part: Number of the worker's part of a replica, from 0.
    """

    copy: int
    shard: int
    part: int

    def is_first_of(self, value: Any) -> bool:
        """Return whether this is the first of the workers that hold the same part of a tensor."""
        divided: set[str] = set()
        if is_cut(value):
            names = zip(value.device_mesh.mesh_dim_names, value.placements, strict=True)
            divided = {
                dimension_name(name) for name, placement in names if not placement.is_replicate()
            }
        return all(
            name in divided or getattr(self, name) == 0 for name in ("copy", "shard", "part")
        )


def parts_of(
    state: Mapping[str, Any],
    place: Callable[[Key], Place | None],
    rows: Callable[[Key], Callable[[Tensor], Tensor] | None] = lambda key: None,
) -> StateParts:
    """Return the part of a state that this worker writes.

    Args:
        state: A strategy's `state` of this worker, in which cut tensors are not gathered.
        place: Returns, by key, the place of this worker among the holders of a tensor, or None if
            others write the tensor.
        rows: Returns, by key, the function that arranged the rows of a tensor before it was cut, or
            None.
    """
    written = StateParts()
    optimizer = dict(state["optimizer"])
    leaves = [((key, name), value) for key in WEIGHTS for name, value in state.get(key, {}).items()]
    for number, values in optimizer.pop("state").items():
        leaves += [(("optimizer", "state", number, name), value) for name, value in values.items()]
    for key, value in leaves:
        at = place(key)
        if at is None or not at.is_first_of(value):
            continue
        if isinstance(value, Tensor):
            written.tensors[key] = (tuple(value.shape), list(_parts(value, rows(key))))
        else:
            written.values[key] = value
    written.rest = {key: value for key, value in state.items() if key not in WEIGHTS} | {
        "optimizer": optimizer
    }
    return written


def _parts(
    value: Tensor, arrange: Callable[[Tensor], Tensor] | None
) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Yield this worker's parts of a tensor, each with its first indices.

    If rows were arranged before the tensor was cut, they are split into runs of rows that follow
    each other in the model.
    """
    local = local_part(value).detach().cpu()
    if not is_cut(value):
        yield (0,) * value.ndim, local
        return
    if local.numel() == 0:
        return
    rows, *others = (_indices(value, dimension) for dimension in range(value.ndim))
    if arrange is not None:
        rows = arrange(torch.arange(value.shape[0]))[rows]
    ends = (torch.nonzero(rows.diff() != 1).flatten() + 1).tolist()
    for first, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        yield (int(rows[first]), *(int(indices[0]) for indices in others)), local[first:end]


def _indices(value: Any, dimension: int) -> Tensor:
    """Return the indices of this worker's shard along a dimension of a cut tensor."""
    # Cutting a tensor of indices in the same way shows which ones end up here.
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    placements = []
    for placement in value.placements:
        if placement.is_replicate() or placement.dim != dimension:
            placements.append(Replicate())
        elif placement.is_shard():
            placements.append(Shard(0))
        else:  # FSDP's placement of tensors that tensor parallelism has cut already
            placements.append(type(placement)(0, split_factor=placement.split_factor))
    indices = torch.arange(value.shape[dimension], device=value.device)
    return local_part(
        distribute_tensor(indices, value.device_mesh, placements, src_data_rank=None)
    ).cpu()


class TensorsOfParts(Mapping[Any, Any]):
    """Tensors that are assembled when they are looked up, so that only one at a time is whole."""

    def __init__(self, loaders: Mapping[Any, Callable[[], Any]]) -> None:
        self._loaders = dict(loaders)

    def __getitem__(self, name: Any) -> Any:
        return self._loaders[name]()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)


def state_of(parts: list[StateParts]) -> dict[str, Any]:
    """Return the state that workers wrote in parts, for a strategy's `load`.

    Args:
        parts: The parts of all workers.
    """
    tensors: dict[Key, tuple[tuple[int, ...], list[tuple[tuple[int, ...], Tensor]]]] = {}
    values: dict[Key, Any] = {}
    for part in parts:
        values |= part.values
        for key, (shape, pieces) in part.tensors.items():
            tensors.setdefault(key, (shape, []))[1].extend(pieces)

    def value_of(key: Key) -> Any:
        if key not in tensors:
            return values[key]
        return _joined(*tensors[key])

    state = dict(parts[0].rest)
    keys = sorted(tensors.keys() | values.keys(), key=str)
    for name in WEIGHTS:
        own = [key for key in keys if key[0] == name]
        if own:
            state[name] = TensorsOfParts({key[1]: lambda key=key: value_of(key) for key in own})
    of_number: dict[int, list[Key]] = {}
    for key in keys:
        if key[0] == "optimizer":
            of_number.setdefault(cast(int, key[2]), []).append(key)
    state["optimizer"] = state["optimizer"] | {
        "state": TensorsOfParts(
            {
                number: lambda own=own: {key[3]: value_of(key) for key in own}
                for number, own in sorted(of_number.items())
            }
        )
    }
    return state


def _joined(shape: tuple[int, ...], pieces: list[tuple[tuple[int, ...], Tensor]]) -> Tensor:
    if len(pieces) == 1 and tuple(pieces[0][1].shape) == shape:
        return pieces[0][1]
    whole = torch.empty(shape, dtype=pieces[0][1].dtype)
    for start, piece in pieces:
        whole[tuple(slice(at, at + size) for at, size in zip(start, piece.shape, strict=True))] = (
            piece
        )
    return whole

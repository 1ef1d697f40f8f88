"""What this worker holds of a tensor that may be cut into shards, and the tensor as a whole.

Torch's module of such tensors takes a second to import. Where nothing has imported it, nothing is
cut.
"""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor

_MODULE = "torch.distributed.tensor"


def is_cut(tensor: Any) -> bool:
    """Return whether several workers hold a shard each of a tensor."""
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(tensor, getattr(module, "DTensor", ()))


def local_part(tensor: Tensor) -> Tensor:
    """Return the shard that this worker holds of a tensor, or all of one that is not cut."""
    whole: Any = tensor
    return whole.to_local() if is_cut(tensor) else tensor


def gathered(value: Any) -> Any:
    """Return a tensor that may be cut as a whole; all of its holders must call it.

    Other values stay.
    """
    if not is_cut(value):
        return value
    from torch.distributed.tensor import Replicate

    placements = list(value.placements)
    for dimension in range(len(placements)):  # torch warns of several at once
        placements[dimension] = Replicate()
        value = value.redistribute(placements=placements)
    return value.to_local()


def own_shard(value: Any, like: Any) -> Any:
    """Return this worker's shard of a whole tensor where `like` is one, else the value as it is."""
    if not is_cut(like) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    whole = value.to(like.device, like.dtype)
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)

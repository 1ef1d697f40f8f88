"""What this worker holds of a tensor that may be cut into shards.

Torch's module of such tensors takes a second to import. Where nothing has imported it, nothing is cut.
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

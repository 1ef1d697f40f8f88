"""Count the bytes of live tensors, now and at the peak, for real and fake tensors.

It works with torch's fake tensors, so it can trace a step that no machine could run. It does not
see memory inside one operation, such as workspaces of libraries and copies in a fused kernel.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

BLOCK_BYTES = 512
"""The allocator of a GPU rounds up to multiples of this."""


class LiveMemory(TorchDispatchMode):
    """Counts the storages of the tensors that operations return inside this context.

    Attributes:
        live_bytes: The bytes that are alive now.
        peak_bytes: The most bytes that were alive since `start_peak`.
    """

    def __init__(self) -> None:
        """Start without live tensors."""
        super().__init__()
        self.live_bytes = 0
        self.peak_bytes = 0
        self._sizes: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()

    def start_peak(self) -> None:
        """Forget the peak so far."""
        self.peak_bytes = self.live_bytes

    def __enter__(self) -> LiveMemory:
        resize = torch.UntypedStorage.resize_

        def count_resize(storage: Any, num_bytes: int) -> Any:
            # FSDP frees gathered parameters with `resize_`, which a dispatch mode does not see.
            resized = resize(storage, num_bytes)
            if storage in self._sizes:
                self._count(self._sizes[storage], num_bytes)
            return resized

        self._resize = resize
        torch.UntypedStorage.resize_ = count_resize  # type: ignore[method-assign]
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*exception)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._see, returned)
        return returned

    def _see(self, tensor: Tensor) -> None:
        parts = getattr(tensor, "__tensor_flatten__", None)
        if parts is not None:  # a wrapper of other tensors, such as FSDP's shards
            inner = (getattr(tensor, name) for name in parts()[0])
            for part in inner:
                if isinstance(part, Tensor):
                    self._see(part)
            return
        storage: Any = tensor.untyped_storage()
        if storage not in self._sizes:
            size = self._sizes[storage] = [0]
            self._count(size, storage.nbytes())
            weakref.finalize(storage, self._forget, size)

    def _count(self, size: list[int], num_bytes: int) -> None:
        rounded = math.ceil(num_bytes / BLOCK_BYTES) * BLOCK_BYTES
        self.live_bytes += rounded - size[0]
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        size[0] = rounded

    def _forget(self, size: list[int]) -> None:
        self.live_bytes -= size[0]

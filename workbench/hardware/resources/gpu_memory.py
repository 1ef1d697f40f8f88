"""How much of a GPU's memory one process may hold where several share it."""

from __future__ import annotations

CONTEXT_BYTES = 2**30
"""What the driver and its libraries take of a GPU for each process, which no allocator counts."""


def allowed_bytes(total_bytes: float, share: float) -> float:
    """Return what one process may hold of a GPU.

    Where several share it, each has a context beside that.

    Args:
        total_bytes: Memory of the GPU.
        share: Its part of the GPU; 1 and above mean all of it.
    """
    if share >= 1.0:
        return total_bytes
    return max(share * total_bytes - CONTEXT_BYTES, 0.5 * share * total_bytes)

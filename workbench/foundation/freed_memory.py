"""Memory that a process has freed: kept for its next allocations, or returned to the system.

Training runs in a separate thread. glibc returns memory that such threads free to the system at
once. A step that allocates its activations or gathered parameters again then causes hundreds of
page faults, while the same loop in the main thread causes almost none. So glibc is configured to
keep freed memory. Other C libraries are not changed.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""What `malloc.h` calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""
KEPT_BYTES = 256 * 2**20
_TRIGGER_BYTES = 2**20
LARGEST_KEPT_BYTES = 32 * 2**20
"""The largest block that is kept: the limit that glibc itself arrives at in the main thread."""


def keep_freed_memory() -> None:
    """Reuse the memory that this process frees for its next allocations instead of returning it."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def return_freed_memory() -> None:
    """Return to the system the memory that the calling thread has freed and that was kept."""
    libc = _glibc()
    if libc is not None:
        # glibc checks the end of a thread's heap only when something in it is freed.
        libc.mallopt(_TRIM_THRESHOLD, 0)
        libc.free(libc.malloc(_TRIGGER_BYTES))
        libc.malloc_trim(0)
        libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "malloc_trim"):
        return None
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return libc

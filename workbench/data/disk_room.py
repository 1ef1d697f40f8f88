"""How much of the node's disk the caches of data may take.

What was not used for longest makes room.

The limit is `WORKBENCH_CACHE_LIMIT` bytes, 20 GB by default, for decoded images and shards
together; a file also takes at most half of what is free on the disk. Files that processes have open
can be read to their end after they were deleted.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_bytes

LIMIT_VARIABLE = "WORKBENCH_CACHE_LIMIT"
DEFAULT_LIMIT_BYTES = 20 * 10**9
DECODED, SHARD = ".records", ".shard"
"""The endings of files of decoded images, and of shards of files of another place."""


def has_room(path: Path, needed_bytes: int) -> bool:
    """Delete what was not used for longest, so that a file of a cache can be written.

    Args:
        path: The file, which may hold a part already.
        needed_bytes: How large it will be.

    Returns:
        Whether it fits; nothing is deleted where it cannot.

    Raises:
        ExperimentError: If the limit is not a size.
        OSError: If the folder cannot be read.
    """
    limit_bytes = find_limit_bytes()
    still_needed_bytes = needed_bytes - held_bytes(path)
    if needed_bytes > limit_bytes:
        return False
    others = [
        file
        for ending in (DECODED, SHARD)
        for file in path.parent.glob(f"*{ending}")
        if file != path
    ]
    total_bytes = sum(map(held_bytes, others))
    free_bytes = shutil.disk_usage(path.parent).free
    if still_needed_bytes > (free_bytes + total_bytes) // 2:
        return False
    for file in sorted(others, key=_used_unix_s):
        if total_bytes <= limit_bytes - needed_bytes and still_needed_bytes <= free_bytes // 2:
            break
        size_bytes = held_bytes(file)
        total_bytes, free_bytes = total_bytes - size_bytes, free_bytes + size_bytes
        file.unlink(missing_ok=True)
    return True


def held_bytes(path: Path) -> int:
    """Return what a file takes of the disk, which is less than its length while records are
    missing.
    """
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # not written yet, or another process has made room
        return 0


def find_limit_bytes() -> int:
    """Return the limit.

    Raises:
        ExperimentError: If it is not a size.
    """
    given = os.environ.get(LIMIT_VARIABLE)
    try:
        return DEFAULT_LIMIT_BYTES if given is None else int(parse_bytes(given))
    except ExperimentError as error:
        raise error.about(LIMIT_VARIABLE) from error


def _used_unix_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0

"""A disk cache of arrays that are expensive to compute, keyed by the hash of their inputs.

An entry is a folder of .npy files and a list of their sizes and checksums. It is built by one
process at a time under a file lock, written under a temporary name and renamed when complete, so a
reader sees all of it or nothing. A process that dies while writing leaves only a temporary folder,
which the next one removes. An entry that does not match its list is rebuilt. An entry that does not
match its list is built again. Data sets decide what to keep.

Files of decoded images and shards are limited to `WORKBENCH_CACHE_LIMIT` bytes together, 20 GB by
default. The files that were unused for longest make room. A file also takes at most half of the
free disk. Processes that have a deleted file open can still read it to its end.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock
from platformdirs import user_cache_path

from workbench.foundation.artifacts.local import make_private
from workbench.foundation.errors import DataError, ExperimentError
from workbench.foundation.formatting import parse_bytes

CACHE_VARIABLE = "WORKBENCH_CACHE"
LIST_NAME = "entry.json"
MEMORY_MAP_BYTES = 64 * 2**20
LIMIT_VARIABLE = "WORKBENCH_CACHE_LIMIT"
DEFAULT_LIMIT_BYTES = 20 * 10**9
DECODED, SHARD = ".records", ".shard"
"""The endings of files of decoded images, and of shards of remote files."""


@dataclass(frozen=True)
class Cached:
    """The content of an entry: arrays by name, and JSON facts about them."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


def cache_folder() -> Path:
    """Return the folder of the cache: WORKBENCH_CACHE, or the cache folder of the system."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder).expanduser()
    return user_cache_path("workbench", appauthor=False) / "data"


def file_stamp(path: Path) -> tuple[str, int, int]:
    """Return (path, size in bytes, time of change in ns), which identify a version of a file."""
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns


def cached(
    name: str,
    made_from: Mapping[str, Any],
    build: Callable[[], Cached],
    *,
    code: Iterable[str],
    folder: Path | None = None,
) -> Cached:
    """Return the entry for `made_from`, building it if there is none or if it is damaged.

    Args:
        name: Name of the data set, to make the folder readable.
        made_from: Everything that the result depends on, such as options and stamps of source
            files, as JSON values.
        build: Makes the arrays. It is called in one process at a time.
        code: Paths of the source files whose change invalidates old entries.
        folder: Folder of the cache. None means `cache_folder()`.

    Returns:
        The arrays, read-only. Arrays larger than 64 MiB are memory-mapped.

    Raises:
        DataError: If the folder cannot be written.
    """
    folder = folder or cache_folder()
    entry = folder / f"{name}-{_key(made_from, code)}"
    content = _read(entry)
    if content is not None:
        return content
    try:
        make_private(folder)
        with FileLock(f"{entry}.lock"):
            return _read(entry) or _make(entry, build)
    except OSError as error:
        raise DataError(
            f"cannot write the cache: {error}",
            field=CACHE_VARIABLE,
            next_step=(
                f"Make {folder} writable, free space there, or set {CACHE_VARIABLE} to another"
                " folder."
            ),
        ) from error


def _make(entry: Path, build: Callable[[], Cached]) -> Cached:
    for leftover in entry.parent.glob(f"{entry.name}.*.partial"):
        shutil.rmtree(leftover, ignore_errors=True)
    _write(entry, build())
    content = _read(entry)
    if content is None:
        raise DataError(f"{entry} is damaged right after it was written", field=CACHE_VARIABLE)
    return content


def _key(made_from: Mapping[str, Any], code: Iterable[str]) -> str:
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode())
    for path in (__file__, *code):
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()[:32]


def _write(entry: Path, made: Cached) -> None:
    partial = entry.with_name(f"{entry.name}.{uuid.uuid4().hex}.partial")
    partial.mkdir()
    files: dict[str, dict[str, int]] = {}
    for name, array in made.arrays.items():
        path = partial / f"{name}.npy"
        with path.open("wb") as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        files[name] = {"bytes": path.stat().st_size, "crc32": _checksum(path)}
    (partial / LIST_NAME).write_text(json.dumps({"files": files, "facts": made.facts}))
    if entry.exists():
        # A folder cannot be replaced while it has files. Readers that have it open keep it.
        damaged = entry.with_name(f"{entry.name}.{uuid.uuid4().hex}.partial")
        os.replace(entry, damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    os.replace(partial, entry)


def _read(entry: Path) -> Cached | None:
    try:
        listed = json.loads((entry / LIST_NAME).read_text())
        arrays: dict[str, np.ndarray] = {}
        for name, expected in listed["files"].items():
            path = entry / f"{name}.npy"
            is_large = expected["bytes"] > MEMORY_MAP_BYTES
            if path.stat().st_size != expected["bytes"]:
                return None
            # Reading a large file in full would defeat memory-mapping, so only its size is checked.
            if not is_large and _checksum(path) != expected["crc32"]:
                return None
            mmap_mode: Literal["r"] | None = None
            if is_large:
                mmap_mode = "r"
            arrays[name] = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
            arrays[name].flags.writeable = False
        return Cached(arrays, listed["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def has_room(path: Path, needed_bytes: int) -> bool:
    """Delete the files that were unused for longest, so that a file fits into the cache.

    Args:
        path: The file, of which a part may exist already.
        needed_bytes: How large it will be.

    Returns:
        Whether the file fits. If it cannot, nothing is deleted.

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
    # A cache that takes more than half of the free disk would be in the way of its users.
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
    """Return the bytes that a file takes on the disk, less than its length if it has holes."""
    try:
        return path.stat().st_blocks * 512  # st_blocks counts 512 bytes on every file system
    except FileNotFoundError:  # not written yet, or another process has made room
        return 0


def find_limit_bytes() -> int:
    """Return the limit of the files of decoded images and shards.

    Raises:
        ExperimentError: If it is not a size.
    """
    limit = os.environ.get(LIMIT_VARIABLE)
    if limit is None:
        return DEFAULT_LIMIT_BYTES
    try:
        return int(parse_bytes(limit))
    except ExperimentError as error:
        raise error.about(LIMIT_VARIABLE) from error


def _used_unix_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0

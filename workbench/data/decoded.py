"""Decoded images kept on the node's disk, so that each is decoded once for all epochs, trials and runs.

One file holds a record of fixed size for each image: a checksum of its pixels and of the version of its
source, then the pixels. Records are filled as images are needed, by any number of processes and without
locks: two that write the same record write the same bytes, and one that is half written, damaged, or of an
older source does not match its checksum and is made again. Which images there are is left to the data set.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from workbench.artifacts.local import make_private
from workbench.data.cache import cache_folder
from workbench.errors import ExperimentError
from workbench.formatting import parse_bytes

LIMIT_VARIABLE = "WORKBENCH_CACHE_LIMIT"
DEFAULT_LIMIT_BYTES = 20 * 10**9
_PREFIX, _SUFFIX = "decoded-", ".records"
_CHECKSUM_BYTES = 4
_NUM_TIMED = 8
_WORTH = 2.0
"""How many times as long as reading a record decoding must take to be kept."""


class DecodedImages:
    """The decoded images of one list of files, at one size."""

    def __init__(self, path: Path, files: Sequence[str], record_bytes: int) -> None:
        """Open or make the file; what it holds already is used.

        Args:
            path: The file of records.
            files: The image files; the position of one is the number of its record.
            record_bytes: Bytes of the pixels of an image.

        Raises:
            OSError: If it cannot be made.
        """
        self._path, self._record_bytes = path, record_bytes
        self._versions = [_version(file) for file in files]
        self._file: int | None = None
        make_private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        os.utime(path)  # the most recently used

    def read(self, number: int) -> bytes | None:
        """Return the pixels of an image; None where they are not there, or damaged."""
        try:
            record = os.pread(self._descriptor, _CHECKSUM_BYTES + self._record_bytes, self._offset(number))
        except OSError:  # the disk fails here, and the source may lie elsewhere
            return None
        pixels = record[_CHECKSUM_BYTES:]
        if len(pixels) < self._record_bytes or record[:_CHECKSUM_BYTES] != self._checksum(number, pixels):
            return None
        return pixels

    def write(self, number: int, pixels: bytes) -> None:
        """Keep the pixels of an image; on a full disk they are not kept."""
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, self._checksum(number, pixels) + pixels, self._offset(number))

    @property
    def _descriptor(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._file

    def _offset(self, number: int) -> int:
        return number * (_CHECKSUM_BYTES + self._record_bytes)

    def _checksum(self, number: int, pixels: bytes) -> bytes:
        # A record that was never written is zeros, which must not match.
        return (zlib.crc32(pixels, self._versions[number]) or 1).to_bytes(_CHECKSUM_BYTES, "little")

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_file": None}

    def __del__(self) -> None:
        if self._file is not None and os is not None:  # None while the interpreter ends
            os.close(self._file)


def open_decoded(
    files: Sequence[str], record_bytes: int, made_with: str, *, folder: Path | None = None
) -> DecodedImages | None:
    """Return the decoded images of some files, after making room for them.

    The cache holds at most `WORKBENCH_CACHE_LIMIT` bytes, 20 GB by default, and half of the disk's free room;
    what was not used for longest is deleted.

    Args:
        files: The image files.
        record_bytes: Bytes of the pixels of an image.
        made_with: What the pixels depend on besides: sizes, versions.
        folder: Folder of the cache; the default one if None.

    Returns:
        The images; None where they need more room than there may be.

    Raises:
        ExperimentError: If the limit is not a size.
        OSError: If the folder cannot be written.
    """
    folder = folder or cache_folder()
    digest = hashlib.sha256("\n".join([made_with, *files]).encode()).hexdigest()[:32]
    path = folder / f"{_PREFIX}{digest}{_SUFFIX}"
    make_private(folder)
    needed_bytes = len(files) * (_CHECKSUM_BYTES + record_bytes)
    held_bytes = _held_bytes(path) if path.exists() else 0
    limit_bytes = min(_limit_bytes(), held_bytes + shutil.disk_usage(folder).free // 2)
    if needed_bytes > limit_bytes:
        return None
    _make_room(folder, _limit_bytes() - needed_bytes, keep=path)
    return DecodedImages(path, files, record_bytes)


def is_worth_keeping(kept: DecodedImages, num_images: int, decode: Callable[[int], bytes]) -> bool:
    """Measure whether decoding images takes longer than reading what was kept of them.

    Args:
        kept: Where to keep some.
        num_images: How many images there are.
        decode: Returns the pixels of an image by its number.
    """
    numbers = range(0, num_images, max(1, num_images // _NUM_TIMED))[:_NUM_TIMED]
    began_s = perf_counter()
    decoded = [decode(number) for number in numbers]
    decoding_s = perf_counter() - began_s
    for number, pixels in zip(numbers, decoded, strict=True):
        kept.write(number, pixels)
    began_s = perf_counter()
    for number in numbers:
        kept.read(number)
    return decoding_s > _WORTH * (perf_counter() - began_s)


def _make_room(folder: Path, limit_bytes: int, *, keep: Path) -> None:
    """Delete what was not used for longest until the rest holds at most `limit_bytes`."""
    others = [path for path in folder.glob(f"{_PREFIX}*{_SUFFIX}") if path != keep]
    total_bytes = sum(map(_held_bytes, others))
    for path in sorted(others, key=_used_unix_s):
        if total_bytes <= limit_bytes:
            return
        total_bytes -= _held_bytes(path)
        path.unlink(missing_ok=True)  # processes that have it open keep reading it


def _held_bytes(path: Path) -> int:
    """Return what a file takes of the disk, which is less than its length while records are missing."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # another process has made room
        return 0


def _used_unix_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _limit_bytes() -> int:
    given = os.environ.get(LIMIT_VARIABLE)
    try:
        return DEFAULT_LIMIT_BYTES if given is None else int(parse_bytes(given))
    except ExperimentError as error:
        raise error.about(LIMIT_VARIABLE) from error


def _version(file: str) -> int:
    """Return a number for one version of a file; 0 where it is missing, which decoding reports."""
    try:
        status = os.stat(file)
    except OSError:
        return 0
    return zlib.crc32(f"{status.st_size} {status.st_mtime_ns}".encode())

"""Decoded images on the node's disk, so that each image is decoded only once for all runs.

One file has a record of fixed size for each image: a checksum of its pixels and of the version of
its source, then the pixels. Any number of processes fill records as they need them, without locks.
Two processes that write the same record write the same bytes. A record that is half written,
damaged, or made from an older source does not match its checksum, and is made again. The data set
decides which images there are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import statistics
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from workbench.data.cache import DECODED, cache_folder, has_room
from workbench.foundation.artifacts.local import make_private

_PREFIX = "decoded-"
_CHECKSUM_BYTES = 4
NUM_TIMED = 8
"""How many images are measured."""
_WORTH = 2.0
"""How many times as long as reading a record decoding must take to be kept."""


class DecodedImages:
    """The decoded images of one list of files, at one size."""

    def __init__(self, path: Path, versions: Sequence[int], record_bytes: int) -> None:
        """Open the file, or make it. Records that it has already are used.

        Args:
            path: The file of records.
            versions: A number for each image, which changes with its source.
            record_bytes: Bytes of the pixels of an image.

        Raises:
            OSError: If it cannot be made.
        """
        self._path, self._record_bytes = path, record_bytes
        self._versions = versions
        self._file: int | None = None
        make_private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        os.utime(path)  # the most recently used

    def read_into(self, number: int, pixels: np.ndarray) -> bool:
        """Read the pixels of an image into an array, and return whether they are complete.

        Args:
            number: The image.
            pixels: Contiguous, uint8. If the answer is no, its content is arbitrary.
        """
        checksum = bytearray(_CHECKSUM_BYTES)
        try:
            num_read = os.preadv(self._descriptor, [checksum, pixels], self._offset(number))  # type: ignore[list-item]
        except OSError:  # the disk fails here, and the source may lie elsewhere
            return False
        is_whole = num_read == _CHECKSUM_BYTES + self._record_bytes
        return is_whole and checksum == self._checksum(number, pixels.data)

    def write(self, number: int, pixels: bytes) -> None:
        """Keep the pixels of an image, unless the disk is full."""
        with contextlib.suppress(OSError):
            os.pwrite(
                self._descriptor, self._checksum(number, pixels) + pixels, self._offset(number)
            )

    @property
    def _descriptor(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._file

    def _offset(self, number: int) -> int:
        return number * (_CHECKSUM_BYTES + self._record_bytes)

    def _checksum(self, number: int, pixels: bytes | memoryview) -> bytes:
        # A record that was never written is zeros, which must not match.
        return (zlib.crc32(pixels, self._versions[number]) or 1).to_bytes(_CHECKSUM_BYTES, "little")

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_file": None}

    def __del__(self) -> None:
        if self._file is not None and os is not None:  # None while the interpreter ends
            os.close(self._file)


def open_decoded(
    files: Sequence[str],
    record_bytes: int,
    made_with: str,
    *,
    versions: Sequence[int] | None = None,
    folder: Path | None = None,
) -> DecodedImages | None:
    """Return the decoded images of some files, after `cache.has_room` has made room for them.

    Args:
        files: The image files, or what identifies them.
        record_bytes: Bytes of the pixels of an image.
        made_with: What else the pixels depend on: sizes and versions.
        versions: A number for each file, which changes with it, or None to stat local files.
        folder: Folder of the cache. None means the default folder.

    Returns:
        The images, or None if they need more room than there may be.

    Raises:
        ExperimentError: If the limit is not a size.
        OSError: If the folder cannot be written.
    """
    folder = folder or cache_folder()
    digest = hashlib.sha256("\n".join([made_with, *files]).encode()).hexdigest()[:32]
    path = folder / f"{_PREFIX}{digest}{DECODED}"
    make_private(folder)
    if not has_room(path, len(files) * (_CHECKSUM_BYTES + record_bytes)):
        return None
    if versions is None:
        versions = [_version(file) for file in files]
    return DecodedImages(path, versions, record_bytes)


def is_worth_keeping(
    kept: DecodedImages, numbers: Sequence[int], decode: Callable[[int], bytes]
) -> bool:
    """Measure whether decoding images takes longer than reading what was kept of them.

    Args:
        kept: Where to keep some.
        numbers: The images to measure, at least one.
        decode: Returns the pixels of an image by its number.
    """
    decoding_s, reading_s = [], []
    for number in numbers:
        began_s = perf_counter()
        pixels = decode(number)
        decoding_s.append(perf_counter() - began_s)
        kept.write(number, pixels)
        place = np.empty(len(pixels), np.uint8)
        began_s = perf_counter()
        kept.read_into(number, place)
        reading_s.append(perf_counter() - began_s)
    # Medians: other work may interrupt this process for longer than all of it takes.
    return statistics.median(decoding_s) > _WORTH * statistics.median(reading_s)


def _version(file: str) -> int:
    """Return a number for one version of a file, or 0 for a missing one, as decoding reports it."""
    try:
        status = os.stat(file)
    except OSError:
        return 0
    return zlib.crc32(f"{status.st_size} {status.st_mtime_ns}".encode())

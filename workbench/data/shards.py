"""Many small remote files, packed into checksummed shards on this node's disk.

The listing alone decides which file is in which shard, so all nodes agree on it without exchanging
messages. Files are dealt to shards in random order, so each shard is a sample of all folders. A
shard is written under a temporary name and renamed. Each file in it has a checksum, and a damaged
or missing file is fetched again. `shard_server` brings shards here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from workbench.data.cache import LIMIT_VARIABLE, SHARD, find_limit_bytes, has_room
from workbench.foundation.artifacts import open_artifacts
from workbench.foundation.artifacts.local import make_private
from workbench.foundation.errors import ArtifactsError, DataError

SHARD_BYTES = 16 * 2**20
WINDOW_SHARDS = 64
"""How many shards are in use at a time if data is too large to use all of them."""
_CHECKSUM_BYTES = 4
_MAX_OPEN = 2 * WINDOW_SHARDS


class RemoteFiles:
    """The files of one place, as they were listed, and the shard of each."""

    def __init__(self, url: str, endings: Collection[str]) -> None:
        """List the place.

        Args:
            url: A folder that `open_artifacts` opens.
            endings: Extensions of the files, in small letters.

        Raises:
            DataError: If it cannot be listed.
        """
        self.url, self.endings = url, tuple(sorted(endings))
        try:
            self._place = open_artifacts(url)
            files = sorted(self._place.stamps().items())
        except ArtifactsError as error:
            raise DataError(error.problem, field="data.path", next_step=error.next_step) from error
        files = [(name, stamp) for name, stamp in files if Path(name).suffix.lower() in endings]
        # Numbered in the order in which they are packed, so that code that reads them one after
        # another reads shard after shard.
        files = [files[place] for place in np.random.default_rng(0).permutation(len(files))]
        self.shown = str(self._place)
        """The URL without keys."""
        self.names = [name for name, _ in files]
        listed = [f"{name} {size_bytes} {changed_ns}" for name, (size_bytes, changed_ns) in files]
        self.versions = [zlib.crc32(version.encode()) for version in listed]
        """A number for each file, which changes with it."""
        self.digest = hashlib.sha256(
            "\n".join([self.shown, str(SHARD_BYTES), *listed]).encode()
        ).hexdigest()[:32]
        self._sizes = np.array([size_bytes for _, (size_bytes, _) in files], np.int64)
        begins = np.cumsum(self._sizes) - self._sizes
        # A file may be larger than a shard, which would leave gaps in the numbers of shards.
        self.shard_of = np.unique(begins // SHARD_BYTES, return_inverse=True)[1].reshape(-1)
        """The shard of each file, by number."""
        self._firsts = np.flatnonzero(np.diff(self.shard_of, prepend=-1))
        num_members = np.diff(self._firsts, append=len(files))
        self._begins = begins - begins[self._firsts][self.shard_of]
        self._begins += _CHECKSUM_BYTES * num_members[self.shard_of]

    @property
    def num_bytes(self) -> int:
        """The size of all shards together."""
        return int(self._sizes.sum()) + _CHECKSUM_BYTES * len(self.names)

    @property
    def num_shards(self) -> int:
        """How many shards there are."""
        return len(self._firsts)

    @property
    def is_in_use_at_once(self) -> bool:
        """Whether the files are so few that any of them may be needed next."""
        return self.num_shards <= WINDOW_SHARDS

    def members(self, shard: int) -> range:
        """Return the numbers of the files in a shard, in the order of their content."""
        is_last = shard == len(self._firsts) - 1
        return range(
            int(self._firsts[shard]), len(self.names) if is_last else int(self._firsts[shard + 1])
        )

    def place_in_shard(self, number: int) -> tuple[int, int, int]:
        """Return the position of a file in its shard, where its content starts, and its bytes."""
        at = number - int(self._firsts[self.shard_of[number]])
        return at, int(self._begins[number]), int(self._sizes[number])

    def read_from_origin(self, number: int) -> bytes:
        """Return the content of a file.

        Raises:
            DataError: If it cannot be read, or is not as it was listed.
        """
        name = self.names[number]
        try:
            content = self._place.read(name)
        except ArtifactsError as error:
            raise DataError(error.problem, field="data.path", next_step=error.next_step) from error
        if len(content) != self._sizes[number]:
            raise DataError(
                f"{self.shown}/{name} has {len(content)} bytes, and {self._sizes[number]} when it"
                " was listed",
                field="data.path",
                next_step="Start the run again when nothing writes there any more.",
            )
        return content

    def pack(self, shard: int, contents: Sequence[bytes]) -> bytes:
        """Return a shard made of the content of its members."""
        members = self.members(shard)
        checksums = [
            self._checksum(number, content)
            for number, content in zip(members, contents, strict=True)
        ]
        return b"".join([*checksums, *contents])

    def is_intact(self, shard: int, packed: bytes) -> bool:
        """Return whether a shard is whole and undamaged."""
        members = self.members(shard)
        sizes = self._sizes[members.start : members.stop]
        begin = _CHECKSUM_BYTES * len(members)
        if len(packed) != begin + int(sizes.sum()):
            return False
        view = memoryview(packed)
        for at, (number, size_bytes) in enumerate(zip(members, sizes.tolist(), strict=True)):
            expected = view[at * _CHECKSUM_BYTES : (at + 1) * _CHECKSUM_BYTES]
            if self._checksum(number, view[begin : begin + size_bytes]) != expected:
                return False
            begin += size_bytes
        return True

    def checks(self, number: int, checksum: bytes, content: bytes) -> bool:
        """Return whether a file that was read from a shard is undamaged."""
        return self._checksum(number, content) == checksum

    def _checksum(self, number: int, content: bytes | memoryview) -> bytes:
        return zlib.crc32(content, self.versions[number]).to_bytes(_CHECKSUM_BYTES, "little")


class ShardCache:
    """The shards of one list of files that this node's disk holds."""

    def __init__(self, files: RemoteFiles, folder: Path) -> None:
        """Use a folder of the cache, which is made when a shard is written."""
        self._files, self._folder = files, folder

    def path(self, shard: int) -> Path:
        """Return the path of a shard, whether or not it exists."""
        return self._folder / f"{self._files.digest}-{shard:06d}{SHARD}"

    def read(self, shard: int) -> bytes | None:
        """Return a shard, or None if it is missing, or damaged and therefore deleted."""
        try:
            packed = self.path(shard).read_bytes()
        except OSError:
            return None
        if self._files.is_intact(shard, packed):
            return packed
        self.drop(shard)
        return None

    def write(self, shard: int, packed: bytes) -> None:
        """Keep a shard.

        Raises:
            DataError: If there is no room for it.
        """
        path = self.path(shard)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
        try:
            make_private(self._folder)
            if not has_room(path, len(packed)):
                raise OSError("there is no room")
            with open(
                os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(packed)
            os.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise DataError(
                f"a part of the data cannot be kept in {self._folder}: {error.strerror or error}",
                field="data.path",
                next_step=f"Free space there, or raise {LIMIT_VARIABLE}.",
            ) from error

    def drop(self, shard: int) -> None:
        """Delete a shard, because it is damaged."""
        with contextlib.suppress(OSError):
            self.path(shard).unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Delete files that killed processes left unfinished."""
        for leftover in self._folder.glob(f"{self._files.digest}-*.partial"):
            with contextlib.suppress(OSError):
                leftover.unlink(missing_ok=True)


class ShardReader:
    """Reads single files out of the shards of this node, by any number of processes at once."""

    def __init__(self, files: RemoteFiles, folder: Path, fetch: Callable[[int], bytes]) -> None:
        """Read from a list of files.

        Args:
            files: The files.
            folder: Folder of the cache.
            fetch: Returns a missing shard by its number.

        Raises:
            DataError: If the cache is too small for the shards that are in use at a time.
        """
        self.files = files
        self._cache = ShardCache(files, folder)
        self._fetch = fetch
        self._open: OrderedDict[int, int] = OrderedDict()
        needed_bytes = min(files.num_bytes, WINDOW_SHARDS * SHARD_BYTES)
        if find_limit_bytes() < needed_bytes:
            raise DataError(
                f"reading {files.shown} needs {needed_bytes} bytes of the cache at a time",
                field=LIMIT_VARIABLE,
                allowed=f"{needed_bytes} or more",
            )

    def read(self, number: int) -> bytes:
        """Return the content of a file.

        Raises:
            DataError: If it can be neither read nor fetched. The message shows the file.
        """
        shard = int(self.files.shard_of[number])
        content = self._read(shard, number)
        if content is None:
            packed = self._fetch(shard)
            if not self.files.is_intact(shard, packed):
                raise DataError(f"a part of {self.files.shown} arrived damaged", field="data.path")
            # The process that fetched it may use the same folder.
            if not self._cache.path(shard).exists():
                self._cache.write(shard, packed)
            _, begin, size_bytes = self.files.place_in_shard(number)
            content = packed[begin : begin + size_bytes]
        return content

    def _read(self, shard: int, number: int) -> bytes | None:
        at, begin, size_bytes = self.files.place_in_shard(number)
        try:
            descriptor = self._descriptor(shard)
            checksum = os.pread(descriptor, _CHECKSUM_BYTES, at * _CHECKSUM_BYTES)
            content = os.pread(descriptor, size_bytes, begin)
        except OSError:
            return None
        if self.files.checks(number, checksum, content):
            return content
        os.close(self._open.pop(shard))
        self._cache.drop(shard)
        return None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_open": OrderedDict()}

    def _descriptor(self, shard: int) -> int:
        descriptor = self._open.get(shard)
        if descriptor is None:
            path = self._cache.path(shard)
            descriptor = self._open[shard] = os.open(path, os.O_RDONLY)
            os.utime(path)  # the most recently used
            if len(self._open) > _MAX_OPEN:
                os.close(self._open.popitem(last=False)[1])
        self._open.move_to_end(shard)
        return descriptor

    def __del__(self) -> None:
        if os is not None:  # None while the interpreter ends
            for descriptor in getattr(self, "_open", {}).values():
                os.close(descriptor)

"""Image files in one folder per class, decoded on demand and kept decoded where that pays.

Decoded images are kept on the node's disk, so that each is decoded only once for all runs. One file
has a record of fixed size for each image: a checksum of its pixels and of the version of its
source, then the pixels. Any number of processes fill records as they need them, without locks. Two
processes that write the same record write the same bytes. A record that is half written, damaged,
or made from an older source does not match its checksum, and is made again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import statistics
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np
from pydantic import Field

from workbench.data.batches import Groups
from workbench.data.cache import DECODED, cache_folder, has_room
from workbench.data.image_folders import (
    ENDINGS,
    Listed,
    list_clients,
    list_folder,
    list_remote,
    part_names,
    version_of,
)
from workbench.data.options import DatasetOptions, existing_path, held_out_field
from workbench.data.pixels import check_headers, eight_bits
from workbench.data.reading import Reading, some_of
from workbench.data.shard_server import fetcher
from workbench.data.shards import WINDOW_SHARDS, RemoteFiles, ShardReader
from workbench.data.splits import Datasets, Split, split_in_three
from workbench.experiment.metric_declarations import Task
from workbench.foundation.artifacts import is_url, open_artifacts
from workbench.foundation.artifacts.local import make_private
from workbench.foundation.errors import ArtifactsError, DataError, ExperimentError
from workbench.foundation.files import visible_below

_PREFIX = "decoded-"
_CHECKSUM_BYTES = 4
NUM_TIMED = 8
"""How many images are measured."""
_WORTH = 2.0
"""How many times as long as reading a record decoding must take to be kept."""
_MADE_WITH = "RGB or L, upright, on white, bilinear, 3"
"""Changes whenever pixels are made differently from the same file."""
MIDDLE = 127.5
"""The value of a pixel that becomes 0."""


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


class ImagesOptions(DatasetOptions):
    """A folder with one subfolder of images for each class, or train, validation and test folders.

    Without a validation folder, a share of train is held out. Images are resized to squares with
    values from -1 (black) to 1 (white). Files of a URL are kept on the node's disk, and read from
    there once per cluster.
    """

    reads_urls = True
    searchable = {"size": {}, "channels": {}}

    path: str | Path = Field(description="The folder, or its URL, such as `s3://bucket/images`.")
    size: int = Field(64, ge=8, le=1024, description="Height and width in pixels.")
    channels: Literal[1, 3] = Field(3, description="1 for grey, 3 for red, green and blue.")
    validation_fraction: float = Field(
        0.2,
        gt=0.0,
        lt=1.0,
        description="Share of each class that is held out if there is no validation folder.",
    )
    test_fraction: float = held_out_field()
    client_folders: bool = Field(
        False,
        description="Whether there is a folder for each client, with folders of classes in it.",
    )
    cache: Literal["auto", "none"] = Field(
        "auto",
        description=(
            "Keep decoded images on the node's disk where reading them is faster than decoding."
        ),
    )

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "classification"

    def check_source(self) -> None:
        """Reject a URL that leads nowhere, and broken files."""
        if not is_url(self.path):
            folder = existing_path(Path(self.path))
            _check_files(folder, self.client_folders, version_of(folder, self.client_folders))
            return
        place = open_artifacts(self.path)
        try:
            is_there = place.exists("")
        except ArtifactsError as error:
            raise DataError(error.problem, field="data.path", next_step=error.next_step) from error
        if not is_there:
            raise DataError(f"{place} does not exist", field="data.path")

    def notes(self) -> tuple[str, ...]:
        """Return notes on files that cannot be used as they are stored."""
        if is_url(self.path):
            return ()
        folder = existing_path(Path(self.path))
        return _check_files(folder, self.client_folders, version_of(folder, self.client_folders))

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """List and split the images, as DatasetOptions.load does."""
        source = of_files = owners = None
        if is_url(self.path):
            source = self._open_remote(cache)
            listed = list_remote(source.files)
        else:
            listed, of_files = _list_here(existing_path(Path(self.path)), self.client_folders)
        names, train = listed["train"].class_names, self._split(listed["train"], cache, source)
        for part, other in listed.items():
            if other.class_names != names:
                different = ", ".join(sorted(set(names) ^ set(other.class_names)))
                raise DataError(
                    f"train and {part} have different classes: {different}", field="data.path"
                )
        self._check_fractions_of(listed)
        test = None
        if "test" in listed:
            test = self._split(listed["test"], cache, source)
        if "validation" in listed:
            validation = self._split(listed["validation"], cache, source)
        else:
            kept, held_out, tested = split_in_three(
                len(train),
                validation_fraction=self.validation_fraction,
                test_fraction=self.test_fraction,
                seed=seed,
                classes=train.targets,
            )
            if len(tested):
                test = train.part(tested)
            train, validation = train.part(kept), train.part(held_out)
            if of_files is not None:
                owners = of_files[kept], of_files[held_out]
        return Datasets(
            name="images",
            task="classification",
            train=train,
            validation=validation,
            test=test,
            input_shape=(self.channels, self.size, self.size),
            num_outputs=len(names),
            class_names=names,
            owners=owners,
        )

    def _check_fractions_of(self, parts: Collection[str]) -> None:
        """Reject fractions of parts that the folder already has."""
        if self.test_fraction and "test" in parts:
            raise ExperimentError(
                "the folder already has a test part",
                field="data.test_fraction",
                next_step="Remove one of the two.",
            )
        if self.test_fraction and "validation" in parts:
            raise ExperimentError(
                "the folder already has a validation part",
                field="data.test_fraction",
                next_step="Add a test folder next to it.",
            )
        if "validation" in parts and "validation_fraction" in self.model_fields_set:
            raise ExperimentError(
                "the folder already has a validation part",
                field="data.validation_fraction",
                next_step="Remove one of the two.",
            )

    def reading(self, *, seed: int) -> Reading:
        """Return how pixels from 0 to 255 become inputs, as DatasetOptions.reading does."""
        return pixel_reading(self.load(seed=seed, cache=None).train)

    def _open_remote(self, cache: Path | None) -> ShardReader:
        if self.client_folders:
            raise ExperimentError(
                "folders of clients are read from this machine only",
                field="data.client_folders",
                next_step="Copy the folder here, and write its path.",
            )
        files = RemoteFiles(str(self.path), ENDINGS)
        folder = cache or cache_folder()
        return ShardReader(files, folder, fetcher(files, folder))

    def _split(self, listed: Listed, cache: Path | None, source: ShardReader | None) -> FolderSplit:
        split = FolderSplit(
            listed.files,
            listed.targets,
            self.size,
            self.channels,
            numbers=listed.numbers,
            source=source,
        )
        if self.cache == "none":
            return split
        return split.keeping_decoded(cache)


def _list_here(folder: Path, client_folders: bool) -> tuple[dict[str, Listed], np.ndarray | None]:
    """Return the images of a local folder by part, and the client of each if it has clients."""
    if client_folders:
        whole, of_files = list_clients(folder)
        return {"train": whole}, of_files
    listed = {part: list_folder(folder / name) for part, name in part_names(folder).items()}
    return listed or {"train": list_folder(folder)}, None


@functools.lru_cache(maxsize=8)  # a form checks what it shows whenever something is typed
def _check_files(folder: Path, client_folders: bool, _version: tuple[int, ...]) -> tuple[str, ...]:
    """Reject a folder with a file that cannot be read, unless none was found since it changed.

    Returns:
        Notes on files that cannot be used as they are stored.
    """
    listed, _ = _list_here(folder, client_folders)
    return check_headers([str(file) for part in listed.values() for file in part.files])


@dataclass(frozen=True)
class FolderSplit:
    """Image files with their classes.

    Attributes:
        files: Paths, as text.
        targets: Class of each file, int64.
        size: Height and width that images are resized to, in pixels.
        channels: 1 for grey, 3 for red, green and blue.
    """

    files: np.ndarray = field(repr=False)
    targets: np.ndarray = field(repr=False)
    size: int
    channels: Literal[1, 3]
    kept: DecodedImages | None = field(default=None, repr=False)
    """The store of decoded images, or None to decode them whenever they are needed."""
    numbers: np.ndarray | None = field(default=None, repr=False)
    """The number of each image in `kept` and `source`, or None if these have the same images."""
    source: ShardReader | None = field(default=None, repr=False)
    """Reads the files of a URL. None for local files."""
    is_stored_way_up: bool = False
    """Whether pictures stay as stored instead of being turned as `decode_image` does."""

    def __len__(self) -> int:
        return len(self.files)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return decoded images, float32 of shape (batch, channels, size, size), and their classes.

        Raises:
            DataError: If a file cannot be decoded. The message shows the file.
        """
        pixels = np.empty((len(indices), self.channels, self.size, self.size), np.uint8)
        for place, index in zip(pixels, indices, strict=True):
            self._fill(place, int(index))
        # Divided and shifted in place: batches are large, and every further array costs as much
        # as reading.
        inputs = np.divide(pixels, np.float32(MIDDLE), dtype=np.float32)
        inputs -= 1.0
        return inputs, self.targets[indices]

    def part(self, indices: np.ndarray) -> FolderSplit:
        """Return the images at `indices`, which share the decoded images."""
        numbers = self._numbers[indices]
        return replace(
            self, files=self.files[indices], targets=self.targets[indices], numbers=numbers
        )

    @property
    def _numbers(self) -> np.ndarray:
        return np.arange(len(self.files)) if self.numbers is None else self.numbers

    @property
    def shuffle_groups(self) -> Groups | None:
        """The shard of each image, unless all shards may be in use at once."""
        if self.source is None or self.source.files.is_in_use_at_once:
            return None
        return Groups(self.source.files.shard_of[self._numbers], WINDOW_SHARDS)

    def keeping_decoded(self, folder: Path | None) -> FolderSplit:
        """Return the same images, kept decoded if there is room and reading that is faster.

        Args:
            folder: Folder of the cache. None means the default folder.
        """
        made_with = f"{self.size} {self.channels} {_MADE_WITH}"
        files, versions = [str(file) for file in self.files], None
        measured = np.arange(0, len(files), max(1, len(files) // NUM_TIMED))
        if self.source is not None:
            remote = self.source.files
            files, versions = [f"{remote.shown}/{name}" for name in remote.names], remote.versions
            # Images of one shard, which has to be fetched in any case.
            measured = np.flatnonzero(
                remote.shard_of[self._numbers] == remote.shard_of[self._numbers[0]]
            )
        index_of = {int(self._numbers[index]): int(index) for index in measured[:NUM_TIMED]}
        try:
            kept = open_decoded(
                files, self.channels * self.size**2, made_with, versions=versions, folder=folder
            )
            if self.source is not None:
                self.source.read(next(iter(index_of)))
            if kept is None or not is_worth_keeping(
                kept, list(index_of), lambda number: self._decode(index_of[number]).tobytes()
            ):
                return self
        except (OSError, DataError):
            # There is no room for a cache, or training will report a broken file.
            return self
        return replace(self, kept=kept)

    def _fill(self, pixels: np.ndarray, index: int) -> None:
        """Write the decoded pixels of an image, and keep them for the next time."""
        number = index if self.numbers is None else int(self.numbers[index])
        if self.kept is not None and self.kept.read_into(number, pixels):
            return
        pixels[:] = self._decode(index)
        if self.kept is not None:
            self.kept.write(number, pixels.tobytes())

    def _decode(self, index: int) -> np.ndarray:
        path = str(self.files[index])
        content = None
        if self.source is not None:
            content = self.source.read(int(self._numbers[index]))
        try:
            return decode_image(
                path,
                self.size,
                self.channels,
                content=content,
                is_stored_way_up=self.is_stored_way_up,
            )
        except DataError as error:
            raise DataError(
                error.problem,
                field="data.path",
                next_step="Repair the file or move it out of the folder.",
            ) from error


def decode_image(
    path: str,
    size: int,
    channels: Literal[1, 3],
    *,
    content: bytes | None = None,
    formats: tuple[str, ...] | None = None,
    max_pixels: int | None = None,
    is_stored_way_up: bool = False,
) -> np.ndarray:
    """Return the pixels of an image file as training has them, uint8, (channels, size, size).

    Args:
        path: The file.
        size: Height and width that it is resized to, in pixels.
        channels: 1 for grey, 3 for red, green and blue.
        content: The bytes of a file that is not on this machine.
        formats: The formats that are read, by Pillow's names, or None for all that it knows.
        max_pixels: How many pixels the image may have, at least 1, or None for Pillow's limit.
        is_stored_way_up: Whether to leave pixels where they are stored, because masks or boxes
            describe them by place. Otherwise a picture is turned as its camera noted.

    Raises:
        DataError: If it is not an image that can be decoded, or has more pixels.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path if content is None else BytesIO(content), formats=formats) as opened:
            if max_pixels is not None and opened.width * opened.height > max_pixels:
                raise DataError(
                    f"{path} has {opened.width} x {opened.height} pixels",
                    allowed=f"{max_pixels:,} pixels in an image",
                    next_step="Make the image smaller.",
                )
            if not is_stored_way_up:
                ImageOps.exif_transpose(opened, in_place=True)
            image = eight_bits(opened, channels)
            pixels = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
    except UnidentifiedImageError as error:
        # Its text only shows the buffer that was read.
        raise _unreadable(path, "its content has the format of no image") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(path, str(error)) from error
    if channels == 1:
        return pixels[None]
    return pixels.transpose(2, 0, 1)


def _unreadable(path: str, reason: str) -> DataError:
    return DataError(
        f"{path} cannot be read as an image: {reason}", next_step="Repair or remove the file."
    )


def pixel_reading(train: Split) -> Reading:
    """Return how pixels from 0 to 255 become inputs from -1 to 1, with some training samples."""
    indices = some_of(min(len(train), 200))
    pixels = np.asarray(train.batch(indices)[0]) * MIDDLE + MIDDLE
    return Reading({"inputs": pixels.round()}, indices, mean=MIDDLE, scale=MIDDLE, is_image=True)


def paired_files(folder: Path, other: str, endings: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the images of a folder and the files of the same names that describe them.

    Args:
        folder: Holds the folder `images`, and the other one.
        other: The name of the other folder.
        endings: The extensions of the files there, in small letters.

    Raises:
        DataError: If a file has no partner, or there are fewer than two images.
    """
    file_of_name = {
        part: {
            file.relative_to(folder / part).with_suffix(""): str(file)
            for file in visible_below(folder / part)
            if file.suffix.lower() in of_part
        }
        for part, of_part in (("images", ENDINGS), (other, endings))
    }
    images, others = file_of_name["images"], file_of_name[other]
    alone = sorted(str(name) for name in images.keys() ^ others.keys())
    if alone or len(images) < 2:
        problem = f"{folder} holds {len(images)} images"
        if alone:
            problem = f"{alone[0]} is not in both folders"
        raise DataError(
            problem,
            field="data.path",
            allowed=f"images and {other}, two folders with files of the same names",
        )
    return list(images.values()), [others[name] for name in images]

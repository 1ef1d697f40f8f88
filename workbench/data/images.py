"""Image files in one folder per class, decoded on demand and kept decoded where that pays."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from workbench.data.decoded import DecodedImages, is_worth_keeping, open_decoded
from workbench.data.options import DatasetOptions, existing_path
from workbench.data.reading import Reading, some_of
from workbench.data.splits import Datasets, Split, Task, split_indices
from workbench.errors import DataError, ExperimentError

ENDINGS = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
PARTS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val"),
    "test": ("test", "testing"),
}
_MADE_WITH = "RGB or L, bilinear, 1"
"""Changes whenever pixels are made differently from the same file."""
MIDDLE = 127.5
"""The value of a pixel that becomes 0."""
Listed = tuple[tuple[str, ...], np.ndarray, np.ndarray]


class ImagesOptions(DatasetOptions):
    """A folder with one subfolder of images for each class, or with such folders in train, validation, test.

    Without a validation folder, images of train are held out. Images are resized to squares; values go
    from -1 (black) to 1 (white).
    """

    path: Path = Field(description="The folder.")
    size: int = Field(64, ge=8, le=1024, description="Height and width in pixels.")
    channels: Literal[1, 3] = Field(3, description="1 for grey, 3 for red, green and blue.")
    validation_fraction: float = Field(
        0.2,
        gt=0.0,
        lt=1.0,
        description="Share of each class that is held out; not used with a validation folder.",
    )
    client_folders: bool = Field(
        False,
        description="Whether there is a folder for each client, with folders of classes in it.",
    )
    cache: Literal["auto", "none"] = Field(
        "auto",
        description="Keep decoded images on the node's disk where reading them is faster than decoding.",
    )

    def find_task(self) -> Task:
        """Return the task; see DatasetOptions.find_task."""
        return "classification"

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """List and split the images; see DatasetOptions.load."""
        folder = existing_path(self.path)
        owners = of_files = None
        listed: dict[str, Listed] = {}
        if self.client_folders:
            whole, of_files = _list_clients(folder)
        else:
            listed = {part: _list(folder / name) for part, name in _part_names(folder).items()}
            whole = listed.get("train") or _list(folder)
        names, train = whole[0], self._split(whole, cache)
        for part, (part_names, _, _) in listed.items():
            if part_names != names:
                different = ", ".join(sorted(set(names) ^ set(part_names)))
                raise DataError(f"train and {part} have different classes: {different}", field="data.path")
        if "validation" in listed:
            if "validation_fraction" in self.model_fields_set:
                raise ExperimentError(
                    "the folder has a validation part of its own",
                    field="data.validation_fraction",
                    next_step="Remove one of the two.",
                )
            validation = self._split(listed["validation"], cache)
        else:
            kept, held_out = split_indices(
                len(train), validation_fraction=self.validation_fraction, seed=seed, classes=train.targets
            )
            train, validation = train.part(kept), train.part(held_out)
            if of_files is not None:
                owners = of_files[kept], of_files[held_out]
        return Datasets(
            name="images",
            task="classification",
            train=train,
            validation=validation,
            test=self._split(listed["test"], cache) if "test" in listed else None,
            input_shape=(self.channels, self.size, self.size),
            num_outputs=len(names),
            class_names=names,
            owners=owners,
        )

    def reading(self, *, seed: int) -> Reading:
        """Return how pixels from 0 to 255 become inputs; see DatasetOptions.reading."""
        return pixel_reading(self.load(seed=seed, cache=None).train)

    def _split(self, listed: Listed, cache: Path | None) -> FolderSplit:
        _, files, targets = listed
        split = FolderSplit(files, targets, self.size, self.channels)
        return split if self.cache == "none" else split.keeping_decoded(cache)


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
    """Where decoded images are kept; None to decode them whenever they are needed."""
    numbers: np.ndarray | None = field(default=None, repr=False)
    """The number of each image there; None where they are all of them."""

    def __len__(self) -> int:
        return len(self.files)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return decoded images, float32 of shape (batch, channels, size, size), and their classes.

        Raises:
            DataError: If a file cannot be decoded; it names the file.
        """
        images = np.stack([self._pixels(int(index)) for index in indices])
        return images.astype(np.float32) / MIDDLE - 1.0, self.targets[indices]

    def part(self, indices: np.ndarray) -> FolderSplit:
        """Return the images at `indices`, which share what is kept of all of them."""
        numbers = self._numbers[indices]
        return replace(self, files=self.files[indices], targets=self.targets[indices], numbers=numbers)

    @property
    def _numbers(self) -> np.ndarray:
        return np.arange(len(self.files)) if self.numbers is None else self.numbers

    def keeping_decoded(self, folder: Path | None) -> FolderSplit:
        """Return the same images, kept decoded where there is room and where reading that is faster.

        Args:
            folder: Folder of the cache; the default one if None.
        """
        files = [str(file) for file in self.files]
        made_with = f"{self.size} {self.channels} {_MADE_WITH}"
        try:
            kept = open_decoded(files, self.channels * self.size**2, made_with, folder=folder)
            if kept is None or not is_worth_keeping(
                kept, len(files), lambda number: self._decode(files[number]).tobytes()
            ):
                return self
        except (OSError, DataError):  # without room for a cache, or with a file that training will name
            return self
        return replace(self, kept=kept)

    def _pixels(self, index: int) -> np.ndarray:
        """Return an image as uint8, from where it is kept if it is there."""
        path = str(self.files[index])
        if self.kept is None:
            return self._decode(path)
        number = index if self.numbers is None else int(self.numbers[index])
        pixels = self.kept.read(number)
        if pixels is not None:
            return np.frombuffer(pixels, np.uint8).reshape(self.channels, self.size, self.size)
        decoded = self._decode(path)
        self.kept.write(number, decoded.tobytes())
        return decoded

    def _decode(self, path: str) -> np.ndarray:
        from PIL import Image

        try:
            with Image.open(path) as opened:
                image = opened.convert("L" if self.channels == 1 else "RGB")
                pixels = np.asarray(image.resize((self.size, self.size), Image.Resampling.BILINEAR))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(
                f"{path} cannot be read as an image: {error}",
                field="data.path",
                next_step="Repair the file or move it out of the folder.",
            ) from error
        return pixels[None] if self.channels == 1 else pixels.transpose(2, 0, 1)


def _part_names(folder: Path) -> dict[str, str]:
    """Return the subfolders of a split made by hand; empty if there is no train folder."""
    found = {
        part: next((name for name in names if (folder / name).is_dir()), None)
        for part, names in PARTS.items()
    }
    if found["train"] is None and found["validation"] is not None:
        raise DataError(
            f"{folder} holds {found['validation']} but no train folder",
            field="data.path",
            allowed="train beside validation, or one folder for each class",
        )
    return {part: name for part, name in found.items() if name is not None and found["train"] is not None}


def _list(folder: Path) -> Listed:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder", field="data.path", allowed="one folder for each class")
    class_folders = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    if len(class_folders) < 2:
        raise DataError(
            f"{folder} holds {len(class_folders)} class folder(s)",
            field="data.path",
            allowed="at least two folders, one for each class",
        )
    files: list[str] = []
    targets: list[int] = []
    for number, class_folder in enumerate(class_folders):
        found = sorted(str(file) for file in class_folder.rglob("*") if file.suffix.lower() in ENDINGS)
        if not found:
            raise DataError(
                f"the class {class_folder.name} has no image",
                field="data.path",
                allowed=sorted(ENDINGS),
                next_step=f"Put images into {class_folder} or remove it.",
            )
        files += found
        targets += [number] * len(found)
    return tuple(entry.name for entry in class_folders), np.array(files), np.array(targets, dtype=np.int64)


def _list_clients(folder: Path) -> tuple[Listed, np.ndarray]:
    """Return what all clients hold, and the client of each file.

    A client need not have every class.
    """
    clients = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    found = [
        (str(file), file.relative_to(client).parts[0], number)
        for number, client in enumerate(clients)
        for file in sorted(client.glob("*/**/*"))
        if file.suffix.lower() in ENDINGS
    ]
    names = tuple(sorted({name for _, name, _ in found}))
    without = sorted(set(range(len(clients))) - {number for *_, number in found})
    if without or len(names) < 2:
        problem = f"{clients[without[0]].name} has no image" if without else f"there are {len(names)} classes"
        raise DataError(
            f"{folder} is not a folder of clients: {problem}", field="data.client_folders",
            allowed="CLIENT/CLASS/IMAGE, with at least two classes in all",
        )  # fmt: skip
    files, classes, owners = zip(*found, strict=True)
    targets = np.array([names.index(name) for name in classes], dtype=np.int64)
    return (names, np.array(files), targets), np.array(owners)


def pixel_reading(train: Split) -> Reading:
    """Return how pixels from 0 to 255 become inputs from -1 to 1, with some of the training samples."""
    indices = some_of(min(len(train), 200))
    pixels = np.asarray(train.batch(indices)[0]) * MIDDLE + MIDDLE
    return Reading({"inputs": pixels.round()}, indices, mean=MIDDLE, scale=MIDDLE)


def paired_files(folder: Path, other: str, endings: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the images of a folder and the files of the same names that describe them.

    Args:
        folder: Holds the folder `images`, and the other one.
        other: The name of the other folder.
        endings: The extensions of the files there, in small letters.

    Raises:
        DataError: If a file has no partner, or there are fewer than two images.
    """
    found = {
        part: {
            file.relative_to(folder / part).with_suffix(""): str(file)
            for file in sorted((folder / part).rglob("*")) if file.suffix.lower() in of_part
        }
        for part, of_part in (("images", ENDINGS), (other, endings))
    }  # fmt: skip
    images, others = found["images"], found[other]
    alone = sorted(str(name) for name in images.keys() ^ others.keys())
    if alone or len(images) < 2:
        problem = f"{alone[0]} is not in both folders" if alone else f"{folder} holds {len(images)} images"
        raise DataError(
            problem, field="data.path",
            allowed=f"images and {other}, two folders with files of the same names",
        )  # fmt: skip
    return list(images.values()), [others[name] for name in images]

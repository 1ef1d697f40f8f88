"""Images with a class for each pixel.

Folders of images and masks, or scenes of digits made on the spot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from workbench.data.cache import Cached, cached, file_stamp
from workbench.data.images import ENDINGS, paired_files
from workbench.data.options import existing_path
from workbench.data.pixels import check_headers
from workbench.data.scenes import SceneOptions, load_scenes
from workbench.data.splits import IGNORED, ArraySplit, Datasets, Split, split_in_three
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError

_UNKNOWN_PIXEL = 255


class MasksOptions(SceneOptions):
    """A folder with `images` and `masks`, files of the same names, to find the class of each pixel.

    A pixel of a mask is the number of its class, in a grey or a palette image. Pixels of 255 are
    ignored. Images and masks are resized to squares, and values of images go from -1 (black) to
    1 (white). Without a path, there are 1,000 noisy scenes of 32 x 32 pixels with scikit-learn's
    handwritten digits.
    """

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "classification"

    def notes(self) -> tuple[str, ...]:
        """Return notes on files that cannot be used as they are stored."""
        if self.path is None:
            return ()
        images, _ = paired_files(existing_path(self.path), "masks", ENDINGS)
        return check_headers(images, turns=False)

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """List and split the images, as DatasetOptions.load does."""
        if self.path is None:
            made = load_scenes(cache)
            whole: Split = ArraySplit(made["inputs"], made["masks"])
            names = ("background", *map(str, range(10)))
            shape = made["inputs"].shape[1:]
        else:
            folder = existing_path(self.path)
            images, masks = paired_files(folder, "masks", ENDINGS)
            names = self.classes or self._numbered(masks, cache)
            whole = MaskSplit(
                np.array(images), np.array(masks), self.size, self.channels, len(names)
            )
            shape = (self.channels, self.size, self.size)
        train, validation, test = split_in_three(
            len(whole),
            validation_fraction=self.validation_fraction,
            test_fraction=self.test_fraction,
            seed=seed,
        )
        return Datasets(
            name="masks",
            task="classification",
            train=_part(whole, train),
            validation=_part(whole, validation),
            test=_part(whole, test) if len(test) else None,
            input_shape=shape,
            num_outputs=len(names),
            class_names=names,
            target_shape=shape[1:],
        )

    def _numbered(self, masks: Sequence[str], cache: Path | None) -> tuple[str, ...]:
        """Return the numbers up to the largest of any mask, for which all are read once."""

        def largest() -> Cached:
            number = 0
            for mask in masks:
                pixels = _decode_mask(mask, None)
                number = max(number, int(pixels[pixels != _UNKNOWN_PIXEL].max(initial=0)))
            return Cached({}, {"largest": number})

        made_from = {"files": [file_stamp(Path(mask)) for mask in masks]}
        made = cached("mask_classes", made_from, largest, code=[__file__], folder=cache)
        if made.facts["largest"] < 1:
            raise DataError(
                "every pixel of every mask is of class 0",
                field="data.path",
                allowed="masks whose pixels are numbers of classes",
            )
        return tuple(map(str, range(made.facts["largest"] + 1)))


@dataclass(frozen=True)
class MaskSplit:
    """Image files with masks.

    Attributes:
        images: Paths, as text.
        masks: The path of the mask of each, as text.
        size: Height and width that both are resized to, in pixels.
        channels: 1 for grey, 3 for red, green and blue.
        num_classes: Classes that a mask may hold.
    """

    images: np.ndarray = field(repr=False)
    masks: np.ndarray = field(repr=False)
    size: int
    channels: Literal[1, 3]
    num_classes: int

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return images, float32 of (batch, channels, size, size), and the class of each pixel.

        Raises:
            DataError: If a file cannot be decoded, or a mask holds another class.
        """
        from workbench.data.images import FolderSplit

        folder = FolderSplit(
            self.images,
            np.zeros(len(self), dtype=np.int64),
            self.size,
            self.channels,
            is_stored_way_up=True,
        )
        masks = [self._mask(str(self.masks[int(index)])) for index in indices]
        return folder.batch(indices)[0], np.stack(masks)

    def _mask(self, path: str) -> np.ndarray:
        pixels = _decode_mask(path, self.size)
        classes = np.where(pixels == _UNKNOWN_PIXEL, IGNORED, pixels)
        if classes.max() >= self.num_classes:
            raise DataError(
                f"{path} holds the class {classes.max()}",
                field="data.classes",
                allowed=f"numbers below {self.num_classes}, and {_UNKNOWN_PIXEL} for unknown",
            )
        return classes


def _part(split: Split, indices: np.ndarray) -> Split:
    if isinstance(split, MaskSplit):
        return MaskSplit(
            split.images[indices],
            split.masks[indices],
            split.size,
            split.channels,
            split.num_classes,
        )
    assert isinstance(split, ArraySplit)
    return ArraySplit(split.inputs[indices], split.targets[indices])


def _decode_mask(path: str, size: int | None) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(path) as opened:
            if opened.mode not in ("1", "L", "P", "I") and not opened.mode.startswith("I;16"):
                raise ValueError(f"its mode is {opened.mode}")
            image: Image.Image = opened
            if size is not None:
                # Nearest: numbers of classes have no values in between.
                image = opened.resize((size, size), Image.Resampling.NEAREST)
            return np.asarray(image).astype(np.int64)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path} cannot be read as a mask: {error}",
            field="data.path",
            allowed="a grey or a palette image whose pixels are numbers of classes",
        ) from error

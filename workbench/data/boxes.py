"""Images with boxes around what they show.

Folders of images and labels, or scenes made on the spot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.data.images import FolderSplit, paired_files
from workbench.data.options import existing_path
from workbench.data.pixels import check_headers
from workbench.data.scenes import SceneOptions, load_scenes
from workbench.data.splits import ArraySplit, Datasets, split_in_three
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError

NO_BOX = -1
"""The class in unused rows of targets, as all images have as many rows as the fullest one."""


class BoxesOptions(SceneOptions):
    """A folder with `images` and `labels`, files of the same names, to find things in images.

    Labels are in the format of YOLO: a text file for each image, a line for each box, with the
    number of the class and the centre, the width and the height as shares of the image. Labels are
    in the format of YOLO: a text file for each image, a line for each box, with the number of the
    class and the centre, the width and the height as shares of the image. Without a path, 1,000
    noisy scenes of 32 x 32 pixels with scikit-learn's handwritten digits, to be found and read.
    """

    searchable = {"size": {}, "channels": {}}

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "detection"

    def notes(self) -> tuple[str, ...]:
        """Return how files are read that cannot be used as they are stored.

        See DatasetOptions.notes.
        """
        if self.path is None:
            return ()
        listed, _ = paired_files(existing_path(self.path), "labels", (".txt",))
        return check_headers(listed, turns=False)

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """List and split the images, and read all labels, as DatasetOptions.load does."""
        if self.path is None:
            made = load_scenes(cache)
            images, targets = made["inputs"], made["boxes"]
            names, shape = tuple(map(str, range(10))), images.shape[1:]
        else:
            listed, labels = paired_files(existing_path(self.path), "labels", (".txt",))
            images, targets = np.array(listed), _read_all(labels)
            names, shape = self._names(labels, targets), (self.channels, self.size, self.size)

        def part(indices: np.ndarray) -> ArraySplit | FolderSplit:
            if self.path is None:
                return ArraySplit(images[indices], targets[indices])
            return FolderSplit(
                images[indices], targets[indices], self.size, self.channels, is_stored_way_up=True
            )

        train, validation, test = split_in_three(
            len(images),
            validation_fraction=self.validation_fraction,
            test_fraction=self.test_fraction,
            seed=seed,
        )
        return Datasets(
            name="boxes",
            task="detection",
            train=part(train),
            validation=part(validation),
            test=part(test) if len(test) else None,
            input_shape=shape,
            num_outputs=len(names),
            class_names=names,
            target_shape=targets.shape[1:],
        )

    def _names(self, labels: Sequence[str], targets: np.ndarray) -> tuple[str, ...]:
        largest = int(targets[..., 0].max())
        if largest < 0:
            raise DataError(
                "no label file holds a box",
                field="data.path",
                allowed="lines of class, centre x, centre y, width, height",
            )
        names = self.classes or tuple(map(str, range(largest + 1)))
        if largest >= len(names):
            first = labels[int(targets[..., 0].max(axis=1).argmax())]
            raise DataError(
                f"{first} holds the class {largest}",
                field="data.classes",
                allowed=f"numbers below {len(names)}",
            )
        return names


def _read_all(labels: Sequence[str]) -> np.ndarray:
    """Return the boxes of all images as (images, most boxes of an image, 5)."""
    boxes_of_images = [_read(Path(path)) for path in labels]
    num_rows = max(1, *map(len, boxes_of_images))
    targets = np.zeros((len(labels), num_rows, 5), dtype=np.float32)
    targets[..., 0] = NO_BOX
    for boxes, row in zip(boxes_of_images, targets, strict=True):
        row[: len(boxes)] = boxes
    return targets


def _read(path: Path) -> np.ndarray:
    """Return the boxes of one image: class, left, top, right, bottom."""
    try:
        rows = [
            [float(cell) for cell in line.split()]
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.strip()
        ]
        read = np.array(rows, dtype=np.float64).reshape(len(rows), 5)
    except (OSError, ValueError) as error:
        raise _refusal(path, str(error)) from error
    number, centre, size = read[:, :1], read[:, 1:3], read[:, 3:]
    if not np.isfinite(read).all() or (number < 0).any() or (number % 1).any():
        raise _refusal(path, "a class is not a whole number from 0")
    if ((centre < 0) | (centre > 1)).any() or ((size <= 0) | (size > 1)).any():
        raise _refusal(path, "a box lies outside the image")
    edges = np.concatenate([centre - size / 2, centre + size / 2], axis=1).clip(0.0, 1.0)
    return np.concatenate([number, edges], axis=1)


def _refusal(path: Path, problem: str) -> DataError:
    return DataError(
        f"{path} cannot be read as boxes: {problem}",
        field="data.path",
        allowed=(
            "lines of class, centre x, centre y, width, height, the last four as shares of the"
            " image"
        ),
    )

"""Random changes of training samples.

Images are moved, cut and recoloured, series shortened, noise added.

The random numbers follow from seed, epoch and sample, as for any data set that draws. See
`sample_seeding`. Sources: Zhang et al., mixup (2018). DeVries and Taylor, cutout (2017). Cubuk et
al., RandAugment (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from workbench.data.batches import Groups
from workbench.data.ordered_splits import OrderedSplit
from workbench.data.splits import BeforeSample, Datasets
from workbench.data.targets import are_shares, class_of_each
from workbench.experiment.training_section import Augmentation
from workbench.foundation.errors import ExperimentError

_OF_IMAGES = ("flip", "cutout", "rand_augment")
_NUM_CHANGES = 2
_LARGEST = 10.0


def augmented(datasets: Datasets, changes: Augmentation) -> Datasets:
    """Return data whose training samples are changed at random.

    Args:
        datasets: The data. Validation and test stay as they are.
        changes: The changes.

    Raises:
        ExperimentError: If a change cannot be applied to this kind of samples.
    """
    if not changes.used:
        return datasets
    inputs = None
    if not isinstance(datasets.train, OrderedSplit):
        inputs = datasets.train.batch(np.arange(1))[0]
    if not isinstance(inputs, np.ndarray) or inputs.dtype.kind != "f":
        raise _refusal(
            changes.used[0], "samples are not one array of numbers each", "arrays of numbers"
        )
    for name in changes.used:
        if name in _OF_IMAGES and inputs.ndim != 4:
            raise _refusal(
                name, "samples are not images", "images of shape (channels, height, width)"
            )
        if name == "crop" and inputs.ndim not in (3, 4):
            raise _refusal(
                name, "samples have no places", "images, or series of shape (time, features)"
            )
        if name == "mixup" and datasets.task not in ("classification", "regression"):
            raise _refusal(name, f"the task is {datasets.task}", "classification, regression")
        has_places = datasets.task == "detection" or (
            datasets.task == "classification" and datasets.target_shape
        )
        if name not in ("noise", "cutout") and has_places:
            raise _refusal(name, "the targets stay at their places in the image", "noise, cutout")
    num_classes = None
    if datasets.task == "classification":
        num_classes = datasets.num_outputs
    train = AugmentedSplit(datasets.train, changes, num_classes)
    return Datasets(**{**vars(datasets), "train": train})


def _refusal(name: str, problem: str, allowed: str) -> ExperimentError:
    return ExperimentError(
        f"it cannot be used: {problem}", field=f"training.augment.{name}", allowed=allowed
    )


@dataclass(frozen=True)
class AugmentedSplit:
    """Samples of another split, changed at random whenever they are read.

    Attributes:
        split: The samples.
        changes: The changes.
        num_classes: Number of classes, or None for a regression.
    """

    split: Any
    changes: Augmentation
    num_classes: int | None
    draws_samples: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.split)

    @property
    def shuffle_groups(self) -> Groups | None:
        """Samples to visit near each other, as `batches.Groups` explains."""
        return getattr(self.split, "shuffle_groups", None)

    def batch(
        self, indices: np.ndarray, *, before_sample: BeforeSample | None = None
    ) -> tuple[Any, Any]:
        """Return changed inputs, and targets as shares of classes if samples are mixed."""
        inputs, targets = self.split.batch(indices)
        inputs = np.array(inputs)
        if self.changes.mixup:
            targets = self._mixable(targets)
        for row, index in enumerate(indices):
            if before_sample is not None:
                before_sample(int(index))
            if self.changes.mixup:
                share = np.random.beta(self.changes.mixup, self.changes.mixup)
                # mixup: a random partner, whose targets get the same share as its inputs.
                partner = np.array([np.random.randint(len(self.split))])
                other_inputs, other_targets = self.split.batch(partner)
                inputs[row] = share * inputs[row] + (1 - share) * other_inputs[0]
                mixed_in = self._mixable(other_targets)[0]
                targets[row] = share * targets[row] + (1 - share) * mixed_in
            inputs[row] = _changed(inputs[row], self.changes)
        return inputs, targets

    def _mixable(self, targets: np.ndarray) -> np.ndarray:
        """Return targets as numbers that can be mixed: shares of classes, or plain numbers."""
        if self.num_classes is None:
            return np.array(targets, dtype=np.float32)
        values = np.asarray(targets)
        if are_shares(values, self.num_classes):
            return values.astype(np.float32)
        if values.shape[1:] in ((), (1,)):
            values = class_of_each(values, self.num_classes)
        return np.eye(self.num_classes, dtype=np.float32)[values]


def _changed(sample: np.ndarray, changes: Augmentation) -> np.ndarray:
    if changes.rand_augment:
        for number in np.random.randint(len(_CHANGES), size=_NUM_CHANGES):
            sample = _CHANGES[number](
                sample, changes.rand_augment / _LARGEST * np.random.choice((-1.0, 1.0))
            )
    if changes.flip and np.random.random() < changes.flip:
        sample = sample[:, :, ::-1]
    if changes.crop and sample.ndim == 3:
        sample = _shifted(sample, changes.crop)
    elif changes.crop:
        sample = _shortened(sample, changes.crop)
    if changes.noise:
        # Relative to the spread of the sample, so that one setting suits inputs of any scale.
        sample = sample + np.random.normal(0.0, changes.noise * sample.std(), sample.shape)
    if changes.cutout:
        sample = _cut(sample, changes.cutout)
    return sample


def _shifted(image: np.ndarray, share: float) -> np.ndarray:
    """Return an image shifted by up to a share of its sides. Its edges are repeated."""
    _, height, width = image.shape
    rows, columns = (
        np.clip(
            np.arange(size)
            + np.random.randint(-math.floor(share * size), math.floor(share * size) + 1),
            0,
            size - 1,
        )
        for size in (height, width)
    )
    return image[:, rows][:, :, columns]


def _shortened(series: np.ndarray, share: float) -> np.ndarray:
    """Return a series whose first values, up to a share of them, repeat the next one."""
    first = np.random.randint(math.floor(share * len(series)) + 1)
    return series[np.maximum(np.arange(len(series)), first)]


def _cut(image: np.ndarray, share: float) -> np.ndarray:
    """Return an image with a square filled with its mean. The square may overlap an edge."""
    _, height, width = image.shape
    side = max(1, round(share * min(height, width)))
    top, left = (np.random.randint(-(side // 2), size - side // 2) for size in (height, width))
    changed = image.copy()
    place = slice(max(0, top), top + side), slice(max(0, left), left + side)
    changed[(slice(None), *place)] = image.mean()
    return changed


def _moved(
    image: np.ndarray, matrix: np.ndarray, shift: tuple[float, float] = (0.0, 0.0)
) -> np.ndarray:
    """Return an image transformed by a matrix about its centre and a shift, bilinearly."""
    _, height, width = image.shape
    centre = np.array([[(height - 1) / 2], [(width - 1) / 2]])
    places = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij")).reshape(
        2, -1
    )
    # Backward mapping: each pixel looks up where it comes from, so the result has no holes.
    rows, columns = matrix @ (places - centre) + centre + np.array(shift)[:, None]
    rows, columns = np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)
    # The four pixels around each place, weighted by how near they are.
    top = np.minimum(rows.astype(int), height - 2)
    left = np.minimum(columns.astype(int), width - 2)
    down = rows - top
    right = columns - left
    mixed = (
        image[:, top, left] * (1 - down) * (1 - right)
        + image[:, top + 1, left] * down * (1 - right)
        + image[:, top, left + 1] * (1 - down) * right
        + image[:, top + 1, left + 1] * down * right
    )
    return mixed.reshape(image.shape)


def _rotated(image: np.ndarray, strength: float) -> np.ndarray:
    angle = math.radians(30.0) * strength
    return _moved(
        image, np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    )


def _sheared(image: np.ndarray, strength: float) -> np.ndarray:
    return _moved(image, np.array([[1.0, 0.0], [0.3 * strength, 1.0]]))


def _zoomed(image: np.ndarray, strength: float) -> np.ndarray:
    return _moved(image, np.eye(2) * (1.0 + 0.3 * strength))


def _displaced(image: np.ndarray, strength: float) -> np.ndarray:
    return _moved(image, np.eye(2), (0.0, 0.2 * strength * image.shape[2]))


def _contrasted(image: np.ndarray, strength: float) -> np.ndarray:
    return image.mean() + (image - image.mean()) * (1.0 + 0.8 * strength)


def _brightened(image: np.ndarray, strength: float) -> np.ndarray:
    return image + 0.8 * strength * image.std()


_CHANGES: tuple[Callable[[np.ndarray, float], np.ndarray], ...] = (
    _rotated,
    _sheared,
    _zoomed,
    _displaced,
    _contrasted,
    _brightened,
)
"""The changes that RandAugment draws from, with strengths from -1 to 1."""

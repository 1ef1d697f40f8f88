"""Images that show several things each: options of their folders, and scenes of digits.

`masks` and `boxes` define what is to be found in them: the class of each pixel, or boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from workbench.data.cache import Cached, cached
from workbench.data.images import MIDDLE, pixel_reading
from workbench.data.options import DatasetOptions, held_out_field
from workbench.data.reading import Reading
from workbench.foundation.errors import ExperimentError

_NUM_SCENES, _SIZE, _NUM_DIGITS, _DIGIT = 1_000, 32, 3, 8


class SceneOptions(DatasetOptions):
    """How a folder of images that show several things each is read. Without one, scenes."""

    path: Path | None = Field(None, description="The folder. By default, scenes of digits.")
    size: int = Field(64, ge=8, le=1024, description="Height and width in pixels (32 in scenes).")
    channels: Literal[1, 3] = Field(
        3, description="1 for grey, 3 for red, green and blue (1 in scenes)."
    )
    classes: tuple[str, ...] = Field(
        (),
        description=(
            "Names of the classes by number. By default, numbers up to the largest one found."
        ),
    )
    validation_fraction: float = Field(
        0.2, gt=0.0, lt=1.0, description="Share of the images held out."
    )
    test_fraction: float = held_out_field()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for option in ("size", "channels", "classes"):
            if self.path is None and option in self.model_fields_set:
                raise ExperimentError(
                    "needs a folder", field=option, next_step="Set path to a folder."
                )
        return self

    def reading(self, *, seed: int) -> Reading:
        """Return how pixels from 0 to 255 become inputs, as DatasetOptions.reading does."""
        return pixel_reading(self.load(seed=seed, cache=None).train)


def load_scenes(cache: Path | None) -> Mapping[str, np.ndarray]:
    """Return 1,000 scenes of 32 x 32 pixels with scikit-learn's digits, always the same ones.

    Args:
        cache: Folder of the cache. None means the default folder.

    Returns:
        `inputs` are values from -1 to 1 of shape (scenes, 1, 32, 32). `masks` have 1 + the digit
        for each pixel, or 0. `boxes` of shape (scenes, 3, 5) have for each digit its number and
        the left, top, right and bottom edge of its visible part, as shares of the side.
    """
    return cached("scenes", {"scenes": _NUM_SCENES}, _make, code=[__file__], folder=cache).arrays


def _make() -> Cached:
    from sklearn.datasets import load_digits

    digits, numbers = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    pixels = random.normal(30, 20, (_NUM_SCENES, _SIZE, _SIZE))
    masks = np.zeros((_NUM_SCENES, _SIZE, _SIZE), dtype=np.int64)
    boxes = np.zeros((_NUM_SCENES, _NUM_DIGITS, 5), dtype=np.float32)
    for scene in range(_NUM_SCENES):
        for place, number in enumerate(random.integers(0, len(digits), _NUM_DIGITS)):
            top, left = random.integers(0, _SIZE - _DIGIT, 2)
            digit = digits[number].reshape(_DIGIT, _DIGIT) / 16.0
            part = (scene, slice(top, top + _DIGIT), slice(left, left + _DIGIT))
            # The brighter pixel wins, so that a digit does not cut a dark square out of another.
            pixels[part] = np.maximum(
                pixels[part], 200 * digit + random.normal(0, 20, (_DIGIT, _DIGIT))
            )
            is_visible = digit > 0.4
            masks[part] = np.where(is_visible, numbers[number] + 1, masks[part])
            rows = np.flatnonzero(is_visible.any(axis=1))
            columns = np.flatnonzero(is_visible.any(axis=0))
            edges = (left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1)
            boxes[scene, place] = (numbers[number], *(edge / _SIZE for edge in edges))
    inputs = np.clip(np.round(pixels), 0, 255)[:, None].astype(np.float32) / MIDDLE - 1.0
    return Cached({"inputs": inputs.astype(np.float32), "masks": masks, "boxes": boxes}, {})

"""Describes how a data set turns a user's samples into the inputs of a model.

Loading does this for all samples at once. An exported model contains the description, so that it
can do the same for new samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from workbench.data.column_encoding import Column
    from workbench.experiment.setting_types import TokenKind

MAX_SAMPLES = 5_000
"""The most train samples in a reading. The known distribution of the data comes from these."""


@dataclass(frozen=True)
class Reading:
    """From raw samples to the inputs of a model, and from its outputs to the unit of the target.

    Attributes:
        samples: Some train samples as users have them, by the name of the input.
        indices: The numbers of these samples in the train split.
        columns: How each column of a table is encoded, or empty if a sample is an array.
        mean: Subtracted from an array: a number, or one for each place of its last dimensions.
        scale: An array is then divided by it: a number, or one for each place.
        array_columns: The columns of a table if an array consists of its rows.
        group: The column that tells apart the series of that table, or None if it is one.
        vocabulary: The texts of the token ids.
        tokens: How a text becomes token ids, or None if users have token ids.
        target: The name of the target.
        targets: The names of the predicted numbers if there are several.
        unit: The unit of the target in words, or None if it is not known.
        target_mean: Added to predicted numbers after scaling: one number, or one each.
        target_scale: The factor of predicted numbers: one number, or one each.
        is_image: Whether a sample is the pixels of an image file, from 0 to 255, the channels
            first.
    """

    samples: Mapping[str, Any] = field(repr=False)
    indices: np.ndarray = field(repr=False)
    columns: tuple[Column, ...] = field(default=(), repr=False)
    mean: float | np.ndarray = 0.0
    scale: float | np.ndarray = 1.0
    array_columns: tuple[str, ...] = ()
    group: str | None = None
    vocabulary: tuple[str, ...] = field(default=(), repr=False)
    tokens: TokenKind | None = None
    target: str | None = None
    targets: tuple[str, ...] = ()
    unit: str | None = None
    target_mean: float | np.ndarray = 0.0
    target_scale: float | np.ndarray = 1.0
    is_image: bool = False


def some_of(num_samples: int) -> np.ndarray:
    """Return sample numbers, evenly spread, of at most `MAX_SAMPLES` samples."""
    return np.unique(
        np.linspace(0, num_samples - 1, min(num_samples, MAX_SAMPLES)).astype(np.int64)
    )

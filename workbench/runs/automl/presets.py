"""What a user trades: time of training and prediction, or the better score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PresetName = Literal["fast", "good", "best"]


@dataclass(frozen=True)
class Preset:
    """How samples are divided and models are combined.

    Attributes:
        folds: For at most so many learning samples, the number of folds. One fold for more.
        max_members: Maximum number of configurations in the result.
        min_gain: By which share of the loss an ensemble must be better than its best model.
    """

    folds: tuple[tuple[int, int], ...]
    max_members: int
    min_gain: float


PRESETS: dict[PresetName, Preset] = {
    "fast": Preset(folds=((1_000, 3),), max_members=1, min_gain=0.0),
    "good": Preset(folds=((1_000, 5), (20_000, 3)), max_members=8, min_gain=0.0),
    "best": Preset(folds=((5_000, 5), (50_000, 3)), max_members=20, min_gain=0.0),
}
PRESET = "preset"
"""The option of the data that holds the preset."""
DEFAULT: PresetName = "good"

"""Selects the boxes that a detector has found, from its scores for every cell.

It only needs numpy, because exported models run without torch. Computing the scores is left to
`detector`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NUM_EDGES = 4
"""Number of values before the scores of a cell: the edges of its box."""
MIN_SCORE = 0.05
"""Boxes with a lower score are dropped."""
MAX_OVERLAP = 0.5
"""If two boxes of a class have a larger intersection over union, only the better one is kept."""
MAX_BOXES = 100
"""Maximum number of boxes in an image."""


class FoundBox(NamedTuple):
    """A box that was found. Its edges are shares of the width and the height of the image."""

    number: int
    score: float
    left: float
    top: float
    right: float
    bottom: float


def find_boxes(cells: np.ndarray) -> list[FoundBox]:
    """Return the boxes that were found in one image, the best first.

    Args:
        cells: For every cell, the left, top, right and bottom edge of a box, and the score of each
            class from 0 to 1. These are the last dimension. There may be any others before it.

    Example:
        >>> cells = [[0.1, 0.1, 0.4, 0.4, 0.9, 0.01], [0.1, 0.1, 0.5, 0.4, 0.7, 0.2]]
        >>> [(box.number, round(box.score, 1)) for box in find_boxes(np.array(cells))]
        [(0, 0.9), (1, 0.2)]
    """
    flat = cells.reshape(-1, cells.shape[-1]).astype(np.float64)
    edges, scores = flat[:, :4].clip(0.0, 1.0), flat[:, 4:]
    order = np.argsort(-scores, axis=None, kind="stable")
    order = order[scores.ravel()[order] >= MIN_SCORE]
    kept: list[int] = []
    places, numbers = np.divmod(order, scores.shape[1])
    is_left = np.ones(len(order), dtype=bool)
    # Non-maximum suppression: keep the best remaining box, and drop boxes of its class that overlap
    # it.
    while len(kept) < MAX_BOXES and is_left.any():
        best = int(is_left.argmax())
        kept.append(best)
        is_same = overlaps(edges[places[best]], edges[places]) > MAX_OVERLAP
        is_left &= ~(is_same & (numbers == numbers[best]))
        is_left[best] = False
    return [
        FoundBox(
            int(numbers[rank]),
            float(scores[places[rank], numbers[rank]]),
            *edges[places[rank]].tolist(),
        )
        for rank in kept
    ]


def overlaps(edges: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection over union of a box with other boxes. It is 0 for empty boxes.

    Args:
        edges: Left, top, right and bottom.
        others: Left, top, right and bottom of each other box, (boxes, 4).

    Example:
        >>> others = np.array([[0.0, 0.0, 1.0, 0.5], [1.0, 0.0, 2.0, 1.0]])
        >>> overlaps(np.array([0.0, 0.0, 1.0, 1.0]), others)
        array([0.5, 0. ])
    """
    sides = np.minimum(edges[2:], others[:, 2:]) - np.maximum(edges[:2], others[:, :2])
    common = sides.clip(0.0).prod(axis=1)
    both = np.prod(edges[2:] - edges[:2]) + (others[:, 2:] - others[:, :2]).prod(axis=1) - common
    return np.divide(common, both, out=np.zeros_like(common), where=both > 0)


def mean_average_precision(
    predicted: Sequence[Sequence[FoundBox]], wanted: Sequence[np.ndarray]
) -> float:
    """Return the area under precision and recall, averaged over the classes.

    A box is right if it overlaps a true box of its class by at least one half, unless a box with a
    higher score has already found that one.

    Args:
        predicted: The boxes that the model found in each image.
        wanted: The true boxes of each image, (boxes, 5): class, left, top, right, bottom. A class
            below 0 means that there is no box.

    Returns:
        From 0 to 1, or NaN if there are no true boxes.

    Source: Everingham et al., The PASCAL Visual Object Classes Challenge (2010), with all points of
    the curve.
    """
    real = [boxes[boxes[:, 0] >= 0] for boxes in wanted]
    if not real:
        return float("nan")
    numbers = np.unique(np.concatenate([boxes[:, 0] for boxes in real]))
    if not len(numbers):
        return float("nan")
    return float(np.mean([_average_precision(int(number), predicted, real) for number in numbers]))


def _average_precision(
    number: int, predicted: Sequence[Sequence[FoundBox]], wanted: Sequence[np.ndarray]
) -> float:
    of_class = [boxes[boxes[:, 0] == number, 1:].astype(np.float64) for boxes in wanted]
    is_taken = [np.zeros(len(boxes), dtype=bool) for boxes in of_class]
    ranked = sorted(
        (
            (box, image)
            for image, boxes in enumerate(predicted)
            for box in boxes
            if box.number == number
        ),
        key=lambda pair: -pair[0].score,
    )
    is_right = np.zeros(len(ranked))
    for rank, (box, image) in enumerate(ranked):
        shared = np.where(is_taken[image], 0.0, overlaps(np.array(box[2:]), of_class[image]))
        if len(shared) and shared.max() >= MAX_OVERLAP:
            is_taken[image][shared.argmax()] = True
            is_right[rank] = 1.0
    right = is_right.cumsum()
    precision = right / np.arange(1, len(ranked) + 1)
    # At each recall, the best precision at that recall or a higher one counts.
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float((envelope * is_right).sum() / sum(map(len, of_class)))

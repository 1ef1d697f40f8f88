"""Thinning: fewer points that look the same when drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.foundation.errors import ExperimentError

MIN_POINTS = 8


def thin_indices(values: NDArray[np.float64], max_points: int) -> NDArray[np.intp]:
    """Choose at most `max_points` points that look the same when drawn: min-max thinning.

    The points are cut into equal groups; of each the smallest and the largest are kept, and one
    that is not finite if there is any, so that gaps stay gaps. The first and the last are always
    kept.

    Args:
        values: One value a point, in the order of drawing; may hold NaN and infinity.
        max_points: At least 8.

    Returns:
        Indices in ascending order.

    Raises:
        ExperimentError: If `max_points` is below 8.
    """
    if max_points < MIN_POINTS:
        raise ExperimentError(
            f"{max_points} points cannot hold ends, extremes and gaps",
            field="max_points",
            allowed=f"at least {MIN_POINTS}",
        )
    count = len(values)
    if count <= max_points:
        return np.arange(count)
    finite = np.isfinite(values)
    num_groups = (max_points - 2) // (2 if finite.all() else 3)
    width = -(-count // num_groups)
    padding = (0, -count % width)
    lows = np.pad(np.where(finite, values, np.inf), padding, constant_values=np.inf).reshape(
        -1, width
    )
    highs = np.pad(np.where(finite, values, -np.inf), padding, constant_values=-np.inf).reshape(
        -1, width
    )
    gaps = np.pad(~finite, padding, constant_values=False).reshape(-1, width)
    starts = np.arange(len(lows)) * width
    kept = [np.array([0, count - 1]), (starts + gaps.argmax(axis=1))[gaps.any(axis=1)]]
    with_values = np.isfinite(lows).any(axis=1)
    kept += [
        (starts + lows.argmin(axis=1))[with_values],
        (starts + highs.argmax(axis=1))[with_values],
    ]
    return np.unique(np.concatenate(kept))

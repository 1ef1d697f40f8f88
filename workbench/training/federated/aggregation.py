"""One change out of many: the weighted mean, and two that resist clients which send anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def weighted_mean(changes: Iterable[tuple[np.ndarray, float]]) -> np.ndarray | None:
    """Return the mean of some changes, added up one after the other so that the order decides every
    bit.

    Args:
        changes: Each client's change, one-dimensional, and its weight, such as its number of
            samples.

    Returns:
        The mean as float64; None where all weights are 0.
    """
    total: np.ndarray | None = None
    total_weight = 0.0
    for change, weight in changes:
        if weight == 0.0:
            continue
        share = change.astype(np.float64) * weight
        total = share if total is None else total + share
        total_weight += weight
    return None if total is None else total / total_weight


def trimmed_mean(changes: Sequence[np.ndarray], trim: float) -> np.ndarray:
    """Return, for each weight by itself, the mean without the largest and the smallest values.

    Args:
        changes: One-dimensional changes; at least one.
        trim: Share of the clients that is left out at each end, below 0.5.

    Source: Yin et al., "Byzantine-Robust Distributed Learning", 2018.
    """
    ordered = np.sort(np.stack(changes).astype(np.float64), axis=0)
    num_cut = min(int(trim * len(changes)), (len(changes) - 1) // 2)
    return ordered[num_cut : len(changes) - num_cut].mean(axis=0)


def krum(changes: Sequence[np.ndarray], num_bad: int) -> int:
    """Return which change is nearest to its neighbours.

    The one with the least sum of squared distances.

    Args:
        changes: One-dimensional changes; at least one.
        num_bad: How many may be bad; the distances to clients - bad - 2 neighbours count, at least
            one.

    Returns:
        Its position; the first one of several that are equally near.

    Source: Blanchard et al., "Machine Learning with Adversaries", 2017.
    """
    if len(changes) == 1:
        return 0
    points = np.stack(changes).astype(np.float64)
    distances = np.stack([np.square(points - point).sum(axis=1) for point in points])
    np.fill_diagonal(distances, np.inf)
    num_near = min(max(1, len(changes) - num_bad - 2), len(changes) - 1)
    return int(np.sort(distances, axis=1)[:, :num_near].sum(axis=1).argmin())

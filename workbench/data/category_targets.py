"""Categories as the mean target of their train rows, shrunk towards the mean of all.

A train row must not see its own target in such a number, or models trust it too much. Train rows
are therefore encoded with the means of other train rows.

Source: Micci-Barreca, A Preprocessing Scheme for High-Cardinality Categorical Attributes (2001),
with cross-fitting as in scikit-learn's `TargetEncoder`.
"""

from __future__ import annotations

import numpy as np

MAX_CLASSES = 10
"""With more classes, a category would get too many numbers."""
# The mean of all train rows weighs as much as this many rows of the category.
_PRIOR_WEIGHT = 10.0
_NUM_PARTS = 5


def target_numbers(targets: np.ndarray, num_classes: int | None) -> np.ndarray | None:
    """Return targets as numbers whose means can encode a category.

    Args:
        targets: Class numbers, or numbers.
        num_classes: Number of classes; None for a regression.

    Returns:
        (rows, numbers): the numbers, whether it is the second of two classes, or whether it is each
        class. None if there are too many classes.
    """
    if num_classes is None:
        return targets.astype(np.float64).reshape(-1, 1)
    if num_classes > MAX_CLASSES:
        return None
    first = 1 if num_classes == 2 else 0
    return (targets[:, None] == np.arange(first, num_classes)).astype(np.float64)


def target_means(categories: np.ndarray, targets: np.ndarray, num_categories: int) -> np.ndarray:
    """Return the shrunk mean target of each category, and at last that of unknown ones.

    Args:
        categories: The number of the category of each train row.
        targets: Their targets, as `target_numbers` returns them.
        num_categories: Number of categories.
    """
    prior = targets.mean(axis=0)
    counts, sums = _totals(categories, targets, num_categories)
    means = (sums + _PRIOR_WEIGHT * prior) / (counts + _PRIOR_WEIGHT)[:, None]
    return np.concatenate([means, prior[None]])


def cross_fitted_means(
    categories: np.ndarray, targets: np.ndarray, num_categories: int
) -> np.ndarray:
    """Return the shrunk mean target of the category of each train row, without that row.

    Args:
        categories: The number of the category of each train row.
        targets: Their targets, as `target_numbers` returns them.
        num_categories: Number of categories.
    """
    part = np.random.default_rng(len(targets)).permutation(len(targets)) % _NUM_PARTS
    encoded = np.empty_like(targets)
    for number in range(_NUM_PARTS):
        chosen, others = part == number, part != number
        if not others.any():
            others = chosen
        means = target_means(categories[others], targets[others], num_categories)
        encoded[chosen] = means[categories[chosen]]
    return encoded


def _totals(
    categories: np.ndarray, targets: np.ndarray, num_categories: int
) -> tuple[np.ndarray, np.ndarray]:
    counts = np.bincount(categories, minlength=num_categories).astype(np.float64)
    sums = [
        np.bincount(categories, weights=column, minlength=num_categories) for column in targets.T
    ]
    return counts, np.stack(sums, axis=1)

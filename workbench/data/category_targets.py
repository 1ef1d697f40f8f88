"""Categories as the mean target of their train rows, shrunk towards the mean of all.

A train row must not see its own target in such a number, or models trust it too much. Train rows
are therefore encoded with the means of other train rows.

Source: Micci-Barreca, A Preprocessing Scheme for High-Cardinality Categorical Attributes (2001),
with cross-fitting as in scikit-learn's `TargetEncoder`. How much a mean is shrunk follows from the
variances within and between categories: Searle, Casella and McCulloch, Variance Components (1992),
section 3.6.
"""

from __future__ import annotations

import numpy as np

from workbench.data.splits import divisor

MAX_CLASSES = 10
"""With more classes, a category would get too many numbers."""
# The mean of all train rows weighs as much as at least, and at most, this many rows of a category.
_MIN_PRIOR_WEIGHT, _MAX_PRIOR_WEIGHT = 1.0, 100.0
_NUM_PARTS = 5


def target_numbers(targets: np.ndarray, num_classes: int | None) -> np.ndarray | None:
    """Return targets as numbers whose means can encode a category.

    Args:
        targets: Class numbers, or numbers.
        num_classes: Number of classes; None for a regression, which may have several targets.

    Returns:
        (rows, numbers): the numbers, whether it is the second of two classes, or whether it is each
        class. None if there are too many classes.
    """
    if num_classes is None:
        return targets.astype(np.float64).reshape(len(targets), -1)
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
    weight = _prior_weights(counts, sums, targets)
    means = (sums + weight * prior) / (counts[:, None] + weight)
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


def scaled_means(
    categories: np.ndarray, targets: np.ndarray, num_categories: int
) -> tuple[np.ndarray, tuple[tuple[float, float], ...]]:
    """Return the means of `target_means` in the scale of what train rows see of them.

    Args:
        categories: The number of the category of each train row.
        targets: Their targets, as `target_numbers` returns them.
        num_categories: Number of categories.

    Returns:
        The scaled means, and the mean and divisor of each of their numbers.
    """
    fitted = cross_fitted_means(categories, targets, num_categories)
    mean = fitted.mean(axis=0)
    scale = np.broadcast_to(divisor(mean, fitted.std(axis=0)), mean.shape)
    means = (target_means(categories, targets, num_categories) - mean) / scale
    return means, tuple(zip(mean.tolist(), scale.tolist(), strict=True))


def scaled_counts(categories: np.ndarray, num_categories: int) -> np.ndarray:
    """Return how often each category occurs, and at last 0 for an unknown one, as (categories, 1).

    These are logarithms in the scale of the train rows.

    Args:
        categories: The number of the category of each train row.
        num_categories: Number of categories.
    """
    counts = np.log1p(np.append(np.bincount(categories, minlength=num_categories), 0))[:, None]
    return (counts - counts[categories].mean()) / divisor(counts.mean(), counts[categories].std())


def show_cross_fitted(
    encoded: np.ndarray,
    categories: np.ndarray,
    targets: np.ndarray,
    num_categories: int,
    scales: tuple[tuple[float, float], ...],
) -> None:
    """Replace the last numbers of encoded train rows by scaled means without their own target.

    Args:
        encoded: The rows, which are changed.
        categories: The number of the category of each.
        targets: Their targets, as `target_numbers` returns them.
        num_categories: Number of categories.
        scales: As `scaled_means` returns them.
    """
    mean, scale = np.array(scales).T
    means = cross_fitted_means(categories, targets, num_categories)
    encoded[:, -len(scales) :] = (means - mean) / scale


def _prior_weights(counts: np.ndarray, sums: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return how many rows of a category the mean of all rows weighs as much as, by number.

    This is the variance within categories by the variance of the true means of categories, both
    estimated from the train rows by an analysis of variance.
    """
    num_rows, num_known = counts.sum(), np.count_nonzero(counts)
    if num_known < 2 or num_known == num_rows:
        return np.full(targets.shape[1], _MAX_PRIOR_WEIGHT)
    squares = (targets**2).sum(axis=0)
    of_categories = (sums**2 / np.maximum(counts, 1.0)[:, None]).sum(axis=0)
    of_all = targets.sum(axis=0) ** 2 / num_rows
    within = np.maximum(squares - of_categories, 0.0) / (num_rows - num_known)
    rows_per_category = (num_rows - (counts**2).sum() / num_rows) / (num_known - 1)
    between = ((of_categories - of_all) / (num_known - 1) - within) / rows_per_category
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(between > 0.0, within / between, _MAX_PRIOR_WEIGHT)
    return np.clip(weight, _MIN_PRIOR_WEIGHT, _MAX_PRIOR_WEIGHT)


def _totals(
    categories: np.ndarray, targets: np.ndarray, num_categories: int
) -> tuple[np.ndarray, np.ndarray]:
    counts = np.bincount(categories, minlength=num_categories).astype(np.float64)
    sums = [
        np.bincount(categories, weights=column, minlength=num_categories) for column in targets.T
    ]
    return counts, np.stack(sums, axis=1)

"""Scores of each class, and their mean over the classes, from numpy arrays.

Most scores are computed from counts. The area under the ROC curve needs probabilities. Collecting
the counts is left to the callers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

ClassScore = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(right, predicted, wanted), the counts of each class -> the score of each class, or NaN."""


def intersection_over_union(
    right: np.ndarray, predicted: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Return the intersection over union of each class (Jaccard), from counts."""
    return right / (predicted + wanted - right)


def f1(right: np.ndarray, predicted: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the harmonic mean of precision and recall of each class, from counts."""
    return 2 * right / (predicted + wanted)


def recall(right: np.ndarray, predicted: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the recall of each class, from counts, or NaN for a class that does not occur."""
    return np.divide(right, wanted, out=np.full(len(wanted), np.nan), where=wanted > 0)


def mean_score(score: ClassScore, counts: np.ndarray) -> float:
    """Return the mean score of the classes that occur or were predicted, or NaN if there are none.

    Args:
        score: The score of a class.
        counts: (3, classes): how often each class was predicted correctly, predicted, and wanted.

    Example:
        >>> import numpy as np
        >>> mean_score(recall, np.array([[1, 1], [2, 1], [1, 2]]))
        0.75
    """
    scores = score(*counts[:, counts[1:].sum(axis=0) > 0])
    known = scores[~np.isnan(scores)]
    if not len(known):
        return float("nan")
    return float(known.mean())


def macro_roc_auc(
    scores: np.ndarray, classes: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Return the mean area under the ROC curve of each class against the rest. Ties count half.

    Args:
        scores: (samples, classes) probabilities.
        classes: The true class of each sample.
        weights: The weight of each sample, or None if all are equal.

    Returns:
        From 0 to 1, or NaN if all samples have the same class. Classes without samples do not
        count.

    Source: Mann-Whitney U, as in Hanley and McNeil (1982).
    """
    if weights is None:
        weights = np.ones(len(classes))
    present = np.unique(classes[weights > 0])
    if len(present) < 2:
        return float("nan")
    areas = [_area(scores[:, number], classes == number, weights) for number in present]
    return float(np.mean(areas))


def _area(scores: np.ndarray, is_class: np.ndarray, weights: np.ndarray) -> float:
    place = np.unique(scores, return_inverse=True)[1]
    others = np.bincount(place, weights=weights * ~is_class)
    # The Mann-Whitney U: pairs in which the sample of the class has the higher score. A tie counts
    # half.
    below = np.cumsum(others) - others / 2.0
    own = weights * is_class
    return float((own * below[place]).sum() / (own.sum() * others.sum()))

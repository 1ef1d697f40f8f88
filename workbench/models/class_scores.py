"""Scores of each class, and their mean over the classes: of numpy arrays.

Most follow from counts; the area under the ROC curve needs the probabilities. What is counted, over
batches or at once, is left to those that measure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

ClassScore = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(right, predicted, wanted), each a count by class -> a score of each class, NaN for none."""


def intersection_over_union(
    right: np.ndarray, predicted: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Return the intersection over union of each class (Jaccard), from counts."""
    return right / (predicted + wanted - right)


def f1(right: np.ndarray, predicted: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the harmonic mean of precision and recall of each class, from counts."""
    return 2 * right / (predicted + wanted)


def recall(right: np.ndarray, predicted: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the recall of each class, from counts; NaN for one that does not occur."""
    return np.divide(right, wanted, out=np.full(len(wanted), np.nan), where=wanted > 0)


def mean_score(score: ClassScore, counts: np.ndarray) -> float:
    """Return the mean score of the classes that occur or were predicted; NaN where there are none.

    Args:
        score: The score of a class.
        counts: (3, classes) how often a class was right, predicted, and wanted.

    Example:
        >>> import numpy as np
        >>> mean_score(recall, np.array([[1, 1], [2, 1], [1, 2]]))
        0.75
    """
    scores = score(*counts[:, counts[1:].sum(axis=0) > 0])
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if len(known) else float("nan")


def macro_roc_auc(scores: np.ndarray, classes: np.ndarray) -> float:
    """Return the mean area under the ROC curve of each class against the rest; ties count half.

    Args:
        scores: (samples, classes) probabilities.
        classes: The true class of each sample.

    Returns:
        From 0 to 1; NaN where all samples are of one class. Classes without a sample are left out.

    Source: Mann-Whitney U, as in Hanley and McNeil (1982).
    """
    present = np.unique(classes)
    if len(present) < 2:
        return float("nan")
    areas = [_area(scores[:, number], classes == number) for number in present]
    return float(np.mean(areas))


def _area(scores: np.ndarray, is_class: np.ndarray) -> float:
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[place]
    num_class = int(is_class.sum())
    above = ranks[is_class].sum() - num_class * (num_class + 1) / 2.0
    return float(above / (num_class * (len(scores) - num_class)))

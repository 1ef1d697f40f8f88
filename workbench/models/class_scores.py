"""Scores of each class from counts, and their mean over the classes: of numpy arrays.

What is counted, over batches or at once, is left to those that measure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

ClassScore = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(right, predicted, wanted), each a count by class -> a score of each class.

NaN for one that has none.
"""


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

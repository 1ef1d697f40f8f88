"""How well scores separate one class from the rest.

The area under the ROC curve, of numpy arrays.
"""

from __future__ import annotations

import numpy as np


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

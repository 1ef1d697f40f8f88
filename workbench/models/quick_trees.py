"""Trees with fixed settings. They tell how data is best encoded, before any model is chosen."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

MAX_ROWS = 20_000
# The numbers, and in any case the rows, that trees learn from in about a second of a processor.
_MAX_JUDGED, _LEAST_JUDGED = 3_000_000, 1_000

FoldArrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Train inputs and targets, and validation inputs and targets."""


def predicted_by_trees(
    known: np.ndarray, targets: np.ndarray, inputs: np.ndarray, seed: int
) -> np.ndarray:
    """Return what trees with fixed settings predict.

    Args:
        known: Encoded train rows. The last `MAX_ROWS` are used.
        targets: Their targets, one number each.
        inputs: Encoded rows to predict.
        seed: Seed of the trees.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    if len(targets) > MAX_ROWS:
        known, targets = known[-MAX_ROWS:], targets[-MAX_ROWS:]
    kind: Any = HistGradientBoostingRegressor
    trees = kind(max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=seed)
    with threadpool_limits(limits=1):
        return trees.fit(known, targets).predict(inputs)


def loss_of_trees(
    fold: FoldArrays, task: Literal["classification", "regression"], seed: int
) -> float:
    """Return the log loss, or the squared error, of trees on the validation rows of a fold.

    The trees are as large as in usual defaults: smaller ones gain by features whose content larger
    ones find by themselves.

    Args:
        fold: The encoded rows, with two classes or one number to predict. Of many rows, the last
            ones are learned from if they are not all of one class.
        task: Whether a class or a number is predicted.
        seed: Seed of the trees.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    known, targets, inputs, wanted = fold
    most = max(_LEAST_JUDGED, _MAX_JUDGED // known.shape[1])
    if np.ptp(targets[-most:]) > 0:
        known, targets = known[-most:], targets[-most:]
    kind: Any = HistGradientBoostingRegressor
    if task == "classification":
        kind = HistGradientBoostingClassifier
    trees = kind(max_iter=100, max_leaf_nodes=31, early_stopping=False, random_state=seed)
    with threadpool_limits(limits=1):
        trees.fit(known, targets)
        if task == "regression":
            return float(((trees.predict(inputs) - wanted) ** 2).mean())
        probabilities = trees.predict_proba(inputs)
    of_wanted = probabilities[np.arange(len(wanted)), wanted.astype(int)]
    return float(-np.log(np.maximum(of_wanted, np.finfo(np.float32).eps)).mean())

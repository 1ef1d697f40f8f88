"""A trend over time, which trees do not continue: beyond the last time they repeat the last level.

The trend is a straight line over the time column. Models learn what is left without it, and it is
added to what they predict. It is only used if that is better on later rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.models.quick_trees import MAX_ROWS, FoldArrays, predicted_by_trees

# The squared error on later rows must be at most this part of the one without a trend.
_MOST_ERROR_LEFT = 0.9


def slope_of(inputs: np.ndarray, targets: np.ndarray, place: int) -> float:
    """Return how much a target grows with an input if all other inputs stay the same.

    Args:
        inputs: Encoded train rows.
        targets: Their targets.
        place: The place of the input.
    """
    from sklearn.linear_model import Ridge

    fitted = Ridge(alpha=1.0).fit(inputs.astype(np.float64), targets.astype(np.float64))
    return float(np.ravel(fitted.coef_)[place])


def continues(folds: Sequence[FoldArrays], place: int, seed: int = 0) -> bool:
    """Return whether a straight line over time makes trees better on later rows.

    Args:
        folds: Encoded folds, of which the validation rows are later than the train rows.
        place: The place of the time among the inputs.
        seed: Seed of the trees.
    """
    errors = np.zeros(2)
    wins = 0
    for train_inputs, train_targets, inputs, targets in folds:
        rows = slice(max(0, len(train_targets) - MAX_ROWS), None)
        known, wanted = train_inputs[rows], train_targets[rows].astype(np.float64)
        slope = slope_of(known, wanted, place)
        plain = predicted_by_trees(known, wanted, inputs, seed)
        rest = predicted_by_trees(known, wanted - slope * known[:, place], inputs, seed)
        both = [
            float(((targets - predicted) ** 2).sum())
            for predicted in (plain, rest + slope * inputs[:, place])
        ]
        errors += both
        wins += both[1] < both[0]
    return bool(errors[1] < _MOST_ERROR_LEFT * errors[0]) and wins > len(folds) / 2

"""Whether models should learn the logarithm of a target, such as a price.

Errors of prices grow with the price, and a few high prices decide what is learned. Their logarithm
does not have this problem. It is used if that makes trees better in the unit of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from workbench.models.trends import FoldArrays, predicted_by_trees

# The loss with logarithms must be at most this part of the one without.
_MOST_LOSS_LEFT = 0.95
# Targets that are spread less are nearly proportional to their logarithms.
_LEAST_RATIO = 5.0
MAX_LOGARITHM = 80.0
"""A larger logarithm has no number in float32."""


def logarithms_help(
    folds: Sequence[FoldArrays], loss: Callable[[np.ndarray, np.ndarray], float], seed: int = 0
) -> bool:
    """Return whether trees are better if they learn the logarithms of the targets.

    Args:
        folds: Encoded folds, whose targets are in their own unit.
        loss: The loss that is optimised, of (samples, 1) predictions and targets.
        seed: Seed of the trees.
    """
    targets = np.concatenate([fold[1] for fold in folds] + [fold[3] for fold in folds])
    if not targets.min() > 0:
        return False
    low, high = np.quantile(targets, [0.05, 0.95])
    if high < _LEAST_RATIO * low:
        return False
    losses = np.zeros(2)
    wins = 0
    for train_inputs, train_targets, inputs, wanted in folds:
        plain = predicted_by_trees(train_inputs, train_targets, inputs, seed)
        logarithms = predicted_by_trees(train_inputs, np.log(train_targets), inputs, seed)
        both = [
            loss(predicted[:, None], wanted)
            for predicted in (plain, np.exp(np.minimum(logarithms, MAX_LOGARITHM)))
        ]
        losses += both
        wins += both[1] < both[0]
    return bool(losses[1] < _MOST_LOSS_LEFT * losses[0]) and wins > len(folds) / 2

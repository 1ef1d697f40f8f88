"""Joining the best: greedy selection of models by what their mean prediction is worth on validation.

Source: Caruana et al., Ensemble Selection from Libraries of Models (2004): with replacement, starting from
the best few; the step with the least loss is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.automatic.scores import loss_of
from workbench.automatic.targets import Asked

MAX_STEPS = 30
NUM_STARTING = 3
# What is won on validation by less than this part is as likely luck as gain.
LEAST_GAIN = 0.01


def select(
    predictions: Sequence[np.ndarray], targets: np.ndarray, asked: Asked, *, max_steps: int = MAX_STEPS
) -> np.ndarray:
    """Choose weights of models for their weighted mean.

    Args:
        predictions: What each model says of the validation samples, all of one shape.
        targets: What would be right.
        asked: What is predicted.
        max_steps: Most picks; a model may be picked again.

    Returns:
        Weights that are not negative and sum to 1. The mean is not worse on these samples than the best
        single model; unless it is better by `LEAST_GAIN`, that model has all the weight.
    """
    stacked = np.stack(predictions)
    losses = np.array([loss_of(each, targets, asked) for each in stacked])
    best = int(losses.argmin())
    single = np.zeros(len(stacked))
    single[best] = 1.0
    picked = [int(index) for index in np.argsort(losses, kind="stable")[:NUM_STARTING]]
    total = stacked[picked].sum(axis=0)
    found, found_loss = single, float(losses[best])
    while True:
        loss = loss_of(total / len(picked), targets, asked)
        if loss < found_loss:
            found = np.bincount(picked, minlength=len(stacked)) / len(picked)
            found_loss = loss
        if len(picked) >= max_steps:
            break
        tried = [loss_of((total + each) / (len(picked) + 1), targets, asked) for each in stacked]
        picked.append(int(np.argmin(tried)))
        total = total + stacked[picked[-1]]
    return found if found_loss < (1.0 - LEAST_GAIN) * float(losses[best]) else single


def weighted_mean(predictions: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Return the weighted mean of predictions.

    Args:
        predictions: What each model says, all of one shape.
        weights: One each, summing to 1.
    """
    return np.tensordot(np.asarray(weights), np.stack(predictions), axes=1)

"""Greedy ensemble selection: combine the models whose mean prediction has the least validation loss.

Source: Caruana et al., Ensemble Selection from Libraries of Models (2004): with replacement, starting from
the best few; the step with the least loss is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.automl_pipeline.scores import loss_of
from workbench.automl_pipeline.targets import Task

MAX_STEPS = 30
NUM_STARTING = 3
# A smaller relative improvement on validation is as likely luck as a gain.
MIN_GAIN = 0.01


def select(
    predictions: Sequence[np.ndarray], targets: np.ndarray, task: Task, *, max_steps: int = MAX_STEPS
) -> np.ndarray:
    """Choose weights of models for their weighted mean.

    Args:
        predictions: Predictions of each model for the validation samples, all of one shape.
        targets: The true values.
        task: Whether classes or numbers are predicted.
        max_steps: Maximum number of picks; a model may be picked again.

    Returns:
        Weights that are not negative and sum to 1. The weighted mean is not worse on these samples than the
        best single model; unless it is better by `MIN_GAIN`, that model has all the weight.
    """
    stacked = np.stack(predictions)
    losses = np.array([loss_of(each, targets, task) for each in stacked])
    best = int(losses.argmin())
    single = np.zeros(len(stacked))
    single[best] = 1.0
    picked = [int(index) for index in np.argsort(losses, kind="stable")[:NUM_STARTING]]
    total = stacked[picked].sum(axis=0)
    found, found_loss = single, float(losses[best])
    while True:
        loss = loss_of(total / len(picked), targets, task)
        if loss < found_loss:
            found = np.bincount(picked, minlength=len(stacked)) / len(picked)
            found_loss = loss
        if len(picked) >= max_steps:
            break
        tried = [loss_of((total + each) / (len(picked) + 1), targets, task) for each in stacked]
        picked.append(int(np.argmin(tried)))
        total = total + stacked[picked[-1]]
    return found if found_loss < (1.0 - MIN_GAIN) * float(losses[best]) else single


def weighted_mean(predictions: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Return the weighted mean of predictions.

    Args:
        predictions: Predictions of each model, all of one shape.
        weights: The weight of each model; they sum to 1.
    """
    return np.tensordot(np.asarray(weights), np.stack(predictions), axes=1)

"""Greedy ensemble selection: combine the models whose mean prediction has the least loss.

Source: Caruana et al., Ensemble Selection from Libraries of Models (2004): with replacement,
starting from the best few; the step with the least loss is kept. Pure functions of numpy arrays:
what predicts is left to others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

MAX_STEPS = 30
NUM_STARTING = 3
# A smaller relative improvement on validation is as likely luck as a gain.
MIN_GAIN = 0.01


def select(
    predictions: Sequence[np.ndarray],
    loss: Callable[[np.ndarray], float],
    *,
    max_steps: int = MAX_STEPS,
    max_members: int | None = None,
    min_gain: float = MIN_GAIN,
) -> np.ndarray:
    """Choose weights of models for their weighted mean.

    Args:
        predictions: Predictions of each model for the same samples, all of one shape.
        loss: The loss of a prediction; less is better, and NaN is the worst.
        max_steps: Maximum number of picks; a model may be picked again.
        max_members: Maximum number of models with a weight, from 1; None for any number.
        min_gain: By which share of its loss the mean must be better than the best model; from 0 to
            1. Other values than 0 need a loss that is not negative.

    Returns:
        Weights that are not negative and sum to 1. The weighted mean is not worse on these samples
        than the best single model; unless it is better by `min_gain`, that model has all the
        weight.
    """

    def loss_of(predicted: np.ndarray) -> float:
        found = loss(predicted)
        return found if found == found else np.inf

    num_models = len(predictions)
    most = num_models if max_members is None else max_members
    losses = np.array([loss_of(each) for each in predictions])
    best = int(losses.argmin())
    single = np.zeros(num_models)
    single[best] = 1.0
    picked = [int(index) for index in np.argsort(losses, kind="stable")[: min(NUM_STARTING, most)]]
    total = np.sum([predictions[index] for index in picked], axis=0)
    found, found_loss = single, float(losses[best])
    while True:
        loss_now = loss_of(total / len(picked))
        if loss_now < found_loss:
            found = np.bincount(picked, minlength=num_models) / len(picked)
            found_loss = loss_now
        if len(picked) >= max_steps:
            break
        allowed = sorted(set(picked)) if len(set(picked)) >= most else range(num_models)
        tried = [loss_of((total + predictions[index]) / (len(picked) + 1)) for index in allowed]
        picked.append(allowed[int(np.argmin(tried))])
        total = total + predictions[picked[-1]]
    return found if found_loss < (1.0 - min_gain) * float(losses[best]) else single


def weighted_mean(predictions: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Return the weighted mean of predictions.

    Args:
        predictions: Predictions of each model, all of one shape.
        weights: The weight of each model; they sum to 1.
    """
    return np.tensordot(np.asarray(weights), np.stack(predictions), axes=1)

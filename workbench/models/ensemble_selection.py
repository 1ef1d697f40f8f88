"""Greedy ensemble selection: averages the predictions of the models that together lose least.

It works on numpy arrays. Making the predictions is left to the callers.

Source: Caruana et al., Ensemble Selection from Libraries of Models (2004). Models are picked with
replacement, starting from the best few. The weights after the best step are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

MAX_STEPS = 30
NUM_STARTING = 3
# A smaller relative improvement on validation is as likely to be luck as a gain.
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
        loss: The loss of a prediction. Less is better, and NaN is the worst.
        max_steps: Maximum number of picks. A model may be picked again.
        max_members: Maximum number of models with a weight, from 1, or None for any number.
        min_gain: The relative improvement over the best model that the mean needs, from 0 to 1. A
            value above 0 needs a loss that is not negative.

    Returns:
        Weights that are not negative and sum to 1. The weighted mean is never worse on these
        samples than the best single model. If it is not better by `min_gain`, that model has all
        the weight.
    """

    def loss_of(predicted: np.ndarray) -> float:
        value = loss(predicted)
        if value != value:
            return np.inf
        return value

    num_models = len(predictions)
    if max_members is None:
        max_members = num_models
    losses = np.array([loss_of(predicted) for predicted in predictions])
    best_model = int(losses.argmin())
    single = np.zeros(num_models)
    single[best_model] = 1.0
    num_starting = min(NUM_STARTING, max_members)
    picked = [int(index) for index in np.argsort(losses, kind="stable")[:num_starting]]
    total = np.sum([predictions[index] for index in picked], axis=0)
    best_weights = single
    best_loss = float(losses[best_model])
    while True:
        loss_now = loss_of(total / len(picked))
        if loss_now < best_loss:
            best_weights = np.bincount(picked, minlength=num_models) / len(picked)
            best_loss = loss_now
        if len(picked) >= max_steps:
            break
        allowed = list(range(num_models))
        if len(set(picked)) >= max_members:
            allowed = sorted(set(picked))
        tried = [loss_of((total + predictions[index]) / (len(picked) + 1)) for index in allowed]
        picked.append(allowed[int(np.argmin(tried))])
        total = total + predictions[picked[-1]]
    if best_loss < (1.0 - min_gain) * float(losses[best_model]):
        return best_weights
    return single


def weighted_mean(predictions: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Return the weighted mean of predictions.

    Args:
        predictions: Predictions of each model, all of one shape.
        weights: The weight of each model. They sum to 1.
    """
    return np.tensordot(np.asarray(weights), np.stack(predictions), axes=1)

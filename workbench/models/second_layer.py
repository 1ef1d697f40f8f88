"""A second layer on the probabilities of other models: a logistic model of their logarithms.

A weighted mean trusts a model equally for all classes. The second layer learns whom to believe
about which class. It is only fitted to probabilities of rows that the models have not learned from.

Source: Wolpert, Stacked Generalization (1992).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

MIN_PROBABILITY = 1e-4
"""A smaller probability counts as this one."""
_NUM_PARTS = 3
_L2S = (1.0, 10.0, 100.0)


@dataclass(frozen=True)
class SecondLayer:
    """What was learned. A feature is the logarithm of the probability of a class by a model.

    Attributes:
        mean: Subtracted from the features, (features,).
        scale: Divides them after that.
        low: The smallest value of each feature after that. Smaller ones count as this one.
        high: The largest value of each feature.
        weights: The weight of each feature in the score of each class, (classes, features).
        bias: Added to the scores, (classes,).
    """

    mean: np.ndarray = field(repr=False)
    scale: np.ndarray = field(repr=False)
    low: np.ndarray = field(repr=False)
    high: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    bias: np.ndarray = field(repr=False)

    def answers(self, predictions: Sequence[np.ndarray]) -> np.ndarray:
        """Return probabilities, (rows, classes).

        Args:
            predictions: The probabilities of each model, in the order in which it was learned.
        """
        features = (_features(predictions) - self.mean) / self.scale
        scores = np.clip(features, self.low, self.high) @ self.weights.T + self.bias
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)


def learn_second_layer(
    predictions: Sequence[np.ndarray],
    targets: np.ndarray,
    *,
    loss: Callable[[np.ndarray], float],
    seed: int,
) -> tuple[SecondLayer, np.ndarray]:
    """Learn a second layer.

    Args:
        predictions: The probabilities of each model for rows that it has not learned from, all of
            the shape (rows, classes).
        targets: The class number of each row. All classes occur.
        loss: The loss of probabilities for these rows, by which the regularisation is chosen.
        seed: Seed of the parts.

    Returns:
        The second layer, and its probabilities for the same rows, each by one that was learned from
        other rows.
    """
    features = _features(predictions)
    num_classes = predictions[0].shape[1]
    part = np.random.default_rng(seed).permutation(len(targets)) % _NUM_PARTS
    tried = []
    for l2 in _L2S:
        unseen = np.empty((len(targets), num_classes))
        for number in range(_NUM_PARTS):
            own, others = part == number, part != number
            layer = _fitted(features[others], targets[others], num_classes, l2)
            unseen[own] = layer.answers([prediction[own] for prediction in predictions])
        tried.append((loss(unseen), l2, unseen))
    _, l2, unseen = min(tried, key=lambda item: item[0])
    return _fitted(features, targets, num_classes, l2), unseen


def _features(predictions: Sequence[np.ndarray]) -> np.ndarray:
    return np.log(np.maximum(np.concatenate(predictions, axis=1), MIN_PROBABILITY))


def _fitted(features: np.ndarray, targets: np.ndarray, num_classes: int, l2: float) -> SecondLayer:
    from workbench.models.linear import fit_linear  # it imports torch

    mean, deviation = features.mean(axis=0), features.std(axis=0)
    scale = np.where(deviation > 0.0, deviation, 1.0)
    model = fit_linear((features - mean) / scale, targets, num_classes=num_classes, l2=l2)
    return SecondLayer(
        mean=mean,
        scale=scale,
        low=model.low.double().numpy(),
        high=model.high.double().numpy(),
        weights=model.sum.weight.detach().double().numpy(),
        bias=model.sum.bias.detach().double().numpy(),
    )

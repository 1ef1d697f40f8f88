"""From probabilities to decisions: calibration, and the factor of each class.

A model that minimises log loss rarely predicts a rare class. Which probability is enough for it
follows from the metric, or from what mistakes cost. Both are learnt on validation samples, and
are used only if they help on validation samples that they were not learnt from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from workbench.foundation.errors import ArgumentError
from workbench.foundation.refusals import closest

BALANCED = "balanced"
MIN_PROBABILITY = 1e-7
_FEWEST_SAMPLES = 50
_NUM_FOLDS = 5
_TEMPERATURES = (0.25, 4.0)
_NUM_HALVINGS = 30
# A smaller change is not worth another step in each prediction.
_LEAST_CHANGE = 0.05
_NUM_THRESHOLDS, _SMOOTHED = 99, 5
_FACTORS = np.exp(np.linspace(math.log(0.1), math.log(10.0), 15))
_NUM_PASSES, _MAX_CLASSES = 2, 20

Score = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Decisions:
    """How probabilities of a model are corrected, and which class follows from them.

    Attributes:
        temperature: Probabilities are raised to the power of its inverse. Above 1 they become less
            sure.
        factors: The class with the largest probability times its factor is predicted. Empty if
            all are 1.
    """

    temperature: float = 1.0
    factors: tuple[float, ...] = ()

    def calibrated(self, predicted: np.ndarray) -> np.ndarray:
        """Return corrected probabilities.

        Args:
            predicted: (samples, classes) probabilities, or other predictions, which do not change.
        """
        if self.temperature == 1.0:
            return predicted
        powers = np.maximum(predicted, MIN_PROBABILITY) ** (1.0 / self.temperature)
        return powers / powers.sum(axis=1, keepdims=True)

    def weighed(self, predicted: np.ndarray) -> np.ndarray:
        """Return probabilities times the factors, the largest of which is the decision.

        Args:
            predicted: (samples, classes) probabilities, or other predictions, which do not change.
        """
        if not self.factors:
            return predicted
        return predicted * np.array(self.factors)

    def describe(self, labels: tuple[object, ...]) -> str | None:
        """Return which probability is enough for a class, in words, or None if none differs."""
        if not self.factors:
            return None
        if len(self.factors) == 2:
            threshold = self.factors[0] / (self.factors[0] + self.factors[1])
            return f"{labels[1]} is predicted from a probability of {threshold:.3g} on"
        pairs = zip(labels, self.factors, strict=True)
        named = ", ".join(f"{label} x {factor:.3g}" for label, factor in pairs)
        return f"the class with the largest probability times its factor is predicted: {named}"


def learn_decisions(
    predicted: np.ndarray,
    targets: np.ndarray,
    *,
    score: Score | None,
    class_factors: tuple[float, ...] = (),
    seed: int = 0,
) -> Decisions:
    """Learn the temperature and the factors from validation samples.

    Args:
        predicted: (samples, classes) probabilities, by models that did not learn from the samples.
        targets: The class of each sample.
        score: What the factors maximise, or None if the most probable class is predicted.
        class_factors: The factors that the user gave, or empty.
        seed: Seed of the folds that tell whether both help.

    Source: temperature scaling of Guo et al. (2017).
    """
    decisions = Decisions(factors=class_factors)
    if len(targets) < _FEWEST_SAMPLES or predicted.shape[1] > _MAX_CLASSES:
        return decisions
    folds = np.random.default_rng(seed).permutation(len(targets)) % _NUM_FOLDS
    decisions = Decisions(_temperature(predicted, targets, folds), class_factors)
    if score is None or class_factors:
        return decisions
    factors = _helpful_factors(decisions.calibrated(predicted), targets, score, folds)
    return Decisions(decisions.temperature, factors)


def factors_of(
    class_weights: str | Mapping[str, float] | None, labels: tuple[object, ...], shares: np.ndarray
) -> tuple[float, ...]:
    """Return the factor of each class that the user asked for, or ().

    Args:
        class_weights: "balanced", the weight of each class that does not have weight 1, or None.
        labels: The classes.
        shares: The share of each class in the samples to learn from.

    Raises:
        ArgumentError: If there is no such class, or a weight is not above 0.
    """
    if class_weights is None:
        return ()
    if class_weights == BALANCED:
        factors = 1.0 / np.maximum(shares, 1e-12)
        return tuple(float(factor) for factor in factors / factors.min())
    if isinstance(class_weights, str):
        raise ArgumentError(
            f"{class_weights!r} is no weight of a class",
            field="class_weights",
            allowed="balanced, or a weight for each class such as yes=5",
        )
    names = [str(label) for label in labels]
    given = {str(name): float(weight) for name, weight in class_weights.items()}
    for name, weight in given.items():
        if name not in names:
            allowed, meant = closest(name, names)
            raise ArgumentError(
                f"{name!r} is not a class", field="class_weights", allowed=allowed, next_step=meant
            )
        if not 0 < weight < math.inf:
            raise ArgumentError(
                f"the weight of {name!r} is {weight:g}",
                field="class_weights",
                allowed="a number above 0",
            )
    return tuple(given.get(name, 1.0) for name in names)


def _temperature(predicted: np.ndarray, targets: np.ndarray, folds: np.ndarray) -> float:
    """Return the temperature with the least log loss, or 1 if it does not help elsewhere."""
    temperature = _best_temperature(predicted, targets)
    if abs(math.log(temperature)) < _LEAST_CHANGE:
        return 1.0
    gains = np.empty(len(targets))
    for fold in range(_NUM_FOLDS):
        held_out = folds == fold
        learnt = _best_temperature(predicted[~held_out], targets[~held_out])
        before, after = (
            _log_losses(Decisions(value).calibrated(predicted[held_out]), targets[held_out])
            for value in (1.0, learnt)
        )
        gains[held_out] = before - after
    is_helpful = gains.mean() > gains.std() / len(gains) ** 0.5
    return temperature if is_helpful else 1.0


def _log_losses(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return -np.log(np.maximum(predicted[np.arange(len(targets)), targets], MIN_PROBABILITY))


def _best_temperature(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Return the temperature with the least log loss, which has one minimum, by golden section."""
    golden = (5**0.5 - 1) / 2
    low, high = (math.log(bound) for bound in _TEMPERATURES)

    def loss(log_temperature: float) -> float:
        decisions = Decisions(math.exp(log_temperature))
        return float(_log_losses(decisions.calibrated(predicted), targets).mean())

    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(_NUM_HALVINGS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = loss(right)
    return math.exp((low + high) / 2)


def _helpful_factors(
    predicted: np.ndarray, targets: np.ndarray, score: Score, folds: np.ndarray
) -> tuple[float, ...]:
    """Return the best factors, or () if they do not help on samples they were not learnt from."""
    decided = np.empty_like(predicted)
    for fold in range(_NUM_FOLDS):
        held_out = folds == fold
        factors = _best_factors(predicted[~held_out], targets[~held_out], score)
        decided[held_out] = predicted[held_out] * factors
    if not score(decided, targets) > score(predicted, targets):
        return ()
    return tuple(float(factor) for factor in _best_factors(predicted, targets, score))


def _best_factors(predicted: np.ndarray, targets: np.ndarray, score: Score) -> np.ndarray:
    if predicted.shape[1] == 2:
        return _best_threshold(predicted, targets, score)
    factors = np.ones(predicted.shape[1])
    best = score(predicted, targets)
    for _ in range(_NUM_PASSES):
        for number in range(len(factors)):
            for factor in _FACTORS:
                tried = factors.copy()
                tried[number] = factor
                value = score(predicted * tried, targets)
                if value > best + 1e-12:
                    best, factors = value, tried
    return factors / factors.min()


def _best_threshold(predicted: np.ndarray, targets: np.ndarray, score: Score) -> np.ndarray:
    """Return the factors of the best threshold of two classes.

    Scores of neighbouring thresholds are averaged, because a single one may be the best by chance.
    """
    shares = np.linspace(0.0, 1.0, _NUM_THRESHOLDS + 2)[1:-1]
    thresholds = np.unique(np.append(np.quantile(predicted[:, 1], shares), 0.5))
    thresholds = thresholds[(thresholds > MIN_PROBABILITY) & (thresholds < 1 - MIN_PROBABILITY)]
    if not len(thresholds):
        return np.ones(2)
    factors = np.stack([thresholds, 1.0 - thresholds], axis=1)
    scores = np.array([score(predicted * pair, targets) for pair in factors])
    half = _SMOOTHED // 2
    smooth = [scores[max(0, at - half) : at + half + 1].mean() for at in range(len(scores))]
    threshold = float(thresholds[int(np.argmax(smooth))])
    return np.array([1.0, (1.0 - threshold) / threshold])

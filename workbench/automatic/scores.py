"""Scores of predictions, the simplest guess, and what is compared: numpy only, a pure function each."""

from __future__ import annotations

import numpy as np

from workbench.automatic.targets import Asked

# Below, the logarithm of a probability would make one sample count for all.
_LEAST_PROBABILITY = 1e-7


def loss_of(predicted: np.ndarray, targets: np.ndarray, asked: Asked) -> float:
    """Return what choices go by: mean negative log-likelihood in nats, or mean squared error.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        asked: Which of the two.
    """
    if asked == "regression":
        return float(np.mean((predicted[:, 0] - targets) ** 2))
    of_target = predicted[np.arange(len(targets)), targets]
    return float(-np.mean(np.log(np.maximum(of_target, _LEAST_PROBABILITY))))


def scores_of(predicted: np.ndarray, targets: np.ndarray, asked: Asked) -> dict[str, float]:
    """Return what people are told, the first being the one that counts; more is better but for errors.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        asked: Which of the two.
    """
    if asked == "regression":
        squared_error = float(np.mean((predicted[:, 0] - targets) ** 2))
        spread = float(np.var(targets))
        r2 = 1.0 - squared_error / spread if spread > 0 else float("nan")
        absolute = float(np.mean(np.abs(predicted[:, 0] - targets)))
        return {"r2": r2, "rmse": squared_error**0.5, "mae": absolute}
    is_right = predicted.argmax(axis=1) == targets
    recalls = [float(is_right[targets == number].mean()) for number in np.unique(targets)]
    return {
        "accuracy": float(is_right.mean()),
        "balanced_accuracy": float(np.mean(recalls)),
        "log_loss": loss_of(predicted, targets, asked),
    }


def simplest_guess(train_targets: np.ndarray, num_classes: int | None) -> np.ndarray:
    """Return what somebody would say who knows the train targets only: shares of classes, or their mean.

    Args:
        train_targets: Class numbers, or numbers.
        num_classes: Number of classes; None for a regression.

    Returns:
        One prediction: (classes,) probabilities, the most frequent class first in them, or (1,) number.
    """
    if num_classes is None:
        return np.array([train_targets.mean()])
    return np.bincount(train_targets, minlength=num_classes) / len(train_targets)

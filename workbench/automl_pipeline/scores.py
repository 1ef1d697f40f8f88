"""Loss and scores of predictions, and the simplest guess: pure functions of numpy arrays."""

from __future__ import annotations

import numpy as np

from workbench.automl_pipeline.targets import Task

# Smaller probabilities are raised to this, or their logarithm would let one sample outweigh all others.
_MIN_PROBABILITY = 1e-7


def loss_of(predicted: np.ndarray, targets: np.ndarray, task: Task) -> float:
    """Return the loss by which models are chosen: mean negative log-likelihood in nats, or squared error.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        task: Whether classes or numbers are predicted.
    """
    if task == "regression":
        return float(np.mean((predicted[:, 0] - targets) ** 2))
    of_target = predicted[np.arange(len(targets)), targets]
    return float(-np.mean(np.log(np.maximum(of_target, _MIN_PROBABILITY))))


def scores_of(predicted: np.ndarray, targets: np.ndarray, task: Task) -> dict[str, float]:
    """Return the scores to show, the most important one first; more is better except for errors.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        task: Whether classes or numbers are predicted.
    """
    if task == "regression":
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
        "log_loss": loss_of(predicted, targets, task),
    }


def simplest_guess(train_targets: np.ndarray, num_classes: int | None) -> np.ndarray:
    """Return the prediction of a model that knows only the train targets: class frequencies, or the mean.

    Args:
        train_targets: Class numbers, or numbers.
        num_classes: Number of classes; None for a regression.

    Returns:
        One prediction: (classes,) probabilities, or (1,) number.
    """
    if num_classes is None:
        return np.array([train_targets.mean()])
    return np.bincount(train_targets, minlength=num_classes) / len(train_targets)

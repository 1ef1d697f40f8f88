"""What AutoML can optimise, the scores of predictions, and the simplest guess.

Pure functions of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.data.row_splits import RowBlocks
from workbench.experiment.goals import Goal, sign_of
from workbench.experiment.metric_declarations import goal_of
from workbench.foundation.errors import ArgumentError
from workbench.foundation.refusals import closest
from workbench.models.class_scores import ClassScore, f1, macro_roc_auc, mean_score, recall
from workbench.runs.automl.score_intervals import Scale, Score, interval_of, parts_of
from workbench.runs.automl.targets import Task

_MIN_PROBABILITY = 1e-7


def _log_loss(predicted: np.ndarray, targets: np.ndarray) -> float:
    of_target = predicted[np.arange(len(targets)), targets]
    return float(-np.mean(np.log(np.maximum(of_target, _MIN_PROBABILITY))))


def _accuracy(predicted: np.ndarray, targets: np.ndarray) -> float:
    return float((predicted.argmax(axis=1) == targets).mean())


def _of_classes(score: ClassScore) -> Score:
    def measure(predicted: np.ndarray, targets: np.ndarray) -> float:
        chosen = predicted.argmax(axis=1)
        counted = (targets[chosen == targets], chosen, targets)
        counts = [np.bincount(classes, minlength=predicted.shape[1]) for classes in counted]
        return mean_score(score, np.stack(counts))

    return measure


def _squared_error(predicted: np.ndarray, targets: np.ndarray) -> float:
    return float(np.mean((predicted[:, 0] - targets) ** 2))


def _rmse(predicted: np.ndarray, targets: np.ndarray) -> float:
    return _squared_error(predicted, targets) ** 0.5


def _mae(predicted: np.ndarray, targets: np.ndarray) -> float:
    return float(np.mean(np.abs(predicted[:, 0] - targets)))


def _r2(predicted: np.ndarray, targets: np.ndarray) -> float:
    spread = float(np.var(targets))
    if spread <= 0:
        return float("nan")
    return 1.0 - _squared_error(predicted, targets) / spread


@dataclass(frozen=True)
class Measure:
    """What a run can optimise.

    Attributes:
        score: Measures predictions.
        goal: In which direction it is better.
        objective: The metric that trials report of it, to compare them.
        scale: How it is distributed, as `interval_of` reads it.
    """

    score: Score
    goal: Goal
    objective: str
    scale: Scale

    @property
    def objective_goal(self) -> Goal:
        """In which direction what trials report is better."""
        goal = goal_of(self.objective)
        assert goal is not None
        return goal

    def loss(self, predicted: np.ndarray, targets: np.ndarray) -> float:
        """Return the score as a loss.

        Less is better, and none is below 0 where the best score is 1.
        """
        value = self.score(predicted, targets)
        if self.goal == "maximize":
            return 1.0 - value
        return value


METRICS: dict[Task, dict[str, Measure]] = {
    "classification": {
        "log_loss": Measure(_log_loss, "minimize", "val_loss", "error"),
        "accuracy": Measure(_accuracy, "maximize", "val_accuracy", "share"),
        "balanced_accuracy": Measure(
            _of_classes(recall), "maximize", "val_balanced_accuracy", "share"
        ),
        "macro_f1": Measure(_of_classes(f1), "maximize", "val_macro_f1", "share"),
        "roc_auc": Measure(macro_roc_auc, "maximize", "val_roc_auc", "share"),
    },
    "regression": {
        "rmse": Measure(_rmse, "minimize", "val_root_mean_squared_error", "error"),
        "mae": Measure(_mae, "minimize", "val_mean_absolute_error", "error"),
        # It orders the models of one fold as their squared error does.
        "r2": Measure(_r2, "maximize", "val_loss", "explained"),
    },
}
_SHOWN: dict[Task, tuple[str, ...]] = {
    "classification": ("accuracy", "balanced_accuracy", "log_loss"),
    "regression": ("r2", "rmse", "mae"),
}


def check_metric(name: str | None, task: Task) -> None:
    """Refuse a metric that cannot be optimised for a task.

    Args:
        name: The metric, or None for the default.
        task: Whether classes or numbers are predicted.

    Raises:
        ArgumentError: If it cannot, with the metrics that can.
    """
    known = list(METRICS[task])
    if name is not None and name not in known:
        allowed, meant = closest(name, known)
        raise ArgumentError(
            f"{name!r} cannot be optimised in a {task}",
            field="metric",
            allowed=allowed,
            next_step=meant,
        )


def loss_of(
    predicted: np.ndarray, targets: np.ndarray, task: Task, metric: str | None = None
) -> float:
    """Return the loss by which models are chosen.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        task: Whether classes or numbers are predicted.
        metric: The optimised metric, or None for the mean negative log-likelihood in nats, or the
            squared error.
    """
    if metric is not None:
        return METRICS[task][metric].loss(predicted, targets)
    if task == "regression":
        return _squared_error(predicted, targets)
    return _log_loss(predicted, targets)


def scores_of(
    predicted: np.ndarray, targets: np.ndarray, task: Task, metric: str | None = None
) -> dict[str, float]:
    """Return the scores to show, the most important one first.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        task: Whether classes or numbers are predicted.
        metric: The optimised metric, which comes first, or None for the default.
    """
    return {
        name: METRICS[task][name].score(predicted, targets) for name in _shown_names(task, metric)
    }


def score_intervals(
    predicted: np.ndarray,
    targets: np.ndarray,
    task: Task,
    metric: str | None = None,
    *,
    blocks: RowBlocks,
) -> dict[str, tuple[float, float]]:
    """Return the 90 % interval of each score that `scores_of` returns, if the samples allow it.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        task: Whether classes or numbers are predicted.
        metric: The optimised metric, or None for the default.
        blocks: Which samples belong together, and their times.
    """
    parts = parts_of(len(targets), blocks)
    intervals = {}
    for name in _shown_names(task, metric):
        measure = METRICS[task][name]
        found = interval_of(measure.score, predicted, targets, scale=measure.scale, parts=parts)
        if found is not None:
            intervals[name] = found
    return intervals


def _shown_names(task: Task, metric: str | None) -> tuple[str, ...]:
    first = () if metric is None else (metric,)
    return (*first, *(name for name in _SHOWN[task] if name not in first))


def is_better(name: str, task: Task, value: float, other: float) -> bool:
    """Return whether a value of a metric is better than another one."""
    return sign_of(METRICS[task][name].goal) * (value - other) > 0


def simplest_guess(train_targets: np.ndarray, num_classes: int | None) -> np.ndarray:
    """Return the prediction of a model that knows only the train targets.

    Class frequencies, or the mean.

    Args:
        train_targets: Class numbers, or numbers.
        num_classes: Number of classes, or None for a regression.

    Returns:
        One prediction: (classes,) probabilities, or (1,) number.
    """
    if num_classes is None:
        return np.array([train_targets.mean()])
    return np.bincount(train_targets, minlength=num_classes) / len(train_targets)

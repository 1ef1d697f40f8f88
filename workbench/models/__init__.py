"""The model zoo, the door for other people's models, and the losses and metrics that go with them.

A model is built from a typed configuration (`configurations.py`, which needs no torch) or by a function
of the user's own. Losses and metrics are small functions of (outputs, targets), by name or reference.
Optimisers, the training loop and devices are left to training; data to the data room.
"""

from __future__ import annotations

from typing import Literal

from workbench.registry import Registry

Task = Literal["classification", "regression", "language_model", "detection", "other"]

MODELS = Registry(
    "model",
    {
        "mlp": "workbench.models.configurations:MLPConfiguration",
        "convnet": "workbench.models.configurations:ConvNetConfiguration",
        "resnet": "workbench.models.configurations:ResNetConfiguration",
        "lstm": "workbench.models.token_configurations:LSTMConfiguration",
        "transformer": "workbench.models.token_configurations:TransformerConfiguration",
        "boosted_trees": "workbench.models.tree_configurations:BoostedTreesConfiguration",
        "forest": "workbench.models.tree_configurations:ForestConfiguration",
        "forecaster": "workbench.models.application_configurations:ForecasterConfiguration",
        "text_encoder": "workbench.models.token_configurations:TextEncoderConfiguration",
        "unet": "workbench.models.application_configurations:UNetConfiguration",
        "detector": "workbench.models.application_configurations:DetectorConfiguration",
        "one_of": "workbench.models.one_of:OneOfConfiguration",
    },
    group="workbench.models",
)

LOSSES = Registry(
    "loss",
    {
        "cross_entropy": "workbench.models.losses:cross_entropy",
        "mean_squared_error": "workbench.models.losses:mean_squared_error",
        "mean_absolute_error": "workbench.models.losses:mean_absolute_error",
        "huber": "workbench.models.losses:huber",
        "detection": "workbench.models.detector:detection_loss",
        "model": "workbench.models.losses:of_model",
    },
    group="workbench.losses",
)

METRICS = Registry(
    "metric",
    {
        "accuracy": "workbench.models.metrics:ACCURACY",
        "top5_accuracy": "workbench.models.metrics:TOP5_ACCURACY",
        "mean_squared_error": "workbench.models.metrics:MEAN_SQUARED_ERROR",
        "root_mean_squared_error": "workbench.models.metrics:ROOT_MEAN_SQUARED_ERROR",
        "mean_absolute_error": "workbench.models.metrics:MEAN_ABSOLUTE_ERROR",
        "perplexity": "workbench.models.metrics:PERPLEXITY",
        "macro_f1": "workbench.models.metrics:MACRO_F1",
        "balanced_accuracy": "workbench.models.metrics:BALANCED_ACCURACY",
        "roc_auc": "workbench.models.metrics:ROC_AUC",
        "mean_iou": "workbench.models.metrics:MEAN_IOU",
        "mean_average_precision": "workbench.models.detector:MEAN_AVERAGE_PRECISION",
    },
    group="workbench.metrics",
)

_CLASSES: tuple[Task, ...] = ("classification", "language_model")
_TASKS: dict[str, tuple[Task, ...]] = {
    "accuracy": _CLASSES,
    "top5_accuracy": _CLASSES,
    "perplexity": _CLASSES,
    "macro_f1": _CLASSES,
    "balanced_accuracy": _CLASSES,
    "roc_auc": ("classification",),
    "mean_iou": _CLASSES,
    "cross_entropy": _CLASSES,
    "mean_squared_error": ("regression",),
    "root_mean_squared_error": ("regression",),
    "mean_absolute_error": ("regression",),
    "huber": ("regression",),
    "detection": ("detection",),
    "mean_average_precision": ("detection",),
}
_MAXIMIZED = (
    "accuracy", "top5_accuracy", "macro_f1", "balanced_accuracy", "roc_auc", "mean_iou",
    "mean_average_precision",
)  # fmt: skip
_DEFAULT_LOSSES: dict[Task, str] = {
    "classification": "cross_entropy",
    "regression": "mean_squared_error",
    "language_model": "cross_entropy",
    "detection": "detection",
    "other": "model",
}
_DEFAULT_METRICS: dict[Task, tuple[str, ...]] = {
    "classification": ("accuracy",),
    "regression": ("mean_absolute_error", "root_mean_squared_error"),
    "language_model": ("accuracy", "perplexity"),
    "detection": ("mean_average_precision",),
    "other": (),
}


def fits_task(name: str, task: Task) -> bool:
    """Return whether a named loss or metric can be computed for a task; unknown ones always can."""
    return task in _TASKS.get(name, (task,))


def goal_of(metric: str) -> Literal["maximize", "minimize"] | None:
    """Return in which direction a named metric or loss is better; None for those of other packages."""
    return None if metric not in _TASKS else "maximize" if metric in _MAXIMIZED else "minimize"


def default_loss(task: Task) -> str:
    """Return the name of the loss that is minimised where none is named."""
    return _DEFAULT_LOSSES[task]


def default_metrics(task: Task) -> tuple[str, ...]:
    """Return the names of the metrics that are measured where none is named."""
    return _DEFAULT_METRICS[task]

"""The model zoo, the door for other people's models, and the losses and metrics that go with them.

A model is built from a typed configuration (`configurations.py`, which needs no torch) or by a
function of the user's own. Losses and metrics are small functions of (outputs, targets), by name or
reference. Optimisers, the training loop and devices are left to training; data to the data room.
"""

from __future__ import annotations

from workbench.experiment import metric_declarations as declarations
from workbench.experiment.metric_declarations import Task
from workbench.foundation.registry import Registry

__all__ = ["LOSSES", "METRICS", "MODELS", "Task", "default_loss", "default_metrics", "fits_task"]

MODELS = Registry(
    "model",
    {
        "mlp": "workbench.models.zoo:MLPConfiguration",
        "convnet": "workbench.models.zoo:ConvNetConfiguration",
        "resnet": "workbench.models.zoo:ResNetConfiguration",
        "lstm": "workbench.models.zoo:LSTMConfiguration",
        "transformer": "workbench.models.zoo:TransformerConfiguration",
        "boosted_trees": "workbench.models.zoo:BoostedTreesConfiguration",
        "forest": "workbench.models.zoo:ForestConfiguration",
        "forecaster": "workbench.models.zoo:ForecasterConfiguration",
        "text_encoder": "workbench.models.zoo:TextEncoderConfiguration",
        "unet": "workbench.models.zoo:UNetConfiguration",
        "detector": "workbench.models.zoo:DetectorConfiguration",
        "one_of": "workbench.models.one_of:OneOfConfiguration",
    },
    group="workbench.models",
)

LOSSES = Registry(
    "loss",
    {item.name: item.reference for item in declarations.LOSSES if item.reference},
    group="workbench.losses",
)

METRICS = Registry(
    "metric",
    {item.name: item.reference for item in declarations.METRICS if item.reference},
    group="workbench.metrics",
)

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
    declaration = declarations.declaration_of(name)
    return declaration is None or not declaration.tasks or task in declaration.tasks


def default_loss(task: Task) -> str:
    """Return the name of the loss that is minimised where none is named."""
    return _DEFAULT_LOSSES[task]


def default_metrics(task: Task) -> tuple[str, ...]:
    """Return the names of the metrics that are measured where none is named."""
    return _DEFAULT_METRICS[task]

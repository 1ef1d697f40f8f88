"""The model zoo, and how a name or your own code becomes a model, a loss or a metric.

A model is built from a typed configuration (`zoo.py`, which needs no torch) or by your own
function. Losses and metrics are small functions of (outputs, targets), found by name or by
reference. Their directions, units and tasks are declared in
`workbench.experiment.metric_declarations`. Optimizers, the training loop and devices are left to
`workbench.training`, and data to `workbench.data`.
"""

from __future__ import annotations

from typing import Literal

from workbench.experiment import metric_declarations
from workbench.foundation.registry import Registry

__all__ = ["LOSSES", "METRICS", "MODELS", "Aggregate"]

Aggregate = Literal["mean", "max", "concatenation"]
"""How the features of several views become one."""

MODELS = Registry(
    "model",
    {
        "mlp": "workbench.models.zoo:MLPConfiguration",
        "convnet": "workbench.models.zoo:ConvNetConfiguration",
        "resnet": "workbench.models.zoo:ResNetConfiguration",
        "lstm": "workbench.models.zoo:LSTMConfiguration",
        "transformer": "workbench.models.zoo:TransformerConfiguration",
        "linear": "workbench.models.zoo:LinearConfiguration",
        "neighbours": "workbench.models.zoo:NeighboursConfiguration",
        "boosted_trees": "workbench.models.zoo:BoostedTreesConfiguration",
        "tabular_mlp": "workbench.models.zoo:TabularMLPConfiguration",
        "forest": "workbench.models.zoo:ForestConfiguration",
        "extra_trees": "workbench.models.zoo:ExtraTreesConfiguration",
        "lightgbm": "workbench.models.zoo:LightGBMConfiguration",
        "xgboost": "workbench.models.zoo:XGBoostConfiguration",
        "catboost": "workbench.models.zoo:CatBoostConfiguration",
        "foundation": "workbench.models.zoo:FoundationConfiguration",
        "forecaster": "workbench.models.zoo:ForecasterConfiguration",
        "text_encoder": "workbench.models.zoo:TextEncoderConfiguration",
        "unet": "workbench.models.zoo:UNetConfiguration",
        "detector": "workbench.models.zoo:DetectorConfiguration",
        "hf": "workbench.models.zoo:FolderConfiguration",
        "one_of": "workbench.models.zoo:OneOfConfiguration",
    },
    group="workbench.models",
)

_DECLARED = metric_declarations.METRICS

LOSSES = Registry(
    "loss",
    {metric.name: f"workbench.models.{metric.loss}" for metric in _DECLARED if metric.loss},
    group="workbench.losses",
)

METRICS = Registry(
    "metric",
    {metric.name: f"workbench.models.{metric.measure}" for metric in _DECLARED if metric.measure},
    group="workbench.metrics",
)

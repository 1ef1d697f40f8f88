"""The model zoo, and how a name or your own code becomes a model, a loss or a metric.

The directions, units and tasks of metrics are declared in
`workbench.experiment.metric_declarations`. Optimizers, the training loop and devices are left to
`workbench.training`, and data to `workbench.data`.

- From a name to a model: `zoo`, `configurations`, `adapters`, `pretrained`.
- Networks: `mlp`, `tabular_mlp`, `convolutional`, `detector`, `lstm`, `transformer`.
- Trees: `trees`, `library_trees`, `lightgbm_trees`, `xgboost_trees`, `catboost_trees`.
- Other models that are fitted: `estimators`, `fitted_estimator`, `staged_fitting`, `linear`,
  `nearest_neighbours`, `foundation_models`.
- How data is best encoded: `quick_trees`, `trends`.
- Combining models: `ensemble_selection`, `second_layer`, `distillation`.
- Language models: `folder_models`, `low_rank`.
- Early exits: `exits`.
- Losses and metrics: `losses`, `metrics`, `class_scores`, `detected_boxes`.
- Outputs and targets: `pairing`, `batch_parts`, `model_calls`.
- Your own code: `own_functions`, `own_steps`.
- The structure of a model: `layers`, `block_sequence`.
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

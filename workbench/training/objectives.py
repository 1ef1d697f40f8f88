"""Objectives and constraints compared with what a training measures.

What that is, is left to `assembly`.
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench.experiment import Experiment
from workbench.experiment.federated import client_metrics
from workbench.experiment.goals import MODEL_COSTS
from workbench.experiment.private import EPSILON_METRIC, is_private
from workbench.foundation.errors import ExperimentError
from workbench.models.metrics import AnyMetric, Metric


def check_objectives(experiment: Experiment, metrics: Mapping[str, AnyMetric]) -> None:
    """Refuse objectives and constraints that name nothing that is measured.

    Args:
        experiment: The experiment; it trains a model.
        metrics: What is measured on validation, by name.

    Raises:
        ExperimentError: If one does.
    """
    known = ["train_loss", *(f"val_{name}" for name in metrics)]
    if is_private(experiment):
        known.append(EPSILON_METRIC)
    if experiment.federated is None:
        known += MODEL_COSTS
    if experiment.federated is not None:
        known += client_metrics(
            name for name, metric in metrics.items() if isinstance(metric, Metric)
        )
        target = experiment.federated.target
        if target is not None and target.metric not in known:
            raise ExperimentError(
                f"{target.metric!r} is not measured", field="federated.target.metric", allowed=known
            )
    for section, items in (
        ("objectives", experiment.objectives),
        ("constraints", experiment.constraints),
    ):
        for index, item in enumerate(items):
            if item.metric not in known:
                raise ExperimentError(
                    f"{item.metric!r} is not measured",
                    field=f"{section}.{index}.metric",
                    allowed=known,
                    next_step="Choose one of these, or add the metric to `metrics`.",
                )

"""The loss and the metrics of an experiment, for its data and model."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from workbench.data import Datasets
from workbench.data.targets import known_targets
from workbench.experiment import Component, Experiment
from workbench.experiment.federated import client_metrics
from workbench.experiment.goals import MODEL_COSTS, RESOURCES
from workbench.experiment.metric_declarations import is_rate_in, measured_by_tasks
from workbench.experiment.training_section import EPSILON_METRIC
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import ExperimentError
from workbench.hardware.performance.flops import count_flops
from workbench.models.adapters import load_loss, load_metrics
from workbench.models.batch_parts import DividedLoss, Division
from workbench.models.exits import joint
from workbench.models.losses import (
    contrastive,
    cross_entropy,
    cross_entropy_in_parts,
    of_model,
)
from workbench.models.metrics import AnyMetric, BatchMetric, kind_read_by
from workbench.models.model_calls import call_model, loss_in
from workbench.models.own_functions import single_scores_of
from workbench.models.own_steps import OwnSteps, call_with_batch, metrics_by_name, total_loss
from workbench.models.pairing import IGNORED, Kind, Pairing, SingleScores, declared_class_dim
from workbench.training.tensor_source import Source, few_inputs

_NUM_LEARNED_FROM = 16


def pairing_of(experiment: Experiment, datasets: Datasets) -> Pairing:
    """Return how outputs meet targets, as far as it is known before the model runs.

    Args:
        experiment: The experiment.
        datasets: Its data.
    """
    component = experiment.trained
    assert component is not None
    has_classes = datasets.task in ("classification", "language_model")

    def declared() -> int | None:
        if not component.is_reference:
            return -1
        return declared_class_dim(component.load(field="model"))

    return Pairing(
        task=datasets.task,
        num_outputs=datasets.num_outputs if has_classes else None,
        target_shape=datasets.target_shape,
        model=component.title,
        data=datasets.name,
        single_scores=_single_scores_of(experiment),
        declared=declared,
    )


def learned_pairing(experiment: Experiment, datasets: Datasets, model: nn.Module) -> Pairing:
    """Return how outputs meet targets, found out from a trained model and some samples.

    Args:
        experiment: The experiment.
        datasets: Its data. Without classes, nothing is computed.
        model: The model, on the CPU and in evaluation mode.

    Raises:
        DataError: If a sample has several classes, so that no single class is the answer.
    """
    pairing = pairing_of(experiment, datasets)
    if (
        datasets.task != "classification"
        or experiment.leaves_loss_to_model
        or experiment.makes_own_steps
    ):
        return pairing
    source = Source(datasets.train, torch.device("cpu"))
    inputs, targets = source.fetch(source.all_indices[:_NUM_LEARNED_FROM])
    with (
        torch.inference_mode(),
        contextlib.suppress(ExperimentError),
    ):  # your own loss may need other forms
        pairing.classes(call_model(model, inputs), targets)
    return pairing


def loss_of(
    experiment: Experiment, datasets: Datasets, pairing: Pairing | None = None
) -> DividedLoss:
    """Return the loss: from the experiment, from the model, or the default of the task.

    Args:
        experiment: The experiment.
        datasets: Its data.
        pairing: How outputs meet targets, or None to derive it from experiment and data.
    """
    pairing = pairing or pairing_of(experiment, datasets)
    usual = load_loss(_function(experiment.loss, "loss"), datasets.task)
    is_counted = usual is cross_entropy and leaves_out_targets(datasets)
    loss = cross_entropy_in_parts if is_counted else usual
    named = joint(load_loss(loss, datasets.task, pairing=pairing))
    division: Division = "counts" if is_counted else "samples"
    joins_replicas = usual is contrastive
    if experiment.loss is not None:
        return DividedLoss(
            named, division, takes_returned=usual is of_model, joins_replicas=joins_replicas
        )

    def returned_or_usual(outputs: Any, targets: Any) -> Any:
        returned = loss_in(outputs)
        if returned is None:
            pairing.returns_outputs = True
        # If a model squeezes its outputs, it returns a single number for a single sample. That
        # looks like a loss, but is not.
        is_output = pairing.returns_outputs and isinstance(outputs, torch.Tensor)
        if returned is None or is_output:
            return named(outputs, targets)
        return returned

    return DividedLoss(
        returned_or_usual, division, takes_returned=True, joins_replicas=joins_replicas
    )


def loss_kind_of(experiment: Experiment, datasets: Datasets) -> Kind | None:
    """Return how the loss of an experiment understands outputs and targets.

    Args:
        experiment: The experiment.
        datasets: Its data.
    """
    if experiment.makes_own_steps:
        return None
    return kind_read_by(load_loss(_function(experiment.loss, "loss"), datasets.task))


def metrics_of(
    experiment: Experiment,
    datasets: Datasets,
    model: nn.Module | None = None,
    *,
    pairing: Pairing | None = None,
) -> dict[str, AnyMetric]:
    """Return the metrics of the validation data by name. The loss is always included.

    Args:
        experiment: The experiment, with its own metrics or the defaults of the task.
        datasets: The data.
        model: The model. If it has your own training steps, it evaluates two samples to show which
            metrics there are.
        pairing: How outputs meet targets, or None to derive it from experiment and data.

    Raises:
        ExperimentError: If an objective or a constraint is not a measured metric.
    """
    metrics = _metrics_of(experiment, datasets, model, pairing or pairing_of(experiment, datasets))
    check_objectives(experiment, metrics)
    return metrics


def check_objectives(experiment: Experiment, metrics: Mapping[str, AnyMetric]) -> None:
    """Check that objectives and constraints are measured metrics.

    Args:
        experiment: The experiment. It must train a model.
        metrics: The metrics of the validation data, by name.

    Raises:
        ExperimentError: If one is not measured.
    """
    known = ["train_loss", *(f"val_{name}" for name in metrics), *RESOURCES]
    if is_private(experiment):
        known.append(EPSILON_METRIC)
    if experiment.federated is None:
        known += MODEL_COSTS
    if experiment.federated is not None:
        known += client_metrics(
            name for name, metric in metrics.items() if isinstance(metric, BatchMetric)
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
            if item.metric not in known and not measured_by_tasks(experiment, item.metric):
                raise ExperimentError(
                    f"{item.metric!r} is not measured",
                    field=f"{section}.{index}.metric",
                    allowed=known,
                    next_step="Choose one of these, or add the metric to `metrics`.",
                )


def rates_of(experiment: Experiment, datasets: Datasets, metrics: Iterable[str]) -> list[str]:
    """Return the reported names of metrics that are a share of the validation samples.

    Args:
        experiment: The experiment.
        datasets: Its data. There are no such metrics if a sample has several targets, such as
            pixels, which depend on each other, or if some targets are ignored.
        metrics: The metrics of the validation data.
    """
    if datasets.task != "classification" or datasets.target_shape or leaves_out_targets(datasets):
        return []
    return [
        name for name in (f"val_{metric}" for metric in metrics) if is_rate_in(experiment, name)
    ]


def leaves_out_targets(datasets: Datasets) -> bool:
    """Return whether losses of classes ignore some targets (-100), or may do so."""
    if datasets.task not in ("classification", "language_model"):
        return False
    known = [known_targets(split) for split in (datasets.train, datasets.validation)]
    return any(targets is None or bool((targets == IGNORED).any()) for targets in known)


def measures_tokens_only(experiment: Experiment) -> bool:
    """Return whether loss and metrics need only what `TokenLosses` holds, and no scores.

    Args:
        experiment: The experiment, with its own loss and metrics or the defaults.
    """
    wanted = {item.name for item in experiment.own_metrics}
    if experiment.loss is not None:
        wanted.add(experiment.loss.name)
    return wanted <= {"cross_entropy", "accuracy", "perplexity"}


def call_of(experiment: Experiment) -> Callable[[nn.Module, Any], Any]:
    """Return how the trained model is called with inputs."""
    if experiment.makes_own_steps:
        return call_with_batch
    return call_model


def count_step_flops(
    experiment: Experiment, datasets: Datasets, model: nn.Module, inputs: Any, targets: Any
) -> float:
    """Count the operations of forward and backward for one batch. See `performance.flops`."""
    if experiment.makes_own_steps:
        return count_flops(model, lambda loss, _: loss, inputs, targets, total_loss)
    return count_flops(model, loss_of(experiment, datasets), inputs, targets, call_model)


def _single_scores_of(experiment: Experiment) -> SingleScores:
    """Return how the loss reads single numbers for two classes."""
    if experiment.loss is None or not experiment.loss.is_reference:
        return "logits"
    function = _function(experiment.loss, "loss")
    if kind_read_by(function) is not None:
        return "logits"
    return single_scores_of(function)


def _metrics_of(
    experiment: Experiment, datasets: Datasets, model: nn.Module | None, pairing: Pairing
) -> dict[str, AnyMetric]:
    if isinstance(model, OwnSteps):
        batch = few_inputs(datasets.validation)
        model.eval()
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            names = list(model(batch))
        model.train()
        return {**metrics_by_name(names)}
    named = {item.short_name: _function(item, "metrics") for item in experiment.own_metrics}
    chosen = load_metrics(
        named or None,
        datasets.task,
        target_scale=datasets.target_scale,
        bytes_per_target=datasets.bytes_per_target,
        pairing=pairing,
    )
    loss = loss_of(experiment, datasets, pairing)
    adds_up = None if loss_kind_of(experiment, datasets) is None else True
    return {"loss": BatchMetric(loss.measure, adds_up=adds_up)} | chosen


def _function(component: Component | None, field: str) -> Any:
    """Return the name of a component, or its function with its options bound."""
    if component is None:
        return None
    function = component.load(field=field) if component.is_reference else component.name
    if not component.options:
        return function
    if isinstance(function, str) or not callable(function):
        raise ExperimentError(
            f"{component.name} takes no options",
            field=field,
            next_step="Remove them, or use your own function.",
        )
    return functools.partial(function, **component.options)

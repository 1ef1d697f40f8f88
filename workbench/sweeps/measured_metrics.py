"""Check that objectives and constraints use metrics that a training measures.

`preflight` checks which names exist. The metrics of a train function are known only when it runs.
"""

from __future__ import annotations

from workbench.data import task_of
from workbench.experiment import Component, Experiment
from workbench.experiment.federated import client_metrics
from workbench.experiment.goals import MODEL_COSTS, RESOURCES, Constraint
from workbench.experiment.metric_declarations import (
    TASKS,
    Task,
    fits_task,
    is_share,
    measured_by_tasks,
)
from workbench.experiment.schedules import followed_metric
from workbench.experiment.training_section import EPSILON_METRIC
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import ExperimentError
from workbench.foundation.registry import Registry
from workbench.foundation.validation_errors import closest
from workbench.models import LOSSES, METRICS
from workbench.models.configurations import FittedConfiguration, configuration_type
from workbench.models.estimators import is_from_library

LOOP_METRICS = ("train_loss", "val_loss")


def check_loss_and_metrics(experiment: Experiment) -> None:
    """Raise an error for a loss or metrics that do not fit the task of the data."""
    assert experiment.data is not None
    task = task_of(experiment.data)
    if experiment.loss is not None:
        _check_fits_task(experiment.loss, LOSSES, task, "loss")
        _check_computes_loss(experiment)
    for index, metric in enumerate(experiment.own_metrics):
        _check_fits_task(metric, METRICS, task, f"metrics.{index}")


def _check_computes_loss(experiment: Experiment) -> None:
    """Raise an error if the loss is left to a model of the zoo, which computes none."""
    assert experiment.model is not None
    if experiment.leaves_loss_to_model and not experiment.model.is_reference:
        raise ExperimentError(
            f"{experiment.model.name} computes no loss",
            field="loss",
            allowed=[name for name in LOSSES.names() if name != "model"],
        )


def _check_fits_task(
    component: Component, registry: Registry, task: Task | None, field: str
) -> None:
    """Raise an error for a loss or metric that does not fit the task of the data."""
    if task is not None and not component.is_reference and not fits_task(component.name, task):
        raise ExperimentError(
            f"{component.name} cannot be computed: the task of the data is {TASKS[task].title}",
            field=field,
            allowed=[name for name in registry.names() if fits_task(name, task)],
        )


def check_what_is_reported(experiment: Experiment) -> None:
    """Raise an error for objectives and constraints on metrics that are not reported."""
    if experiment.makes_own_steps:
        return  # only its code knows what it measures
    model = experiment.model
    assert model is not None
    assert experiment.data is not None
    task = task_of(experiment.data)
    is_federated = experiment.federated is not None
    named = [metric.short_name for metric in experiment.own_metrics]
    reported = reported_metrics(named, task, is_federated=is_federated)
    is_fitted = is_from_library(model) or (
        not model.is_reference and issubclass(configuration_type(model.name), FittedConfiguration)
    )
    if is_fitted and is_federated:
        raise ExperimentError(
            "a model that is fitted to all samples at once makes no steps on clients",
            field="federated",
            next_step="Remove it, or choose a model that is trained step by step.",
        )
    if is_private(experiment):
        reported.append(EPSILON_METRIC)
    if is_fitted:
        reported = [name for name in reported if name not in ("train_loss", *MODEL_COSTS)]
    reported += RESOURCES
    wanted = experiment.required_metrics
    if experiment.federated is not None and experiment.federated.target is not None:
        wanted["federated.target.metric"] = experiment.federated.target.metric
    followed = followed_metric(experiment.training)
    if followed is not None:
        wanted["training.schedule_options.metric"] = followed
    for field, metric in wanted.items():
        if metric not in reported and not measured_by_tasks(experiment, metric):
            problem = f"nothing reports {metric!r}"
            if task is not None:
                problem += f": the task of the data is {TASKS[task].title}"
            raise unknown(field, problem, reported)
    _check_targets(experiment)


def _check_targets(experiment: Experiment) -> None:
    """Raise an error for a share above 1, such as 95 if 0.95 is meant."""
    own_names = {
        f"val_{metric.short_name}" for metric in experiment.own_metrics if metric.is_reference
    }
    wanted = [
        (f"objectives.{index}.target", objective.metric, objective.target)
        for index, objective in enumerate(experiment.objectives)
    ]
    for index, limit in enumerate(experiment.constraints):
        wanted += _bounds_of(f"constraints.{index}", limit)
    if experiment.federated is not None and experiment.federated.target is not None:
        wanted += _bounds_of("federated.target", experiment.federated.target)
    for field, metric, value in wanted:
        of_all = metric.partition("_client_")[0]
        if value is not None and value > 1 and is_share(of_all) and of_all not in own_names:
            raise ExperimentError(
                f"{metric} is a share and never above 1, got {value:g}",
                field=field,
                allowed="from 0 to 1",
                next_step=f"Write {value / 100:g}." if value <= 100 else None,
            )


def _bounds_of(field: str, limit: Constraint) -> list[tuple[str, str, float | None]]:
    return [
        (f"{field}.{name}", limit.metric, getattr(limit, name)) for name in ("at_least", "at_most")
    ]


def reported_metrics(
    named: list[str], task: Task | None, *, is_federated: bool = False
) -> list[str]:
    """Return the metrics that the training loop reports.

    Args:
        named: The metrics of the experiment. Without any, the usual ones for the task.
        task: The task of the data, or None if it is unknown. Then every known metric is returned.
        is_federated: Whether clients train the model.
    """
    metrics = named or METRICS.names()
    if not named and task is not None:
        metrics = list(TASKS[task].metrics)
    reported = [*LOOP_METRICS, *(f"val_{name}" for name in metrics)]
    if is_federated:
        return reported + client_metrics(metrics)
    return [*reported, *MODEL_COSTS]


def unknown(field: str, problem: str, known: list[str]) -> ExperimentError:
    """Return the error for an unknown name.

    Args:
        field: The dotted field. Its last part is the unknown name, unless the problem quotes it.
        problem: What is wrong.
        known: The names that exist.
    """
    name = field.rpartition(".")[2]
    if "'" in problem:
        name = problem.split("'")[-2]
    allowed, meant = closest(name, known)
    return ExperimentError(problem, field=field, allowed=allowed, next_step=meant)

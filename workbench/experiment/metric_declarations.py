"""The declarations of metrics and losses: direction, unit, and the tasks that can use them.

Forms, checks, schedules, charts and tables read them here. A metric of another package, or one that
you write, declares its direction itself: see `metric` and `declared_goal`. If nobody declares a
direction, there is none, and no view may guess it from the name. `models` computes the metrics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from workbench.experiment.federated import (
    ANSWERED_METRIC,
    BYTES_METRIC,
    BYTES_TO_TARGET_METRIC,
    ROUNDS_METRIC,
    SPREADS,
)
from workbench.experiment.goals import ENERGY_USED, LATENCY, MONEY_SPENT, SIZE, SPEED, Goal
from workbench.experiment.training_section import EPSILON_METRIC
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

Task = Literal[
    "classification",
    "regression",
    "language_model",
    "preferences",
    "text_pairs",
    "detection",
    "other",
]
Unit = Literal[
    "",
    "share",
    "of target",
    "of target squared",
    "bytes",
    "s",
    "rounds",
    "clients",
    "samples/s",
    "Wh",
]
"""A share is between 0 and 1. An error of numbers has the unit of the target, or its square."""

LANGUAGE_TASK = "lm_eval_"
"""The beginning of the names of metrics that tasks of lm_eval measure."""
_CLIENT_SPREAD = "_client_"
_SPREAD = "std"
_PREFIXES = ("val_", "train_")
_Declared = TypeVar("_Declared")


@dataclass(frozen=True)
class Metric:
    """A metric or a loss of the workbench.

    Attributes:
        name: Its name, without the split that it is measured on.
        goal: The direction in which it is better.
        unit: The unit of its values. Empty: no unit.
        tasks: The tasks that can use it. Empty: every task.
        measure: The object of `models` that measures it, `module:object`. None if an experiment
            cannot use it as a metric.
        loss: The function of `models` that training minimises. None if it cannot be a loss.
        is_rate: Whether it is the share of samples for which something is true. The area under a
            curve is also a share, but not a rate, so the confidence interval of a rate does not
            apply to it.
    """

    name: str
    goal: Goal
    unit: Unit = ""
    tasks: tuple[Task, ...] = ()
    measure: str | None = None
    loss: str | None = None
    is_rate: bool = False

    @property
    def power_of_target(self) -> int:
        """The power p: if all targets are multiplied by f, the metric is multiplied by f**p."""
        return _POWERS_OF_TARGET.get(self.unit, 0)


_CLASSES: tuple[Task, ...] = ("classification", "language_model")
_BOXES: tuple[Task, ...] = ("detection",)
_NUMBERS: tuple[Task, ...] = ("regression",)
_TEXT_PAIRS: tuple[Task, ...] = ("text_pairs",)
_PREFERENCES: tuple[Task, ...] = ("preferences",)
_POWERS_OF_TARGET: dict[Unit, int] = {"of target": 1, "of target squared": 2}

METRICS = (
    Metric("cross_entropy", "minimize", "", _CLASSES, loss="losses:cross_entropy"),
    Metric("accuracy", "maximize", "share", _CLASSES, "metrics:ACCURACY", is_rate=True),
    Metric("top5_accuracy", "maximize", "share", _CLASSES, "metrics:TOP5_ACCURACY", is_rate=True),
    Metric(
        "mean_squared_error",
        "minimize",
        "of target squared",
        _NUMBERS,
        measure="metrics:MEAN_SQUARED_ERROR",
        loss="losses:mean_squared_error",
    ),
    Metric(
        "root_mean_squared_error",
        "minimize",
        "of target",
        _NUMBERS,
        measure="metrics:ROOT_MEAN_SQUARED_ERROR",
    ),
    Metric(
        "mean_absolute_error",
        "minimize",
        "of target",
        _NUMBERS,
        measure="metrics:MEAN_ABSOLUTE_ERROR",
        loss="losses:mean_absolute_error",
    ),
    Metric("huber", "minimize", "", _NUMBERS, loss="losses:huber"),
    Metric("perplexity", "minimize", "", _CLASSES, "metrics:PERPLEXITY"),
    Metric("bits_per_byte", "minimize", "", ("language_model",), "metrics:BITS_PER_BYTE"),
    Metric("macro_f1", "maximize", "share", _CLASSES, "metrics:MACRO_F1"),
    Metric("balanced_accuracy", "maximize", "share", _CLASSES, "metrics:BALANCED_ACCURACY"),
    Metric("roc_auc", "maximize", "share", ("classification",), "metrics:ROC_AUC"),
    Metric("mean_iou", "maximize", "share", _CLASSES, "metrics:MEAN_IOU"),
    Metric(
        "mean_average_precision", "maximize", "share", _BOXES, "detector:MEAN_AVERAGE_PRECISION"
    ),
    Metric("detection", "minimize", "", _BOXES, loss="detector:detection_loss"),
    Metric("contrastive", "minimize", "", _TEXT_PAIRS, loss="losses:contrastive"),
    Metric("recall_at_1", "maximize", "share", _TEXT_PAIRS, "metrics:RECALL_AT_1", is_rate=True),
    Metric("dpo", "minimize", "", _PREFERENCES, loss="losses:dpo"),
    Metric(
        "reward_accuracy",
        "maximize",
        "share",
        _PREFERENCES,
        "metrics:REWARD_ACCURACY",
        is_rate=True,
    ),
    Metric("reward_margin", "maximize", "", _PREFERENCES, "metrics:REWARD_MARGIN"),
    Metric("model", "minimize", loss="losses:of_model"),
)
"""The metrics and losses that an experiment can use. Add new ones here."""

MEASURED = (
    Metric("loss", "minimize"),
    Metric(SIZE, "minimize", "bytes"),
    Metric(LATENCY, "minimize", "s"),
    Metric(SPEED, "maximize", "samples/s"),
    Metric(ENERGY_USED, "minimize", "Wh"),
    Metric(MONEY_SPENT, "minimize"),
    Metric(EPSILON_METRIC, "minimize"),
    Metric(BYTES_METRIC, "minimize", "bytes"),
    Metric(BYTES_TO_TARGET_METRIC, "minimize", "bytes"),
    Metric(ROUNDS_METRIC, "minimize", "rounds"),
    Metric(ANSWERED_METRIC, "maximize", "clients"),
)
"""Metrics that are always measured, or as soon as an objective or a constraint uses them."""


@dataclass(frozen=True)
class TaskDefaults:
    """The loss and metrics of an experiment that does not choose its own, by the task of its data.

    Attributes:
        title: The name of the task in a sentence.
        loss: The loss to minimise.
        metrics: The metrics to measure.
    """

    title: str
    loss: str
    metrics: tuple[str, ...]


TASKS: dict[Task, TaskDefaults] = {
    "classification": TaskDefaults("classification", "cross_entropy", ("accuracy",)),
    "regression": TaskDefaults(
        "regression", "mean_squared_error", ("mean_absolute_error", "root_mean_squared_error")
    ),
    "language_model": TaskDefaults(
        "language modelling", "cross_entropy", ("accuracy", "perplexity")
    ),
    "preferences": TaskDefaults("preferences", "dpo", ("reward_accuracy", "reward_margin")),
    "text_pairs": TaskDefaults("pairs of texts", "contrastive", ("recall_at_1",)),
    "detection": TaskDefaults("detection", "detection", ("mean_average_precision",)),
    "other": TaskDefaults("other", "model", ()),
}

_BY_NAME = {metric.name: metric for metric in (*METRICS, *MEASURED)}
_MEASURED_ALWAYS = {metric.name for metric in MEASURED}


def declaration_of(metric: str) -> Metric | None:
    """Return the declaration of a metric or a loss.

    Args:
        metric: Its name, alone or as the training loop reports it: on a split (`val_accuracy`), or
            as its spread over clients (`val_accuracy_client_min`).

    Returns:
        The declaration, or None if the workbench does not know the metric.

    Example:
        >>> from workbench.experiment.metric_declarations import declaration_of
        >>> declaration_of("val_accuracy").goal
        'maximize'
        >>> declaration_of("f1_loss") is None
        True
    """
    if metric in _BY_NAME:
        return _BY_NAME[metric]
    name, _, kind = _without_split(metric).partition(_CLIENT_SPREAD)
    declaration = _BY_NAME.get(name)
    if declaration is None or not kind:
        return declaration
    if kind not in SPREADS:
        return None
    if kind == _SPREAD:  # clients should differ little, whatever is measured
        return replace(declaration, goal="minimize")
    return declaration


def _without_split(metric: str) -> str:
    for prefix in _PREFIXES:
        if metric.startswith(prefix):
            return metric.removeprefix(prefix)
    return metric


def goal_of(metric: str) -> Goal | None:
    """Return the direction of a metric of the workbench, or None for any other metric."""
    declaration = declaration_of(metric)
    if declaration is None:
        return None
    return declaration.goal


def fits_task(name: str, task: Task) -> bool:
    """Return whether a task can use a loss or a metric. True for names that are not known here."""
    declaration = declaration_of(name)
    return declaration is None or not declaration.tasks or task in declaration.tasks


def goal_in(
    experiment: Experiment, metric: str, declared: Mapping[str, Goal] | None = None
) -> Goal | None:
    """Return the direction of a metric in an experiment, or None if nobody declared it.

    The objectives and `goals` of the experiment come first. Then come the directions that metrics
    of users and other packages declare. The table in this module counts last, and only for metrics
    that the workbench computes: a function or a program may call anything `accuracy`.

    Args:
        experiment: The experiment.
        metric: The metric, as trials report it.
        declared: The directions that metrics declare themselves, by reported name, as the run
            stored them.
    """
    for objective in experiment.objectives:
        if objective.metric == metric:
            return objective.goal
    if metric in experiment.goals:
        return experiment.goals[metric]
    if declared and metric in declared:
        return declared[metric]
    return computed_goal(experiment, metric)


def computed_goal(experiment: Experiment, metric: str) -> Goal | None:
    """Return the direction of a metric that the workbench computes, or None for other metrics."""
    declaration = _computed(experiment, metric)
    if declaration is None:
        return None
    return declaration.goal


def unit_in(experiment: Experiment, metric: str) -> Unit:
    """Return the unit of a metric in an experiment. Empty: no unit, or nobody declared it."""
    declaration = _computed(experiment, metric)
    if declaration is None:
        return ""
    return declaration.unit


def is_rate_in(experiment: Experiment, metric: str) -> bool:
    """Return whether a metric that the workbench computes is a share of samples."""
    declaration = _computed(experiment, metric)
    return declaration is not None and declaration.is_rate


def _computed(experiment: Experiment, metric: str) -> Metric | None:
    """Return the declaration of a metric that the workbench computes in an experiment."""
    if not experiment.trains_model:
        return None
    own_names = {item.short_name for item in experiment.own_metrics if item.is_reference}
    name = _without_split(metric).partition(_CLIENT_SPREAD)[0]
    if name in own_names or (experiment.makes_own_steps and name not in _MEASURED_ALWAYS):
        return None
    return declaration_of(metric)


def measured_by_tasks(experiment: Experiment, metric: str) -> bool:
    """Return whether a task of lm_eval that the data names may measure a metric.

    Only lm_eval knows which metrics a task has.
    """
    tasks = () if experiment.data is None else experiment.data.options.get("lm_eval", ())
    if not isinstance(tasks, (list, tuple)):
        return False
    return any(metric.startswith(f"{LANGUAGE_TASK}{task}_") for task in tasks)


def is_share(metric: str) -> bool:
    """Return whether a metric of the workbench is between 0 and 1."""
    declaration = declaration_of(metric)
    return declaration is not None and declaration.unit == "share"


def metric(*, goal: Goal) -> Callable[[_Declared], _Declared]:
    """Declare whether higher or lower values of your metric are better.

    Args:
        goal: `maximize` or `minimize`.

    Returns:
        A decorator for a function of (outputs, targets), or for a class with `update` and
        `compute`.

    Raises:
        ExperimentError: If the goal is neither of the two.

    Example:
        >>> @wb.metric(goal="minimize")
        ... def worst_error(outputs, targets):
        ...     return (outputs - targets).abs().max()
        >>> worst_error.goal
        'minimize'
    """
    _check_goal(goal, "metric")

    def declare(target: _Declared) -> _Declared:
        target.goal = goal  # type: ignore[attr-defined]
        return target

    return declare


def declared_goal(measure: Any, field: str | None = None) -> Goal | None:
    """Return the direction that the object behind a metric declares.

    It has an attribute `goal`, which the decorator `metric` sets, or `higher_is_better`, as in
    torchmetrics.

    Args:
        measure: A function, a class, an object, or a partial of one of them.
        field: The dotted field for the error message.

    Returns:
        The direction, or None if the object declares none.

    Raises:
        ExperimentError: If `goal` is text, but not a direction.
    """
    while isinstance(measure, functools.partial):
        measure = measure.func
    goal = getattr(measure, "goal", None)
    if isinstance(goal, str):  # an attribute of this name may mean something else
        return _check_goal(goal, field)
    is_higher_better = getattr(measure, "higher_is_better", None)
    if not isinstance(is_higher_better, bool):
        return None
    if is_higher_better:
        return "maximize"
    return "minimize"


def _check_goal(goal: Any, field: str | None) -> Goal:
    if goal not in ("maximize", "minimize"):
        raise ExperimentError(
            f"{goal!r} is not the goal of a metric", field=field, allowed="maximize, minimize"
        )
    return goal

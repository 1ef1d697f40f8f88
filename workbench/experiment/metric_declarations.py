"""The one declaration of each loss and metric that the workbench knows, and how others declare
theirs.

A metric declares its direction, its unit and the tasks for which it can be computed once. Forms,
checks, schedules, charts and tables read it here. A metric of another package or of the user's own
declares its direction on itself: see `metric` and `declared_goal`. Where nobody has declared one,
there is none, and no view may guess it from a name. How a metric is computed is left to `models`.
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
from workbench.experiment.goals import LATENCY, SIZE, Goal
from workbench.experiment.private import EPSILON_METRIC
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment import Experiment

Task = Literal["classification", "regression", "language_model", "detection", "other"]
Unit = Literal["", "share", "of target", "of target squared", "bytes", "s", "rounds", "clients"]
"""A share lies between 0 and 1; an error of numbers has the unit of the target, or its square."""

_CLASSES: tuple[Task, ...] = ("classification", "language_model")
_BOXES: tuple[Task, ...] = ("detection",)
_NUMBERS: tuple[Task, ...] = ("regression",)
_CLIENT_SPREAD = "_client_"
_SPREAD = "std"
_PREFIXES = ("val_", "train_")
_Declared = TypeVar("_Declared")


@dataclass(frozen=True)
class MetricDeclaration:
    """What is known of a metric or a loss by its name.

    Attributes:
        name: Its name, without the split that it is measured on.
        goal: In which direction it is better; None where neither is.
        unit: The unit of its values; empty where they have none.
        tasks: The tasks for which it can be computed; empty for every task.
        reference: The `module:object` that computes it; None for what the loop measures itself.
        is_loss: Whether it can be minimised in training.
        is_rate: Whether it is the share of samples of which something is true. A share of another
            kind, such as the area under a curve, is none, and the interval of a rate does not hold
            for it.
    """

    name: str
    goal: Goal | None
    unit: Unit = ""
    tasks: tuple[Task, ...] = ()
    reference: str | None = None
    is_loss: bool = False
    is_rate: bool = False


def _metric(
    name: str, goal: Goal, unit: Unit, tasks: tuple[Task, ...], reference: str
) -> MetricDeclaration:
    return MetricDeclaration(name, goal, unit, tasks, f"workbench.models.{reference}")


def _rate(name: str, reference: str) -> MetricDeclaration:
    return replace(_metric(name, "maximize", "share", _CLASSES, reference), is_rate=True)


def _loss(name: str, tasks: tuple[Task, ...], reference: str) -> MetricDeclaration:
    return MetricDeclaration(
        name, "minimize", "", tasks, f"workbench.models.{reference}", is_loss=True
    )


METRICS = (
    _rate("accuracy", "metrics:ACCURACY"),
    _rate("top5_accuracy", "metrics:TOP5_ACCURACY"),
    _metric(
        "mean_squared_error",
        "minimize",
        "of target squared",
        _NUMBERS,
        "metrics:MEAN_SQUARED_ERROR",
    ),
    _metric(
        "root_mean_squared_error",
        "minimize",
        "of target",
        _NUMBERS,
        "metrics:ROOT_MEAN_SQUARED_ERROR",
    ),
    _metric(
        "mean_absolute_error", "minimize", "of target", _NUMBERS, "metrics:MEAN_ABSOLUTE_ERROR"
    ),
    _metric("perplexity", "minimize", "", _CLASSES, "metrics:PERPLEXITY"),
    _metric("macro_f1", "maximize", "share", _CLASSES, "metrics:MACRO_F1"),
    _metric("balanced_accuracy", "maximize", "share", _CLASSES, "metrics:BALANCED_ACCURACY"),
    _metric("roc_auc", "maximize", "share", ("classification",), "metrics:ROC_AUC"),
    _metric("mean_iou", "maximize", "share", _CLASSES, "metrics:MEAN_IOU"),
    _metric(
        "mean_average_precision", "maximize", "share", _BOXES, "detector:MEAN_AVERAGE_PRECISION"
    ),
)
"""The metrics that an experiment can name; a new one is a line here."""

LOSSES = (
    _loss("cross_entropy", _CLASSES, "losses:cross_entropy"),
    _loss("mean_squared_error", _NUMBERS, "losses:mean_squared_error"),
    _loss("mean_absolute_error", _NUMBERS, "losses:mean_absolute_error"),
    _loss("huber", _NUMBERS, "losses:huber"),
    _loss("detection", _BOXES, "detector:detection_loss"),
    _loss("model", (), "losses:of_model"),
)
"""The losses that an experiment can name; a new one is a line here."""

MEASURED = (
    MetricDeclaration("loss", "minimize"),
    MetricDeclaration(SIZE, "minimize", "bytes"),
    MetricDeclaration(LATENCY, "minimize", "s"),
    MetricDeclaration(EPSILON_METRIC, "minimize"),
    MetricDeclaration(BYTES_METRIC, "minimize", "bytes"),
    MetricDeclaration(BYTES_TO_TARGET_METRIC, "minimize", "bytes"),
    MetricDeclaration(ROUNDS_METRIC, "minimize", "rounds"),
    MetricDeclaration(ANSWERED_METRIC, "maximize", "clients"),
)
"""What the training loop measures without being asked, or where an objective or a constraint names
it.
"""

_BY_NAME = {item.name: item for item in (*LOSSES, *METRICS, *MEASURED)}
_MEASURED_ALWAYS = {item.name for item in MEASURED}


def declaration_of(metric: str) -> MetricDeclaration | None:
    """Return the declaration of a metric or a loss.

    Args:
        metric: Its name, or what the training loop reports: that of a split (`val_accuracy`), or of
            its spread over clients (`val_accuracy_client_min`).

    Returns:
        The declaration; None where the workbench does not know the metric.

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
    if kind == _SPREAD:  # clients should differ little, whatever is measured
        return replace(declaration, goal="minimize")
    return declaration if kind in SPREADS else None


def _without_split(metric: str) -> str:
    for prefix in _PREFIXES:
        if metric.startswith(prefix):
            return metric.removeprefix(prefix)
    return metric


def goal_of(metric: str) -> Goal | None:
    """Return in which direction a metric that the workbench measures is better.

    None if it is unknown.
    """
    declaration = declaration_of(metric)
    return None if declaration is None else declaration.goal


def goal_in(
    experiment: Experiment, metric: str, declared: Mapping[str, Goal] | None = None
) -> Goal | None:
    """Return in which direction a metric of an experiment is better.

    None where nobody has declared it.

    The objectives and `goals` of the experiment come first, then what the metrics of other packages
    and of the user's own declare. The names in this table count where the workbench computes the
    metric: a function or a program may call anything `accuracy`.

    Args:
        experiment: The experiment.
        metric: What its trials report.
        declared: The directions that metrics declare themselves, by reported name, as a run has
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
    """Return in which direction a metric is better that the workbench computes in an experiment."""
    declaration = _computed(experiment, metric)
    return None if declaration is None else declaration.goal


def unit_in(experiment: Experiment, metric: str) -> Unit:
    """Return the unit of a metric of an experiment.

    Empty where it has none, or nobody has declared it.
    """
    declaration = _computed(experiment, metric)
    return "" if declaration is None else declaration.unit


def is_rate_in(experiment: Experiment, metric: str) -> bool:
    """Return whether a metric that the workbench computes in an experiment is a share of
    samples.
    """
    declaration = _computed(experiment, metric)
    return declaration is not None and declaration.is_rate


def _computed(experiment: Experiment, metric: str) -> MetricDeclaration | None:
    """Return the declaration of a metric that the workbench computes in an experiment."""
    if not experiment.trains_model:
        return None
    own = {item.short_name for item in experiment.own_metrics if item.is_reference}
    name = _without_split(metric).partition(_CLIENT_SPREAD)[0]
    if name in own or (experiment.makes_own_steps and name not in _MEASURED_ALWAYS):
        return None
    return declaration_of(metric)


def is_share(metric: str) -> bool:
    """Return whether a metric that the workbench measures lies between 0 and 1."""
    declaration = declaration_of(metric)
    return declaration is not None and declaration.unit == "share"


def metric(*, goal: Goal) -> Callable[[_Declared], _Declared]:
    """Declare in which direction a metric of your own is better.

    Args:
        goal: `maximize` or `minimize`.

    Returns:
        A decorator for a function of (outputs, targets), or for a class with `update` and
        `compute`.

    Raises:
        ExperimentError: If the direction is neither.

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


def declared_goal(found: Any, field: str | None = None) -> Goal | None:
    """Return in which direction the object that computes a metric declares to be better.

    It declares that by an attribute `goal`, which the decorator `metric` sets, or as torchmetrics
    does, by `higher_is_better`.

    Args:
        found: A function, a class, an object, or either with its options bound.
        field: The dotted field to name if the declaration is wrong.

    Returns:
        The direction; None where it declares none.

    Raises:
        ExperimentError: If `goal` is no direction.
    """
    while isinstance(found, functools.partial):
        found = found.func
    goal = getattr(found, "goal", None)
    if isinstance(goal, str):  # an attribute of this name may mean something else
        return _check_goal(goal, field)
    is_higher_better = getattr(found, "higher_is_better", None)
    if isinstance(is_higher_better, bool):
        return "maximize" if is_higher_better else "minimize"
    return None


def _check_goal(goal: Any, field: str | None) -> Goal:
    if goal not in ("maximize", "minimize"):
        raise ExperimentError(
            f"{goal!r} is not a direction of a metric", field=field, allowed="maximize, minimize"
        )
    return goal

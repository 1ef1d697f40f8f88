"""Turns a name, a reference or a Python object into a torch model, a loss or metrics.

The result is always a `torch.nn.Module` or a function of tensors. If training code has another
form, write a function of (configuration, report) instead. See `workbench.training.functions`.

Your own model is made from a configuration. A function such as `build(config)` receives it as its
only argument. A constructor such as `__init__(self, hidden=64)` receives the values that have the
names of its parameters.
"""

from __future__ import annotations

import copy
import functools
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from workbench.experiment.goals import Goal
from workbench.experiment.metric_declarations import TASKS, Task, declaration_of, declared_goal
from workbench.experiment.searched_fields import is_setting
from workbench.foundation.errors import ExperimentError
from workbench.foundation.registry import Registry, load_object
from workbench.models import LOSSES, METRICS
from workbench.models.configurations import configure
from workbench.models.estimators import is_estimator
from workbench.models.metrics import (
    AnyMetric,
    BatchMetric,
    Loss,
    WholeMetric,
    kind_read_by,
    mean_over_samples,
    with_pairing,
    without_options,
)
from workbench.models.own_functions import as_loss, as_total, instance_of
from workbench.models.pairing import UNKNOWN, Pairing

ModelReference = str | Callable[..., nn.Module]
LossReference = str | Callable[[Any, Any], Any]
MetricReference = str | BatchMetric | type[Any] | Callable[[Any, Any], Tensor | tuple[Tensor, int]]


def build_model(
    model: ModelReference,
    configuration: Mapping[str, Any],
    *,
    input_shape: tuple[int, ...],
    num_outputs: int,
    vocabulary_size: int | None = None,
    target_shape: tuple[int, ...] = (),
    field: str = "search",
) -> nn.Module:
    """Build the model of a trial.

    Args:
        model: A zoo name, `package.module:function`, or a callable.
        configuration: For a zoo name, values of the model's own fields and nothing else. For a
            function, the trial's whole configuration, which `construct` passes to it.
        input_shape: Shape of one sample, without the batch.
        num_outputs: Classes, regression targets, or the vocabulary size for a language model.
        vocabulary_size: Number of token ids, if the inputs are token ids.
        target_shape: Shape of a sample's targets, if it has several. See `Datasets`.
        field: The dotted path in which the user wrote the values.

    Returns:
        The model, on the CPU.

    Raises:
        ExperimentError: If the name, a key or a value is wrong, the model cannot take such inputs,
            or the function returns something that is not a module.
    """
    if isinstance(model, str) and ":" not in model:
        shapes: dict[str, Any] = {
            "input_shape": tuple(input_shape),
            "num_outputs": num_outputs,
            "vocabulary_size": vocabulary_size,
        }
        chosen = configure(model, configuration, field=field)
        if target_shape:
            return chosen.build_for_targets(**shapes, target_shape=target_shape)
        return chosen.build(**shapes)
    return _call(model, configuration)


def _call(model: ModelReference, configuration: Mapping[str, Any]) -> nn.Module:
    function = load_object(model, field="model") if isinstance(model, str) else model
    if is_estimator(function):
        from workbench.models.fitted_estimator import FittedEstimator

        return FittedEstimator()
    built = construct(function, configuration)
    if not isinstance(built, nn.Module):
        raise ExperimentError(
            f"{getattr(model, '__qualname__', model)} returned {_describe(built)}",
            field="model",
            allowed="a torch.nn.Module",
            next_step="Return the module from the function. The workbench trains it.",
        )
    return built


def num_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters. Shared parameters count once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def load_loss(loss: LossReference | None, task: Task, *, pairing: Pairing | None = None) -> Loss:
    """Return the loss of a trial.

    Args:
        loss: A name in `LOSSES`, `package.module:function`, a callable, or None for the default.
        task: The task of the data.
        pairing: How outputs meet targets. None returns the loss exactly as it is defined.

    Returns:
        A function (outputs, targets) -> mean over the batch, a scalar tensor, or (total, count).
    """
    if loss is None:
        loss = TASKS[task].loss
    function = _load(LOSSES, loss, "loss")
    if pairing is None:
        return function
    if kind_read_by(function) is not None:
        return functools.partial(function, pairing=pairing)
    return as_loss(instance_of(function), name_of(function))


def load_metrics(
    metrics: Sequence[str] | Mapping[str, MetricReference] | None,
    task: Task,
    *,
    target_scale: float = 1.0,
    bytes_per_target: float | None = None,
    pairing: Pairing = UNKNOWN,
) -> dict[str, AnyMetric]:
    """Return the metrics of a trial by name.

    Args:
        metrics: Names in `METRICS` or references `package.module:function`, whose metric has the
            name of the function. Or a mapping from names to these or to callables. None uses the
            defaults. A function of (outputs, targets) returns a number or (total, count). If the
            parts of an evaluation do not add up to the whole, it receives all outputs at once. A
            class or object with `update` and `compute` receives all batches.
        task: The task of the data.
        target_scale: The number by which the data divided its targets. Errors are multiplied by it,
            so that they have the unit of the target.
        bytes_per_target: Bytes of text of each target on average, or None if it is unknown.
        pairing: How outputs meet targets.
    """
    if metrics is None:
        metrics = TASKS[task].metrics
    chosen = metrics
    if not isinstance(chosen, Mapping):
        chosen = {
            reference.rpartition(":")[2].rpartition(".")[2]: reference for reference in chosen
        }
    loaded: dict[str, AnyMetric] = {}
    for name, reference in chosen.items():
        loadable = _load(METRICS, reference, f"metrics.{name}")
        metric = with_pairing(_as_metric(loadable, name, pairing), pairing)
        # Only names have declarations. If your own object has the same name, it has its own unit.
        if isinstance(reference, str) and isinstance(metric, BatchMetric):
            declaration = declaration_of(reference)
            if declaration is not None:
                metric = metric.times(target_scale**declaration.power_of_target)
            if reference == "bits_per_byte":
                metric = metric.times(1.0 / _known_bytes(bytes_per_target))
        loaded[name] = metric
    return loaded


def _known_bytes(bytes_per_target: float | None) -> float:
    if bytes_per_target is None:
        raise ExperimentError(
            "the bytes of the text are not known",
            field="metrics.bits_per_byte",
            allowed="data: text",
            next_step="Use cross_entropy, which counts for each token.",
        )
    return bytes_per_target


def declared_goals(metrics: Mapping[str, AnyMetric]) -> dict[str, Goal]:
    """Return the directions that metrics declare by themselves, by reported name.

    Args:
        metrics: The metrics of the validation data, by name.
    """
    return {
        f"val_{name}": metric.goal for name, metric in metrics.items() if metric.goal is not None
    }


def name_of(loaded: Any) -> str:
    """Return the name in the definition of a loss or metric."""
    function = without_options(loaded)
    return getattr(function, "__name__", type(function).__name__)


def _as_metric(loaded: AnyMetric | Callable[..., Any], name: str, pairing: Pairing) -> AnyMetric:
    goal = declared_goal(loaded, f"metrics.{name}")
    if isinstance(loaded, AnyMetric):
        return loaded
    if kind_read_by(loaded) is not None:  # a loss of the workbench
        return mean_over_samples(functools.partial(loaded, pairing=pairing))
    kind = without_options(loaded)
    if callable(getattr(kind, "update", None)) and callable(getattr(kind, "compute", None)):
        make = loaded
        if not inspect.isclass(kind):
            # An object collects the batches of one evaluation, so each evaluation gets a copy.
            make = functools.partial(copy.deepcopy, loaded)
        return WholeMetric(make, goal=goal)

    function = instance_of(loaded)

    def measure(outputs: Any, targets: Any) -> tuple[Tensor, int | Tensor]:
        return as_total(function(outputs, targets), outputs, targets, name_of(loaded))

    return BatchMetric(measure, goal=goal, adds_up=None)


def _load(registry: Registry, reference: Any, field: str) -> Any:
    if not isinstance(reference, str):
        loaded = reference
    elif ":" in reference:
        loaded = load_object(reference, field=field)
    else:
        loaded = registry.load(reference, field=field)
    if (
        not callable(loaded)
        and not isinstance(loaded, AnyMetric)
        and not hasattr(loaded, "compute")
    ):
        raise ExperimentError(
            f"{reference!r} is {_describe(loaded)}",
            field=field,
            allowed="a function of (outputs, targets)",
        )
    return loaded


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    return f"an object of type {type(value).__name__}"


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SINGLE_VALUES = (bool, int, float, str, "bool", "int", "float", "str")
"""Annotations that mean that a parameter takes a single value, not the configuration."""


def construct(
    function: Callable[..., Any], configuration: Mapping[str, Any], *, field: str = "model"
) -> Any:
    """Call a function or a class with a configuration.

    The first parameter receives the whole configuration as a mapping. It receives a single value
    instead if the configuration has its name, or if its default or annotation is a single value.
    All other parameters receive the values with their names. Settings of the training that match no
    parameter are not passed.

    Args:
        function: The function or class that makes the model.
        configuration: The fixed options and the searched parameters.
        field: The dotted path of the function, for messages.

    Returns:
        The result of the call.

    Raises:
        ExperimentError: If a parameter or a key without a default has no value, or a value has no
            parameter.
    """
    parameters = _parameters_of(function)
    if parameters is None or _takes_mapping(parameters, configuration):
        # Later parameters also get the values with their names. With their defaults, the function
        # would build another model than the configuration says.
        _, *others = parameters or [None]
        named = {item.name for item in others if item is not None and item.kind in _BY_NAME}
        by_name = {key: configuration[key] for key in named & configuration.keys()}
        passed = dict(configuration)
        try:
            return function(passed, **by_name)
        except KeyError as error:
            if (key := _missing_key(error, passed)) is None:
                raise
            raise _missing(function, [key], f"{field}.{key}") from error
    name = getattr(function, "__qualname__", repr(function))
    named = {item.name for item in parameters if item.kind in _BY_NAME}
    if any(item.kind is item.VAR_KEYWORD for item in parameters):
        passed = dict(configuration)
    else:
        passed = {key: value for key, value in configuration.items() if key in named}
        if left := [key for key in configuration if key not in named and not is_setting(key)]:
            raise ExperimentError(
                f"{name} has no parameter {' or '.join(left)}",
                field=field,
                allowed=sorted(named) or "nothing: it has no parameters",
                next_step=(
                    "Rename it, or let the first parameter be the configuration: build(config)."
                ),
            )
    missing = [
        item.name
        for item in parameters
        if item.name in named and item.default is item.empty and item.name not in passed
    ]
    if missing:
        raise _missing(
            function,
            missing,
            field,
            " If the function takes the whole configuration, make that its first parameter:"
            " build(config).",
        )
    return function(**passed)


def _missing_key(error: KeyError, passed: dict[str, Any]) -> str | None:
    """Return the key that a configuration lacks, or None if another mapping was asked for it."""
    key = error.args[0] if error.args else None
    # A value of the configuration is a key of another table, such as that of all activations.
    if not isinstance(key, str) or key in (*passed, *passed.values()):
        return None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    held = [*frame.f_locals.values()]
    held += getattr(frame.f_locals.get("self"), "__dict__", {}).values()
    return key if any(value is passed for value in held) else None


def _missing(
    function: Callable[..., Any], missing: list[str], field: str, more: str = ""
) -> ExperimentError:
    name = getattr(function, "__qualname__", repr(function))
    return ExperimentError(
        f"{name} needs {', '.join(missing)}, which the configuration does not set",
        field=field,
        next_step=(
            f"Search it, or set it next to the name of the model: {missing[0]}: VALUE.{more}"
        ),
    )


def _parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters, or None if Python cannot determine them."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _takes_mapping(parameters: list[inspect.Parameter], configuration: Mapping[str, Any]) -> bool:
    """Return whether the first parameter is the configuration."""
    if not parameters:
        return False
    first = parameters[0]
    if first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        return False
    if first.kind is not first.POSITIONAL_OR_KEYWORD:
        return True
    if first.name in configuration or first.annotation in _SINGLE_VALUES:
        return False
    if first.default is first.empty:
        return True
    is_by_name = any(item.name in configuration for item in parameters)
    return not is_by_name and (first.default is None or isinstance(first.default, Mapping))

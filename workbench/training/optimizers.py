"""Optimizers by their torch names, or as classes of other packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from workbench.experiment import Training
from workbench.foundation.errors import ExperimentError, UnknownNameError
from workbench.foundation.registry import load_object
from workbench.training.compiler_import import defer_compiler
from workbench.training.strategies.shards import is_cut
from workbench.training.unusable_optimizers import NEVER

_OWN = ("weight_decay", "momentum", "betas", "fused")  # torch cannot fuse every optimizer on shards
_FUSED_ON_SHARDS = (torch.optim.Adam, torch.optim.AdamW)


def optimizer_names() -> list[str]:
    """Return the names of the optimizers that torch offers and the loop can drive."""
    return sorted(
        name
        for name, found in vars(torch.optim).items()
        if inspect.isclass(found)
        and issubclass(found, Optimizer)
        and found is not Optimizer
        and name.lower() not in NEVER
    )


def _find(name: str, field: str) -> Any:
    """Return the class of an optimizer, of torch or by its reference.

    Raises:
        UnknownNameError: If torch has no such optimizer.
        ExperimentError: If a reference names something else.
    """
    if ":" not in name:
        by_name = {known.lower(): known for known in optimizer_names()}
        if name.lower() not in by_name:
            raise UnknownNameError(f"unknown optimizer {name!r}", field=field, allowed=by_name)
        return getattr(torch.optim, by_name[name.lower()])
    found = load_object(name, field=field)
    if not (inspect.isclass(found) and issubclass(found, Optimizer)):
        raise ExperimentError(
            f"{name} is not an optimizer",
            field=field,
            allowed="a subclass of torch.optim.Optimizer",
        )
    return found


def optimizer_factory(
    training: Training, lr: float, *, field: str = "training.optimizer"
) -> Callable[[Iterable[Any]], Optimizer]:
    """Return what makes the optimizer of a trial once the strategy has prepared the parameters.

    Torch's fused kernel is used where the class has one and no option disables it: on small models
    the update is a third of a step, and fused it is a tenth.

    Args:
        training: The training section, searched values in place.
        lr: Peak learning rate.
        field: The dotted path under which the optimizer was written.

    Raises:
        UnknownNameError: If torch has no such optimizer.
        ExperimentError: If the optimizer has no such option, refuses a value, or is none.
    """
    defer_compiler()
    kind = _find(training.optimizer, field)
    parameters = list(inspect.signature(kind).parameters.values())[1:]
    takes_more = any(item.kind is item.VAR_KEYWORD for item in parameters)
    known = [item.name for item in parameters if item.kind is not item.VAR_KEYWORD]
    arguments: dict[str, Any] = {"lr": lr}
    if kind is torch.optim.SGD:
        arguments["momentum"] = training.momentum
    if "weight_decay" in known or (takes_more and training.weight_decay):
        arguments["weight_decay"] = training.weight_decay
    elif training.weight_decay:
        raise ExperimentError(
            f"{kind.__name__} has no weight decay",
            field="training.weight_decay",
            next_step="Remove it.",
        )
    for name, value in training.optimizer_options.items():
        if name in arguments:
            raise ExperimentError(
                "it has a setting of its own, which may be searched",
                field=f"training.optimizer_options.{name}",
                next_step=f"Set training.{name} instead.",
            )
        if name not in known and not takes_more:
            raise ExperimentError(
                f"{kind.__name__} has no such argument",
                field=f"training.optimizer_options.{name}",
                allowed=known,
            )
        arguments[name] = tuple(value) if isinstance(value, list) else value
    may_fuse = "fused" in known and not {"foreach", "differentiable", "fused"} & arguments.keys()

    def make(parameters: Iterable[Any]) -> Optimizer:
        parameters = list(parameters)
        groups = [item["params"] if isinstance(item, dict) else [item] for item in parameters]
        if may_fuse and (
            kind in _FUSED_ON_SHARDS or not any(is_cut(item) for group in groups for item in group)
        ):
            arguments["fused"] = True
        try:
            return kind(parameters, **arguments)
        except (ValueError, TypeError) as error:
            raise ExperimentError(
                f"{kind.__name__} refuses its arguments: {error}",
                field="training.optimizer_options",
            ) from error

    return make


def take_hyperparameters(stored: Any, own: Any, training: Training) -> None:
    """Replace the hyperparameters in a stored state of optimizers by those of this trial.

    Moments stay.

    The learning rate is set at each step anyway.

    Args:
        stored: The state of another trial, which is changed.
        own: The state of this trial's optimizers before their first step.
        training: Names the options of the optimizer.
    """
    if not isinstance(stored, dict) or not isinstance(own, dict):
        return
    if "param_groups" not in stored:  # several optimizers, by name
        for name in stored:
            take_hyperparameters(stored[name], own.get(name), training)
        return
    for group, fresh in zip(stored["param_groups"], own.get("param_groups", ()), strict=False):
        names = {*_OWN, *training.optimizer_options} & group.keys() & fresh.keys()
        group.update({name: fresh[name] for name in names})

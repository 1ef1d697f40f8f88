"""The parameters of a model in groups: which are frozen, and what the optimizer receives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from workbench.experiment.parameter_groups import ParameterGroup
from workbench.foundation.errors import ExperimentError

_SHOWN = 6


def freeze(model: nn.Module, groups: Mapping[str, ParameterGroup]) -> None:
    """Let the optimizer leave out what is frozen.

    Args:
        model: The model.
        groups: By the pattern of the names that they concern.

    Raises:
        ExperimentError: If a pattern fits no parameter, or none is left to be trained.
    """
    names = [name for name, _ in model.named_parameters()]
    used = {_pattern_of(name, groups) for name in names}
    for pattern in groups:
        if pattern not in used:
            raise ExperimentError(
                "fits no parameter that an earlier pattern leaves",
                field=f"training.parameter_groups.{pattern}",
                allowed=[*names[:_SHOWN], *["..."] * (len(names) > _SHOWN)],
            )
    for name, parameter in model.named_parameters():
        pattern = _pattern_of(name, groups)
        if pattern is not None and groups[pattern].frozen:
            parameter.requires_grad_(False)
    if names and not any(parameter.requires_grad for parameter in model.parameters()):
        raise ExperimentError(
            "no parameter is left to be trained", field="training.parameter_groups"
        )


def grouped(
    named: Iterable[tuple[str, nn.Parameter]],
    groups: Mapping[str, ParameterGroup],
    steps_per_epoch: int,
) -> list[dict[str, Any]]:
    """Return trained parameters as the groups of an optimizer, with their `lr_factor` and
    `frozen_steps`.

    Args:
        named: The trained parameters with their names.
        groups: By the pattern of the names that they concern.
        steps_per_epoch: Optimizer steps of an epoch.
    """
    by_pattern: dict[str | None, list[nn.Parameter]] = {}
    for name, parameter in named:
        by_pattern.setdefault(_pattern_of(name, groups), []).append(parameter)
    return [
        {"params": parameters}
        | ({} if pattern is None else _settings(groups[pattern], steps_per_epoch))
        for pattern, parameters in by_pattern.items()
    ]


def _settings(group: ParameterGroup, steps_per_epoch: int) -> dict[str, Any]:
    decay = {} if group.weight_decay is None else {"weight_decay": group.weight_decay}
    frozen = (
        {"frozen_steps": round(group.frozen_epochs * steps_per_epoch)}
        if group.frozen_epochs
        else {}
    )
    return {"lr_factor": group.lr_factor, **decay, **frozen}


def _pattern_of(name: str, groups: Mapping[str, ParameterGroup]) -> str | None:
    return next((pattern for pattern in groups if re.search(pattern, name)), None)

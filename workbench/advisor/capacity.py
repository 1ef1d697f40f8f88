"""How large a model, batch or input fits into a device's memory, with and without recomputation.

Nothing is measured. `probes.capacity` traces the model without running it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from workbench.advisor.memory import Usual
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.hardware.performance.memory import MARGIN
from workbench.models.configurations import check_value, configuration_type
from workbench.training.planning.settings import model_values
from workbench.training.probes.capacity import Capacity, Depth, find_capacity

_DEPTHS = ("num_layers", "num_blocks")
_MAX_LAYERS = 1024
"""The greatest depth that is tried if the model declares no limit."""


def capacity_of(
    experiment: Experiment, memories_bytes: Sequence[int] = (), depth: str | None = None
) -> dict[int, list[Capacity]]:
    """Find how deep, how long and how large an experiment can become.

    Args:
        experiment: The experiment. Its seed draws the first configuration of its search space.
        memories_bytes: Memories of devices, each > 0. Empty for the memory of this machine.
        depth: Name of the model's parameter that counts its layers, or None for one of the usual
            names.

    Returns:
        The limits for each memory, with the usual margin.

    Raises:
        ArgumentError: If the model has no such parameter.
        ExperimentError: If the experiment trains no model, or the model cannot be traced.
    """
    usual = Usual.of(experiment)
    depths = _depths_of(experiment, usual)
    if depth is not None and depth not in depths:
        raise ArgumentError(
            f"{depth!r} is not a parameter of the model that holds a whole number greater than 0",
            field="--depth",
            allowed=sorted(depths) or "models that have such a parameter",
        )
    name = depth or next((name for name in _DEPTHS if name in depths), None)
    counted = None
    if name is not None:
        counted = Depth(name, depths[name], _values_of(experiment, name, depths[name]))
    plan = PartialPlan.of_plan(usual.plan) | PartialPlan.of(
        workers=1, stages=1, tensor=1, accumulation=1, strategy="single", exchange="allreduce"
    )
    memories = list(dict.fromkeys(memories_bytes)) or [usual.limit_bytes]
    limits = {int((1.0 - MARGIN) * memory): memory for memory in memories}
    # A global batch for several workers would be too large a micro batch for one.
    params = {**usual.params, "global_batch": "auto"}
    capacities = find_capacity(experiment, params, list(limits), plan=plan, depth=counted)
    by_memory: dict[int, list[Capacity]] = {memory: [] for memory in memories}
    for capacity in capacities:
        memory = limits[capacity.limit_bytes]
        by_memory[memory].append(dataclasses.replace(capacity, limit_bytes=memory))
    return by_memory


def _depths_of(experiment: Experiment, usual: Usual) -> dict[str, int]:
    """Return the parameters of the model that are positive whole numbers, as far as known."""
    values: dict[str, object] = dict(model_values(experiment, usual.params))
    component = experiment.trained
    if component is not None and not component.is_reference:
        fields = configuration_type(component.name).model_fields
        values = {name: field.default for name, field in fields.items()} | values
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
    }


def _values_of(experiment: Experiment, name: str, now: int) -> list[int]:
    """Return the numbers of layers that the model can have. Some models only allow multiples."""
    component = experiment.trained
    if component is None or component.is_reference:
        return list(range(1, max(now, _MAX_LAYERS) + 1))
    field = configuration_type(component.name).model_fields[name]
    limits = [limit for constraint in field.metadata if (limit := getattr(constraint, "le", None))]
    possible = []
    for value in range(1, min(limits, default=_MAX_LAYERS) + 1):
        with contextlib.suppress(ExperimentError):
            check_value(component.name, name, value, field=f"model.{name}")
            possible.append(value)
    return possible

"""Estimates the memory of trials before they run, and which sizes of a model fit into memory.

Nothing is measured. `probes.memory_estimate` documents what such an estimate does not contain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import JsonValue

from workbench.advisor.open_settings import drawn_params
from workbench.cluster.workers.admission import Capacity, capacity_of, trials_at_once
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan, Plan
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.foundation.formatting import format_bytes
from workbench.hardware.performance.memory import MARGIN, MemoryLaw, StepMemory, fit_law
from workbench.hardware.resources import inventory, likely_cluster
from workbench.hardware.resources.inventory import ClusterInventory, allowed_bytes
from workbench.models.configurations import check_value, configuration_type
from workbench.training.planning.settings import model_values, resolve
from workbench.training.probes import capacity as probe
from workbench.training.probes.memory_estimate import MemoryEstimate, estimate_memory
from workbench.training.probes.model_summary import summarise_model

_DEPTHS = ("num_layers", "num_blocks")
_MAX_LAYERS = 1024
"""The greatest depth that is tried if the model declares no limit."""


def memory_limit_bytes(
    experiment: Experiment, capacity: Capacity, cluster: ClusterInventory
) -> float | None:
    """Return the memory of the worker that has the least, or None if it is unknown.

    Args:
        experiment: The experiment. If it sets the number of workers, only so many share a node.
        capacity: The resources of a worker, and the number of workers on each node.
        cluster: The nodes.
    """
    if capacity.shape.gpus > 0:
        limits_bytes = [
            allowed_bytes(gpu.memory_bytes, capacity.shape.gpus) for gpu in inventory().gpus
        ]
    else:
        workers, at_once = experiment.plan.decided.workers, capacity.num_workers
        if workers is not None and not experiment.resources.elastic:
            at_once = workers * trials_at_once(experiment, capacity)
        limits_bytes = [
            node.memory_bytes / min(count, at_once)
            for node, count in zip(cluster.nodes, capacity.workers_per_node, strict=True)
            if count > 0
        ]
    return min(limits_bytes, default=None)


@dataclass(frozen=True)
class MemoryForecast:
    """The estimated memory of one worker of a trial.

    Attributes:
        params: The configuration.
        plan: The complete plan.
        step: The memory of a step at the micro batch of the plan.
        law: The peak as a function of the micro batch.
        limit_bytes: The memory of one worker on this machine.
        device: The device: "cpu" or "cuda".
        num_train_samples: Samples of the training data.
    """

    params: dict[str, JsonValue]
    plan: Plan
    step: StepMemory
    law: MemoryLaw
    limit_bytes: int
    device: str
    num_train_samples: int

    @property
    def peak_bytes(self) -> int:
        """The peak memory of a step, in bytes."""
        return max(self.step.compute_peak_bytes, self.step.update_peak_bytes)

    @property
    def fits(self) -> bool:
        """Whether the peak fits, with the usual margin."""
        return self.peak_bytes <= (1.0 - MARGIN) * self.limit_bytes

    @property
    def largest_micro_batch(self) -> int:
        """The largest micro batch that fits with the usual margin, or 0 if none does."""
        return min(self.law.largest_micro_batch(self.limit_bytes), self.num_train_samples)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain = asdict(self)
        return plain | {
            "plan": self.plan.to_json(),
            "fits": self.fits,
            "largest_micro_batch": self.largest_micro_batch,
        }


@dataclass(frozen=True)
class Usual:
    """The one configuration that represents all trials, and the device that it would train on.

    Attributes:
        params: The configuration.
        plan: The complete plan.
        limit_bytes: The memory of one worker on this machine.
        device: The device: "cpu" or "cuda".
    """

    params: dict[str, JsonValue]
    plan: Plan
    limit_bytes: int
    device: str

    @classmethod
    def of(cls, experiment: Experiment, params: Mapping[str, JsonValue] | None = None) -> Usual:
        """Read an experiment and this machine.

        Args:
            experiment: The experiment.
            params: The configuration, or None for the first that the seed of the experiment draws.

        Raises:
            ExperimentError: If the experiment trains no model, or its settings exclude each other.
        """
        if not experiment.trains_model:
            field = "command"
            if experiment.command is None:
                field = "train"
            raise ExperimentError(
                "the memory of functions and programs cannot be estimated before they run",
                field=field,
            )
        if is_private(experiment):
            raise ExperimentError(
                "the memory of a private training cannot be estimated, because it computes a"
                " gradient for every sample",
                field="training.private",
            )
        chosen = drawn_params(experiment) if params is None else dict(params)
        here = inventory()
        on_gpu = bool(here.gpus) and experiment.resources.gpus_per_worker != 0
        device = "cuda" if on_gpu else "cpu"
        plan = resolve(experiment, chosen, hardware=Hardware(on_gpu, has_bf16=on_gpu)).plan
        cluster = likely_cluster()
        limit_bytes = memory_limit_bytes(experiment, capacity_of(experiment, cluster), cluster)
        if limit_bytes is None:
            limit_bytes = here.memory_bytes
        return cls(chosen, plan, int(limit_bytes), device)

    @property
    def micro_batches(self) -> tuple[int, int]:
        """The micro batch of the plan and twice that. Two points determine the memory law."""
        return self.plan.micro_batch, 2 * self.plan.micro_batch

    @property
    def decided(self) -> PartialPlan:
        """The plan without its micro batch."""
        plan = PartialPlan.of_plan(self.plan).without("micro_batch")
        # With one stage, the number of micro steps follows from the micro batch. With several, it
        # is the number of micro batches in the pipeline, which changes the memory.
        if plan.stages == 1:
            return plan.without("accumulation")
        return plan

    def forecast(self, estimate: MemoryEstimate) -> MemoryForecast:
        """Return the forecast for an estimate at `micro_batches`."""
        return MemoryForecast(
            params=self.params,
            plan=self.plan,
            step=estimate.steps[0],
            law=fit_law(estimate.steps),
            limit_bytes=self.limit_bytes,
            device=self.device,
            num_train_samples=estimate.num_train_samples,
        )


def forecast_memory(experiment: Experiment) -> MemoryForecast:
    """Estimate the memory of a worker for one configuration of an experiment.

    Args:
        experiment: The experiment. Its seed draws the first configuration of its search space.

    Raises:
        ExperimentError: If the experiment trains no model, or the model cannot be traced.
        WorkbenchError: If the data or the model cannot be created.
    """
    usual = Usual.of(experiment)
    return usual.forecast(
        estimate_memory(experiment, usual.params, usual.micro_batches, plan=usual.decided)
    )


def preview_model(
    experiment: Experiment, params: Mapping[str, JsonValue] | None = None
) -> dict[str, Any]:
    """Summarise the model of one configuration of an experiment. Takes a few seconds.

    Args:
        experiment: The experiment.
        params: The configuration, or None for the first that the seed of the experiment draws.

    Returns:
        Plain values: params and plan of the model, layers, num_parameters,
        num_trained_parameters, flops_per_sample (forward and backward), memory (None if it cannot
        be estimated), problems, and words. The words describe the model or say why the memory is
        unknown. They are None if the layers say everything.

    Raises:
        ExperimentError: If the experiment trains no model, or the model cannot be created or cannot
            process the data. The error contains the field.
        DataError: If the data cannot be read.
        RunError: If the child process ends without an answer.
    """
    usual = Usual.of(experiment, params)
    picture = summarise_model(experiment, usual.params, usual.micro_batches, plan=usual.decided)
    memory = None
    if picture.memory is not None:
        memory = _memory(usual.forecast(picture.memory))
    return {
        "params": usual.params,
        "plan": usual.plan.to_json(),
        "layers": list(picture.layers),
        "num_parameters": picture.num_parameters,
        "num_trained_parameters": picture.num_trained_parameters,
        "flops_per_sample": picture.flops_per_sample,
        "memory": memory,
        "problems": [problem.to_json() for problem in picture.problems],
        "words": picture.words,
    }


def _memory(forecast: MemoryForecast) -> dict[str, Any]:
    """Divide the peak memory of a step into its parts."""
    step = forecast.step
    parts = {
        "parameters": step.parameters_bytes,
        "gradients": step.gradients_bytes,
        "optimizer": step.optimizer_bytes,
    }
    # Activations are the rest of the peak. The difference can be negative: a large model with a
    # tiny batch may free some gradients before it computes the last ones.
    parts["activations"] = max(0, forecast.peak_bytes - sum(parts.values()))
    return {
        "micro_batch": step.micro_batch,
        "bytes": forecast.peak_bytes,
        "parts": parts,
        "limit_bytes": forecast.limit_bytes,
        "fits": forecast.fits,
        "largest_micro_batch": forecast.largest_micro_batch,
        "device": forecast.device,
        "words": _words(forecast),
    }


def _words(forecast: MemoryForecast) -> str:
    """Describe whether the model fits, and how certain that is."""
    fit = "does not fit into"
    if forecast.fits:
        fit = "fits into"
    return (
        f"{fit} the {format_bytes(forecast.limit_bytes)} that a worker has here (estimated from"
        " shapes alone, without the memory of libraries)"
    )


def sizes_that_fit(
    experiment: Experiment, memories_bytes: Sequence[int] = (), depth: str | None = None
) -> dict[int, list[probe.Capacity]]:
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
        counted = probe.Depth(name, depths[name], _values_of(experiment, name, depths[name]))
    plan = PartialPlan.of_plan(usual.plan) | PartialPlan.of(
        workers=1, stages=1, tensor=1, accumulation=1, strategy="single", exchange="allreduce"
    )
    memories = list(dict.fromkeys(memories_bytes)) or [usual.limit_bytes]
    limits = {int((1.0 - MARGIN) * memory): memory for memory in memories}
    # A global batch for several workers would be too large a micro batch for one.
    params = {**usual.params, "global_batch": "auto"}
    capacities = probe.find_capacity(experiment, params, list(limits), plan=plan, depth=counted)
    by_memory: dict[int, list[probe.Capacity]] = {memory: [] for memory in memories}
    for capacity in capacities:
        memory = limits[capacity.limit_bytes]
        by_memory[memory].append(replace(capacity, limit_bytes=memory))
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

"""What the trials of an experiment will need: memory, and whether a machine has it. Layers, sizes.

Nothing is measured: see `probes.memory_estimate` for what such an estimate omits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import JsonValue

from workbench.advisor.choices import drawn_params
from workbench.cluster.workers.capacity import Capacity, capacity_of, trials_at_once
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan, Plan
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import format_bytes
from workbench.hardware.performance.memory import MARGIN, MemoryLaw, StepMemory, fit_law
from workbench.hardware.resources import inventory, likely_cluster
from workbench.hardware.resources.cluster import ClusterInventory
from workbench.hardware.resources.memory import allowed_bytes
from workbench.training.planning.settings import resolve
from workbench.training.probes.memory_estimate import MemoryEstimate, estimate_memory
from workbench.training.probes.model_summary import summarise_model


def memory_limit_bytes(
    experiment: Experiment, capacity: Capacity, cluster: ClusterInventory
) -> float | None:
    """Return the memory that one worker has where it has least of it, or None if that is not known.

    Args:
        experiment: How many workers train at once, if that is decided, are all that share a
            node.
        capacity: What a worker uses, and how many each node holds.
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
    """What one worker of a trial is thought to hold.

    Attributes:
        params: The configuration.
        plan: Its plan in full.
        step: What a step at the micro batch of the plan holds, in bytes.
        law: The peak at other micro batches.
        limit_bytes: What one worker has on this machine.
        device: On what: "cpu" or "cuda".
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
        """The most that a step holds at any moment."""
        return max(self.step.compute_peak_bytes, self.step.update_peak_bytes)

    @property
    def fits(self) -> bool:
        """Whether that fits, with the usual margin."""
        return self.peak_bytes <= (1.0 - MARGIN) * self.limit_bytes

    @property
    def largest_micro_batch(self) -> int:
        """The largest micro batch of the training data that fits, with the usual margin.

        0 if none does.
        """
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
    """The one configuration that stands for all trials of an experiment, and where it would train.

    Attributes:
        params: The configuration.
        plan: Its plan in full.
        limit_bytes: What one worker has on this machine.
        device: On what: "cpu" or "cuda".
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
            ExperimentError: If it trains no model, or settings exclude each other.
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
                "the memory of gradients of single samples is not estimated",
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
        """The micro batch of the plan, and another to draw the line through."""
        return self.plan.micro_batch, 2 * self.plan.micro_batch

    @property
    def decided(self) -> PartialPlan:
        """What is decided of the plan where micro batches are compared."""
        plan = PartialPlan.of_plan(self.plan).without("micro_batch")
        if plan.stages == 1:
            return plan.without("accumulation")
        return plan

    def forecast(self, estimate: MemoryEstimate) -> MemoryForecast:
        """Return what follows from an estimate at `micro_batches`."""
        return MemoryForecast(
            self.params,
            self.plan,
            estimate.steps[0],
            fit_law(estimate.steps),
            self.limit_bytes,
            self.device,
            estimate.num_train_samples,
        )


def forecast_memory(experiment: Experiment) -> MemoryForecast:
    """Estimate the memory of a worker for one configuration of an experiment.

    Args:
        experiment: The experiment. Its seed draws the first configuration of its search space.

    Raises:
        ExperimentError: If it trains no model, or the model cannot be run without values.
        WorkbenchError: If data or model cannot be made.
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
        Plain values: params and plan (of the model shown), layers, num_parameters,
        num_trained_parameters, flops_per_sample (forward and backward), memory (None if it
        cannot be estimated), problems, words (a description, or why the memory is unknown. None
        where the layers show it).

    Raises:
        ExperimentError: If it trains no model, or the model cannot be made or cannot take the data.
            It names the field.
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
    """Divide the peak of a step into what makes it up."""
    step = forecast.step
    parts = {
        "parameters": step.parameters_bytes,
        "gradients": step.gradients_bytes,
        "optimizer": step.optimizer_bytes,
    }
    # What lives only during a step. A large model with a tiny batch never has all its gradients at
    # the peak.
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
    """Describe whether it fits, and how sure that is."""
    fit = "does not fit into"
    if forecast.fits:
        fit = "fits into"
    return (
        f"{fit} the {format_bytes(forecast.limit_bytes)} that a worker has here (estimated from"
        " shapes alone, without the memory of libraries)"
    )

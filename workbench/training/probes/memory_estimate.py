"""What a step of a trial will hold in memory, before anything runs.

The trial's own model, strategy and optimizer make steps on torch's fake tensors, which have shapes
and no storage. That happens in a child process (`python -m
workbench.training.probes.memory_estimate`), because code that reads values may end a process there.
An estimate knows nothing of workspaces, fragmentation and what a device's libraries take; what fits
in the end is left to probes on the device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.hardware.performance.memory import StepMemory
from workbench.training.probes.child_process import answer, query

NUM_STEPS = 2
"""The first step has no optimizer state yet."""


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """What one worker holds at some micro batches, and how large these could be.

    Attributes:
        steps: One estimate for each micro batch.
        num_train_samples: Samples of the training data, more than which no micro batch has.
    """

    steps: tuple[StepMemory, ...]
    num_train_samples: int

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MemoryEstimate:
        """Read what `estimate_here` returns."""
        return cls(
            tuple(StepMemory(**step) for step in values["steps"]), values["num_train_samples"]
        )


def estimate_memory(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    micro_batches: Sequence[int],
    *,
    plan: PartialPlan,
) -> MemoryEstimate:
    """Estimate what one worker holds at some micro batches.

    Args:
        experiment: The experiment; it trains a model.
        params: The configuration of a trial.
        micro_batches: Micro batches, each at least 1.
        plan: What is decided of the plan; it takes precedence over experiment and configuration.

    Raises:
        ExperimentError: If the model or the data cannot be made, or cannot be run without values.
        DataError: If the data cannot be read.
        RunError: If the process that estimates ends without an answer.
    """
    question = {
        "params": dict(params),
        "micro_batches": list(micro_batches),
        "plan": plan.to_json(),
    }
    reply = query(__name__, experiment, question, purpose="memory could not be estimated")
    return MemoryEstimate.from_json(reply)


def estimate_here(experiment: Experiment, question: Mapping[str, Any]) -> dict[str, Any]:
    """Estimate in this process, which should be one of its own.

    Args:
        experiment: As in `estimate_memory`.
        question: Its other arguments, by name.

    Returns:
        A `MemoryEstimate` in plain values.

    Raises:
        WorkbenchError: As `estimate_memory`.
    """
    from workbench.training.probes.fake_steps import FakeTrial

    trial = FakeTrial(experiment, question["params"], PartialPlan.from_json(question["plan"]))
    steps = [trial.step_memory(micro_batch, NUM_STEPS) for micro_batch in question["micro_batches"]]
    return {
        "steps": [dataclasses.asdict(step) for step in steps],
        "num_train_samples": trial.num_train_samples,
    }


if __name__ == "__main__":
    answer(estimate_here)

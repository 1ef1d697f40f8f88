"""Estimates the memory of trials' steps before anything runs.

The trial's own model, strategy and optimizer make steps on torch's fake tensors, which have shapes
but no storage. This happens in a child process (`python -m
workbench.training.probes.memory_estimate`), because code that reads values may crash it. All trials
of a search share one child process, which loads the data once.

An estimate does not include workspaces, fragmentation and a device's libraries. Only probes on the
device show what really fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.experiment.searched_fields import data_params
from workbench.experiment.space import Params
from workbench.foundation.errors import WorkbenchError
from workbench.hardware.performance.memory import StepMemory
from workbench.training.probes.child_process import answer, query

NUM_STEPS = 2
"""Two, because the optimizer has no state in the first step."""
_TIMEOUT_S = 60.0
_ENOUGH_S = 30.0
"""Seconds after which no further configuration is traced. Tracing a deep model takes a few."""
_DIVISION = ("micro_batch", "accumulation")


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """The memory of one worker at some micro batches.

    Attributes:
        steps: One estimate for each micro batch.
        num_train_samples: Samples of the training data, the largest possible micro batch.
    """

    steps: tuple[StepMemory, ...]
    num_train_samples: int

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MemoryEstimate:
        """Read a result of `estimate_here`."""
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
    """Estimate the memory of one worker at some micro batches.

    Args:
        experiment: The experiment. It must train a model.
        params: The configuration of a trial.
        micro_batches: Micro batches, each at least 1.
        plan: Decisions about the plan, which take precedence over experiment and configuration.

    Raises:
        ExperimentError: If the model or the data cannot be made, or the model cannot run without
            values.
        DataError: If the data cannot be read.
        RunError: If the child process ends without an answer.
    """
    question = {
        "params": dict(params),
        "micro_batches": list(micro_batches),
        "plan": plan.to_json(),
    }
    reply = query(__name__, experiment, question, purpose="memory could not be estimated")
    return MemoryEstimate.from_json(reply)


def estimate_here(experiment: Experiment, question: Mapping[str, Any]) -> dict[str, Any]:
    """Estimate in this process, which should be a child process.

    Args:
        experiment: The experiment. It must train a model.
        question: The other arguments of `estimate_memory`, by name.

    Returns:
        A `MemoryEstimate` as plain values.

    Raises:
        WorkbenchError: See `estimate_memory`.
    """
    from workbench.training.probes.fake_steps import FakeTrial

    trial = FakeTrial(experiment, question["params"], PartialPlan.from_json(question["plan"]))
    steps = [trial.step_memory(micro_batch, NUM_STEPS) for micro_batch in question["micro_batches"]]
    return {
        "steps": [dataclasses.asdict(step) for step in steps],
        "num_train_samples": trial.num_train_samples,
    }


def estimate_peaks(
    experiment: Experiment,
    trials: Sequence[tuple[Params, PartialPlan]],
    *,
    num_first: int,
    limit_bytes: float,
) -> list[int | None]:
    """Estimate the peak memory of a step of each trial, on one worker.

    A trial that runs out of memory divides its batch. So the smallest micro batch counts, unless
    the search space has the micro batch or the accumulation.

    Args:
        experiment: The experiment. It must train a model.
        trials: Configurations, each with the decided part of its plan.
        num_first: If this many trials fit, no others are estimated.
        limit_bytes: The available memory.

    Returns:
        Bytes of each trial, or None if its memory cannot be estimated. Only the first trials are
        estimated, and fewer of them if that takes long. A trial that keeps more than
        `plan.recompute` allows exceeds the memory by the same factor.

    Raises:
        WorkbenchError: If the data cannot be read, or the child process ends without an answer.
    """
    question = {
        "trials": [[dict(params), plan.to_json()] for params, plan in trials],
        "num_first": num_first,
        "limit_bytes": limit_bytes,
        "enough_s": _ENOUGH_S,
    }
    return query(
        __name__,
        experiment,
        question,
        purpose="memory could not be predicted",
        timeout_s=_TIMEOUT_S,
    )


def peaks_here(experiment: Experiment, question: Mapping[str, Any]) -> list[int | None]:
    """Estimate in this process, which should be a child process. See `estimate_peaks`."""
    from workbench.training.loading import load_trial_data
    from workbench.training.probes.fake_steps import FakeTrial
    from workbench.training.strategies.kept_blocks import KeepsTooMuchError

    began_s = perf_counter()
    peaks: list[int | None] = []
    for number, (params, plan) in enumerate(question["trials"]):
        if (
            number == question["num_first"]
            and max(filter(None, peaks), default=0) <= question["limit_bytes"]
        ):
            break
        if perf_counter() - began_s > question["enough_s"]:
            break
        try:
            # Trials that read the data in the same way share it.
            datasets = load_trial_data("estimate", experiment, params=data_params(params))
            trial = FakeTrial(experiment, params, PartialPlan.from_json(plan), datasets=datasets)
            micro_batch = trial.micro_batch if any(name in params for name in _DIVISION) else 1
            step = trial.step_memory(micro_batch, NUM_STEPS)
            peaks.append(max(step.compute_peak_bytes, step.update_peak_bytes))
        except KeepsTooMuchError as error:
            peaks.append(
                None if error.excess is None else int(error.excess * question["limit_bytes"])
            )
        except WorkbenchError:
            peaks.append(None)
    return peaks


def _answer(experiment: Experiment, question: Mapping[str, Any]) -> Any:
    """Answer one of the two questions."""
    return (peaks_here if "trials" in question else estimate_here)(experiment, question)


if __name__ == "__main__":
    answer(_answer)

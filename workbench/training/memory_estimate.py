"""What a step of a trial will hold in memory, before anything runs.

The trial's own model, strategy and optimizer make steps on torch's fake tensors, which have shapes and no
storage. That happens in a child process (`python -m workbench.training.memory_estimate`), because code that
looks at values may end a process there. An estimate knows nothing of workspaces, fragmentation and
what a device's libraries take; what fits in the end is left to probes on the device.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from workbench.errors import ExperimentError, RunError
from workbench.experiment import Experiment
from workbench.performance.memory import StepMemory

TIMEOUT_S = 300.0
NUM_STEPS = 2
"""The first step has no optimizer state yet."""


def estimate_memory(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    micro_batches: Sequence[int],
    *,
    plan: Mapping[str, JsonValue] | None = None,
) -> list[StepMemory]:
    """Estimate what one worker holds at some micro batches.

    Args:
        experiment: The experiment; it trains a model.
        params: The configuration of a trial.
        micro_batches: Micro batches, each at least 1.
        plan: What of the plan is decided over experiment and configuration: workers, strategy, precision,
            recompute.

    Returns:
        One estimate for each micro batch.

    Raises:
        ExperimentError: If the model or the data cannot be made, or cannot be run without values.
        RunError: If the process that estimates ends without an answer.
    """
    order = {
        "experiment": experiment.model_dump(mode="json"),
        "payloads": {name: payload.hex() for name, payload in experiment.payloads().items()},
        "params": dict(params),
        "micro_batches": list(micro_batches),
        "plan": dict(plan or {}),
        "search_path": sys.path,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__], input=json.dumps(order), capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RunError(f"memory could not be estimated within {TIMEOUT_S:g} s") from error
    lines = done.stdout.splitlines()
    answer = json.loads(lines[-1]) if done.returncode == 0 and lines else None
    if answer is None:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"memory could not be estimated: the process ended with {done.returncode}: {last}")
    if "problem" in answer:
        raise ExperimentError(**answer)
    return [StepMemory(**step) for step in answer["steps"]]


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order in this process."""
    from workbench.errors import WorkbenchError
    from workbench.training.fake_steps import FakeTrial

    try:
        experiment = Experiment(**order["experiment"])
        payloads = {name: bytes.fromhex(payload) for name, payload in order["payloads"].items()}
        trial = FakeTrial(experiment.with_payloads(payloads), order["params"], order["plan"])
        steps = [trial.step_memory(micro_batch, NUM_STEPS) for micro_batch in order["micro_batches"]]
    except WorkbenchError as error:
        return {
            "problem": error.problem, "field": error.field, "allowed": error.allowed,
            "next_step": error.next_step,
        }  # fmt: skip
    return {"steps": [dataclasses.asdict(step) for step in steps]}


if __name__ == "__main__":
    order = json.load(sys.stdin)
    sys.path[:] = dict.fromkeys([*order["search_path"], *sys.path])
    print(json.dumps(_answer(order)))

"""Asks a child process a question about an experiment.

Your code may do anything there: read values that do not exist, fill the memory, or end the process.
The calling process does not change, and does not keep your imports. Answering is left to a module
for each question.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment import Experiment
from workbench.foundation.errors import DataError, ExperimentError, RunError, WorkbenchError
from workbench.store.history.failure_text import headline
from workbench.training.probes import warm_process
from workbench.training.programs.last_error import last_error

TIMEOUT_S = 300.0
_OF_MODELS = "workbench.training.assembly"
"""Loads torch, and what most questions about a model need."""
_WITHOUT_VALUES = ("capacity", "memory_estimate", "model_summary")
"""Modules that compute with fake tensors. For these, torch imports its compiler, which takes as
long as importing torch.
"""


class NoAnswerInTimeError(RunError):
    """The process was killed because it took too long."""


_KINDS: dict[str, type[WorkbenchError]] = {"DataError": DataError, "RunError": RunError}


def query(
    module: str,
    experiment: Experiment,
    question: Mapping[str, Any],
    *,
    purpose: str,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """Return the answer of a module to a question about an experiment.

    Args:
        module: The module. It calls `answer` when it is run as a program.
        experiment: The experiment, with its embedded objects.
        question: Plain values.
        purpose: The message if there is no answer, such as "memory could not be estimated".
        timeout_s: Seconds after which the process is killed.

    Returns:
        The answer of the module, as plain values.

    Raises:
        WorkbenchError: If the answer is an error.
        NoAnswerInTimeError: If the process takes too long.
        RunError: If the process ends without an answer.
    """
    order = {
        "experiment": experiment.model_dump(mode="json"),
        "payloads": {name: payload.hex() for name, payload in experiment.payloads().items()},
        "question": dict(question),
        "search_path": sys.path,
    }
    try:
        done = _run(module, json.dumps(order), timeout_s, _needed(module, experiment))
    except subprocess.TimeoutExpired as error:
        raise NoAnswerInTimeError(f"{purpose} within {timeout_s:g} s") from error
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        error = headline(last_error(done.stderr)) or "no message"
        raise RunError(f"{purpose}: the process ended with {done.returncode}: {error}")
    reply = json.loads(lines[-1])
    if "refused" in reply:
        raise _KINDS.get(reply["kind"], ExperimentError)(**reply["refused"])
    return reply["answer"]


def _needed(module: str, experiment: Experiment) -> list[str]:
    """Return the modules to load before a module answers.

    Without a model, that is only the module itself: your functions and programs may not need torch.
    """
    needed = [module]
    if experiment.model is not None:
        needed.append(_OF_MODELS)
        if module.rpartition(".")[2] in _WITHOUT_VALUES:
            needed.append("torch._dynamo")
    return needed


def _run(
    module: str, text: str, timeout_s: float, load: list[str]
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    if warm_process.IS_POSSIBLE:
        with contextlib.suppress(warm_process.NotStartedError):
            return warm_process.run(
                module, text, environment=environment, timeout_s=timeout_s, load=load
            )
    return subprocess.run(
        [sys.executable, "-m", module],
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=environment,
    )


def answer(function: Callable[[Experiment, dict[str, Any]], Any]) -> None:
    """Read an experiment and a question from stdin, and print the function's answer to stdout."""
    order = json.load(sys.stdin)
    sys.path[:] = dict.fromkeys([*order["search_path"], *sys.path])
    payloads = {name: bytes.fromhex(payload) for name, payload in order["payloads"].items()}
    reply: dict[str, Any]
    try:
        experiment = Experiment(**order["experiment"]).with_payloads(payloads)
        with contextlib.redirect_stdout(sys.stderr):  # your code may print, and stdout is ours
            reply = {"answer": function(experiment, order["question"])}
    except WorkbenchError as error:
        reply = {"kind": type(error).__name__, "refused": error.to_json()}
    print(json.dumps(reply))

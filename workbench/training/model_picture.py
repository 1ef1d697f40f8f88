"""What a model is for its data, before anything runs: its layers, its parameters, its operations, its memory.

The trial's own model is sent torch's fake tensors, which have shapes and no storage, in a child process
(`python -m workbench.training.model_picture`). One that looks at values is sent two real samples instead;
only its memory is then left to probes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from workbench.errors import ExperimentError, WorkbenchError
from workbench.experiment import Experiment
from workbench.performance.memory import StepMemory
from workbench.training.child_process import answer, ask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from workbench.data import Datasets
    from workbench.models.configurations import FittedConfiguration
    from workbench.training.settings import TrialSettings

NUM_SAMPLES = 2
"""Normalisation over a batch needs more than one."""


@dataclass(frozen=True)
class ModelPicture:
    """What is known of a model for its data.

    Attributes:
        layers: Its modules; as in `models.layers.Layer`, plain values.
        num_parameters: All parameters, shared ones once.
        num_trained_parameters: Those that training changes.
        flops_per_sample: Operations of forward and backward of a sample; None where they cannot be counted.
        steps: What a worker holds, one for each micro batch; empty where that cannot be estimated.
        problems: What is wrong, or could not be found out.
        words: What the model is, where it has no layers.
    """

    layers: tuple[dict[str, Any], ...]
    num_parameters: int
    num_trained_parameters: int
    flops_per_sample: float | None
    steps: tuple[StepMemory, ...]
    problems: tuple[ExperimentError, ...]
    words: str | None = None


def picture_model(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    micro_batches: Sequence[int],
    *,
    plan: Mapping[str, JsonValue],
) -> ModelPicture:
    """Look at the model of one configuration.

    Args:
        experiment: The experiment; it trains a model.
        params: The configuration.
        micro_batches: Micro batches to estimate the memory at, each at least 1.
        plan: What of the plan is decided over both: workers, strategy, precision, recompute.

    Raises:
        ExperimentError: If the model cannot be made or cannot take the data; it names the field.
        DataError: If the data cannot be read.
        RunError: If the process that looks ends without an answer.
    """
    question = {"params": dict(params), "micro_batches": list(micro_batches), "plan": dict(plan)}
    told = ask(__name__, experiment, question, purpose="the model could not be looked at")
    return ModelPicture(
        layers=tuple(told["layers"]),
        num_parameters=told["num_parameters"],
        num_trained_parameters=told["num_trained_parameters"],
        flops_per_sample=told["flops_per_sample"],
        steps=tuple(StepMemory(**step) for step in told["steps"]),
        problems=tuple(ExperimentError(**problem) for problem in told["problems"]),
        words=told.get("words"),
    )


def _answer(experiment: Experiment, question: dict[str, Any]) -> dict[str, Any]:
    """Look at the model in this process."""
    from workbench.training.loading import load_trial_data
    from workbench.training.memory_estimate import estimate_here
    from workbench.training.settings import fitted_of, resolve

    params, plan = question["params"], question["plan"]
    settings = resolve(experiment, params, device="cuda", has_bf16=True, decided=plan)
    datasets = load_trial_data("estimate", experiment)
    fitted = fitted_of(experiment, params)
    if fitted is not None:
        return _describe_fitted(fitted, datasets)
    told, problems = _look(experiment, params, settings, datasets)
    steps: list[dict[str, Any]] = []
    if told["flops_per_sample"] is not None:  # else no step can be made
        try:
            steps = estimate_here(experiment, question)
        except WorkbenchError as error:
            problems.append(error)
    return {**told, "steps": steps, "problems": [problem.to_json() for problem in problems]}


def _describe_fitted(configuration: FittedConfiguration, datasets: Datasets) -> dict[str, Any]:
    """Say what a model is that is fitted to all samples at once: it has no layers and makes no steps."""
    configuration.build(  # refuses data that it cannot take
        input_shape=datasets.input_shape,
        num_outputs=datasets.num_outputs,
        vocabulary_size=datasets.vocabulary_size,
    )
    grown = configuration.describe(datasets.num_outputs if datasets.task == "classification" else None)
    nothing = {"layers": [], "num_parameters": 0, "num_trained_parameters": 0, "flops_per_sample": None}
    return nothing | {
        "steps": [],
        "problems": [],
        "words": f"{grown}. They have no layers, and are grown from all samples without optimizer steps.",
    }


def _look(
    experiment: Experiment, params: Mapping[str, JsonValue], settings: TrialSettings, datasets: Datasets
) -> tuple[dict[str, Any], list[WorkbenchError]]:
    """Send fake samples through the model, or real ones where it looks at them."""
    import numpy as np
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from workbench.models.layers import needs_values
    from workbench.training.source import Source

    source = Source(datasets.train, torch.device("cpu"))
    samples = source.fetch(np.resize(np.arange(len(source)), NUM_SAMPLES))
    for mode in (FakeTensorMode(), contextlib.nullcontext()):
        try:
            with mode as fake:
                inputs, targets = samples
                if fake is not None:
                    inputs, targets = (torch.empty(part.shape, dtype=part.dtype) for part in samples)
                model = _build(experiment, params, settings, datasets)
                return _describe(experiment, datasets, model, inputs, targets)
        except needs_values():
            continue
    raise ExperimentError(
        "the model can be run neither with values nor without", field="model",
        next_step="Try it as a sweep of one trial, whose log tells more.",
    )  # fmt: skip


def _build(
    experiment: Experiment, params: Mapping[str, JsonValue], settings: TrialSettings, datasets: Datasets
) -> nn.Module:
    from workbench.training.assembly import build_trial_model

    assert experiment.model is not None
    try:
        return build_trial_model(experiment, params, settings, datasets)
    except WorkbenchError as error:
        section, _, name = (error.field or "").partition(".")
        written = section == "search" and name not in experiment.search.root
        raise error.about(f"model.{name}" if written and name else error.field) from error
    except Exception as error:  # it is a person's code
        raise ExperimentError(
            f"could not be made: {type(error).__name__}: {error}",
            field="model",
            next_step=f"It was called with {dict(params) or 'no parameters'}.",
        ) from error


def _describe(
    experiment: Experiment, datasets: Datasets, model: nn.Module, inputs: Tensor, targets: Tensor
) -> tuple[dict[str, Any], list[WorkbenchError]]:
    from workbench.models.adapters import num_parameters
    from workbench.models.layers import describe_layers, needs_values
    from workbench.performance.flops import count_flops
    from workbench.training.assembly import loss_of

    layers = describe_layers(model, inputs)
    problems: list[WorkbenchError] = list(_too_few_outputs(experiment, datasets, model, inputs))
    flops: float | None = None
    try:
        flops = count_flops(model, loss_of(experiment, datasets), inputs, targets) / len(inputs)
    except (WorkbenchError, *needs_values()):
        raise
    except Exception as error:  # the loss of a person, or one that does not fit the model
        problems.append(_loss_refused(experiment, error))
    told = {
        "layers": [dataclasses.asdict(layer) for layer in layers],
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "num_trained_parameters": num_parameters(model),
        "flops_per_sample": flops,
    }
    return told, problems


def _too_few_outputs(
    experiment: Experiment, datasets: Datasets, model: nn.Module, inputs: Tensor
) -> list[ExperimentError]:
    """Say where there are classes that a model could never answer, which fake values would not show."""
    outputs = model(inputs)
    is_plain = datasets.task == "classification" and experiment.loss is None
    if not is_plain or getattr(outputs, "ndim", 0) != 2 or outputs.shape[1] >= datasets.num_outputs:
        return []
    return [
        ExperimentError(
            f"answers with {outputs.shape[1]} numbers and the data has {datasets.num_outputs} classes",
            field="model",
            allowed=f"outputs of shape ('batch', {datasets.num_outputs})",
        )
    ]


def _loss_refused(experiment: Experiment, error: Exception) -> ExperimentError:
    said = str(error).strip().splitlines() or ["no message"]
    return ExperimentError(
        f"the loss cannot take what the model returns: {type(error).__name__}: {said[0]}",
        field="model" if experiment.loss is None else "loss",
        next_step="Change what the model returns, or choose another loss.",
    )


if __name__ == "__main__":
    answer(_answer)

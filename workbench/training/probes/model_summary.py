"""Summarises a model for its data before it runs: layers, parameters, operations, memory.

The trial's own model receives torch's fake tensors, which have shapes but no storage, in a child
process (`python -m workbench.training.probes.model_summary`). If a model reads values, it receives
two real samples instead, and its memory is not estimated.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan
from workbench.experiment.searched_fields import data_params
from workbench.foundation.errors import ExperimentError, WorkbenchError, first_line_of
from workbench.training.probes.child_process import answer, query
from workbench.training.probes.memory_estimate import MemoryEstimate, estimate_here

if TYPE_CHECKING:
    from torch import nn

    from workbench.data import Datasets
    from workbench.models.configurations import FittedConfiguration
    from workbench.training.planning.settings import TrialSettings

NUM_SAMPLES = 2
"""More than one, because batch normalisation needs that."""
_MEMORY_UNKNOWN = (
    "Its memory cannot be estimated before it runs, because the model or its optimizer reads"
    " values. `workbench advise` measures it."
)


@dataclass(frozen=True)
class ModelSummary:
    """The summary of a model for its data.

    Attributes:
        layers: Its modules, each a `models.layers.Layer` as plain values.
        num_parameters: Number of parameters. Shared parameters count once.
        num_trained_parameters: Number of parameters that the training changes.
        flops_per_sample: Operations of forward and backward for a sample, or None if they cannot be
            counted.
        memory: Memory of a worker, or None if it cannot be estimated.
        problems: Errors, including reasons why something above is unknown.
        words: A description of a model without layers, or why the memory is unknown.
    """

    layers: tuple[dict[str, Any], ...]
    num_parameters: int
    num_trained_parameters: int
    flops_per_sample: float | None
    memory: MemoryEstimate | None
    problems: tuple[ExperimentError, ...]
    words: str | None = None


def summarise_model(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    micro_batches: Sequence[int],
    *,
    plan: PartialPlan,
) -> ModelSummary:
    """Summarise the model of one configuration.

    Args:
        experiment: The experiment. It must train a model.
        params: The configuration.
        micro_batches: Micro batches to estimate the memory at, each at least 1.
        plan: Decisions about the plan. They take precedence over experiment and configuration.

    Raises:
        ExperimentError: If the model cannot be made or cannot take the data.
        DataError: If the data cannot be read.
        RunError: If the child process ends without an answer.
    """
    question = {
        "params": dict(params),
        "micro_batches": list(micro_batches),
        "plan": plan.to_json(),
    }
    reply = query(__name__, experiment, question, purpose="the model could not be inspected")
    return ModelSummary(
        layers=tuple(reply["layers"]),
        num_parameters=reply["num_parameters"],
        num_trained_parameters=reply["num_trained_parameters"],
        flops_per_sample=reply["flops_per_sample"],
        memory=None if reply["memory"] is None else MemoryEstimate.from_json(reply["memory"]),
        problems=tuple(ExperimentError(**problem) for problem in reply["problems"]),
        words=reply.get("words"),
    )


def _answer(experiment: Experiment, question: dict[str, Any]) -> dict[str, Any]:
    """Summarise the model in this process."""
    from workbench.models.layers import needs_values
    from workbench.training.loading import load_trial_data
    from workbench.training.planning.settings import fitted_of, resolve

    params, plan = question["params"], PartialPlan.from_json(question["plan"])
    settings = resolve(
        experiment, params, hardware=Hardware(has_gpu=True, has_bf16=True), decided=plan
    )
    datasets = load_trial_data("estimate", experiment, params=data_params(params))
    fitted = fitted_of(experiment, params, loads_code=True)
    if fitted is not None:
        return _describe_fitted(fitted, datasets)
    summary, problems = _inspect(experiment, params, settings, datasets)
    memory: dict[str, Any] | None = None
    if summary["flops_per_sample"] is not None:  # otherwise no step can be made
        try:
            memory = estimate_here(experiment, question)
        except WorkbenchError as error:
            if not isinstance(error.__cause__, needs_values()):
                problems.append(error)
            else:  # not an error, because the model can still be trained
                summary["words"] = _MEMORY_UNKNOWN
    return {**summary, "memory": memory, "problems": [problem.to_json() for problem in problems]}


def _describe_fitted(configuration: FittedConfiguration, datasets: Datasets) -> dict[str, Any]:
    """Describe a model that is fitted to all samples at once, so it has no layers or steps."""
    configuration.build(  # raises an error if it cannot take the data
        input_shape=datasets.input_shape,
        num_outputs=datasets.num_outputs,
        vocabulary_size=datasets.vocabulary_size,
    )
    grown = configuration.describe(
        datasets.num_outputs if datasets.task == "classification" else None
    )
    nothing = {
        "layers": [],
        "num_parameters": 0,
        "num_trained_parameters": 0,
        "flops_per_sample": None,
    }
    return nothing | {
        "memory": None,
        "problems": [],
        "words": f"{grown}. There are no layers: all samples are fitted without optimizer steps.",
    }


def _inspect(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    settings: TrialSettings,
    datasets: Datasets,
) -> tuple[dict[str, Any], list[WorkbenchError]]:
    """Send fake samples through the model, or real samples if it reads their values."""
    import numpy as np
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from workbench.models.layers import needs_values
    from workbench.models.model_calls import map_tensors
    from workbench.training.tensor_source import Source

    source = Source(datasets.train, torch.device("cpu"))
    samples = source.fetch(np.resize(np.arange(len(source)), NUM_SAMPLES))
    # Fake samples need no memory, so the model may be larger than this machine. Models that read
    # values raise an error then, and get real samples.
    for mode in (FakeTensorMode(), contextlib.nullcontext()):
        try:
            with mode as fake:
                inputs, targets = samples
                if fake is not None:
                    inputs, targets = (
                        map_tensors(
                            lambda part: torch.empty(part.shape, dtype=part.dtype), part_of_batch
                        )
                        for part_of_batch in samples
                    )
                model = _build(experiment, params, settings, datasets)
                return _describe(experiment, datasets, model, inputs, targets)
        except needs_values():
            continue
    raise ExperimentError(
        "the model runs neither on fake samples nor on real ones",
        field="model",
        next_step="Run a sweep of one trial and read its log.",
    )


def _build(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    settings: TrialSettings,
    datasets: Datasets,
) -> nn.Module:
    from workbench.training.assembly import build_trial_model

    assert experiment.trained is not None
    try:
        return build_trial_model(experiment, params, settings, datasets, pretrained=False)
    except WorkbenchError as error:
        section, _, name = (error.field or "").partition(".")
        written = section == "search" and name not in experiment.search.root
        raise error.about(f"model.{name}" if written and name else error.field) from error
    except Exception as error:  # user code
        raise ExperimentError(
            f"the model could not be made: {type(error).__name__}: {error}",
            field="model",
            next_step=f"It was called with {dict(params) or 'no parameters'}.",
        ) from error


def _describe(
    experiment: Experiment, datasets: Datasets, model: nn.Module, inputs: Any, targets: Any
) -> tuple[dict[str, Any], list[WorkbenchError]]:
    from workbench.models.adapters import num_parameters
    from workbench.models.layers import describe_layers, needs_values
    from workbench.models.model_calls import num_samples
    from workbench.training.loss_and_metrics import call_of, count_step_flops

    layers = describe_layers(model, inputs, call_of(experiment))
    problems: list[WorkbenchError] = list(_too_few_outputs(experiment, datasets, model, inputs))
    flops: float | None = None
    try:
        flops = count_step_flops(experiment, datasets, model, inputs, targets) / num_samples(inputs)
    except needs_values():
        raise
    except Exception as error:  # a custom loss, or one that does not fit the model
        if not problems:  # otherwise it would repeat the first one
            problems.append(_loss_refused(experiment, error))
    summary = {
        "layers": [dataclasses.asdict(layer) for layer in layers],
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "num_trained_parameters": num_parameters(model),
        "flops_per_sample": flops,
    }
    return summary, problems


def _too_few_outputs(
    experiment: Experiment, datasets: Datasets, model: nn.Module, inputs: Any
) -> list[ExperimentError]:
    """Return an error if a model has fewer outputs than the data has classes.

    The loss does not notice it, because fake targets have no values.
    """
    from workbench.models.model_calls import output_in
    from workbench.training.loss_and_metrics import call_of

    outputs = output_in(call_of(experiment)(model, inputs))
    is_plain = datasets.task == "classification" and experiment.loss is None
    if not is_plain or getattr(outputs, "ndim", 0) != 2 or outputs.shape[1] >= datasets.num_outputs:
        return []
    if outputs.shape[1] == 1 and datasets.num_outputs == 2:  # one score separates two classes
        return []
    return [
        ExperimentError(
            f"the model returns {outputs.shape[1]} numbers, but the data has"
            f" {datasets.num_outputs} classes",
            field="model",
            allowed=f"outputs of shape ('batch', {datasets.num_outputs})",
        )
    ]


def _loss_refused(experiment: Experiment, error: Exception) -> ExperimentError:
    if isinstance(error, WorkbenchError):
        return ExperimentError(
            f"the loss cannot take the outputs of the model: {error.problem}",
            field=error.field,
            allowed=error.allowed,
            next_step=error.next_step,
        )
    return ExperimentError(
        f"the loss cannot take the outputs of the model: {type(error).__name__}:"
        f" {first_line_of(error)}",
        field="model" if experiment.loss is None else "loss",
        next_step="Change the outputs of the model, or choose another loss.",
    )


if __name__ == "__main__":
    answer(_answer)

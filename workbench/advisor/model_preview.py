"""The model of an experiment before anything runs: layers, sizes, memory, operations.

The summary is made by `probes.model_summary`; here it is compared with this machine and returned as
plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from workbench.advisor.memory import MemoryForecast, Usual
from workbench.experiment import Experiment
from workbench.foundation.formatting import format_bytes
from workbench.training.probes.model_summary import summarise_model


def preview_model(
    experiment: Experiment, params: Mapping[str, JsonValue] | None = None
) -> dict[str, Any]:
    """Summarise the model of one configuration of an experiment; takes some seconds.

    Args:
        experiment: The experiment.
        params: The configuration; None for the first that the seed of the experiment draws.

    Returns:
        Plain values: params and plan (of the model shown), layers, num_parameters,
        num_trained_parameters, flops_per_sample (forward and backward), memory (None where it
        cannot be estimated), problems, words (a description, or why the memory is unknown; None
        where the layers show it).

    Raises:
        ExperimentError: If it trains no model, or the model cannot be made or cannot take the data;
            it names the field.
        DataError: If the data cannot be read.
        RunError: If the child process ends without an answer.
    """
    usual = Usual.of(experiment, params)
    picture = summarise_model(experiment, usual.params, usual.micro_batches, plan=usual.decided)
    return {
        "params": usual.params,
        "plan": usual.plan.to_json(),
        "layers": list(picture.layers),
        "num_parameters": picture.num_parameters,
        "num_trained_parameters": picture.num_trained_parameters,
        "flops_per_sample": picture.flops_per_sample,
        "memory": None if picture.memory is None else _memory(usual.forecast(picture.memory)),
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
    # What lives only during a step; of a large model at a tiny batch not all gradients are there at
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
    fit = "fits into" if forecast.fits else "does not fit into"
    return (
        f"{fit} the {format_bytes(forecast.limit_bytes)} that a worker has here; estimated from"
        " shapes alone, without what libraries take"
    )

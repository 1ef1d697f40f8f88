"""Outputs of a trained trial for samples that it has never seen: from a checkpoint to numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from pydantic import JsonValue
from torch import nn

from workbench.experiment import Experiment
from workbench.models.adapters import build_model
from workbench.training.checkpoint import read
from workbench.training.planning.settings import model_values

_AT_ONCE = 512


def load_model(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    checkpoint: Path,
    *,
    input_shape: tuple[int, ...],
    num_outputs: int,
) -> nn.Module:
    """Build the model of a trial with the weights of a checkpoint, on the CPU.

    Args:
        experiment: What the trial belongs to; its model is of the zoo.
        params: The configuration of the trial.
        checkpoint: A file that its training wrote.
        input_shape: Shape of one sample.
        num_outputs: Classes, or regression targets.

    Raises:
        RunError: If the checkpoint is missing or torn.
    """
    assert experiment.model is not None
    model = build_model(
        experiment.model.name,
        model_values(experiment, params),
        input_shape=input_shape,
        num_outputs=num_outputs,
    )
    model.load_state_dict(read(checkpoint)["strategy"]["model"])
    return model.eval()


def outputs_of(model: nn.Module, inputs: np.ndarray, *, classes: bool) -> np.ndarray:
    """Return the predictions of a model: probabilities of classes, or predicted numbers.

    Args:
        model: The model.
        inputs: Samples as it was trained with, the sample first.
        classes: Whether its outputs are scores of classes.

    Returns:
        (samples, outputs) as float64.
    """
    parts = []
    with torch.inference_mode():
        for first in range(0, len(inputs), _AT_ONCE):
            outputs = model(
                torch.from_numpy(np.ascontiguousarray(inputs[first : first + _AT_ONCE]))
            ).double()
            parts.append(outputs.softmax(dim=-1) if classes else outputs)
    return torch.cat(parts).numpy()

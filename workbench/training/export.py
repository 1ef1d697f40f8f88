"""Weights for the world outside.

A checkpoint's model as a safetensors file, and that file as a model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.foundation.errors import RunError, first_line_of
from workbench.training.checkpoint import read

if TYPE_CHECKING:
    from torch import nn

    from workbench.data import Datasets

_COMPILED = "_orig_mod."
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How safetensors states that a file could not be written."""


def write_weights(checkpoint: Path, to: Path) -> None:
    """Write the model of a checkpoint as safetensors.

    Args:
        checkpoint: A file that a training wrote, such as `best.pt`.
        to: The file to write; its folder is made if it is missing.

    Raises:
        RunError: If the checkpoint is missing or torn.
        OSError: If the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # Tied weights share memory, which the format refuses to store.
    tensors = {
        plain_name(name): value.clone().contiguous()
        for name, value in read(checkpoint)["strategy"]["model"].items()
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = to.with_name(f".{to.name}.tmp")
    try:
        save_file(tensors, temporary)
    except SafetensorError as error:
        if (code := _OS_ERROR.search(str(error))) is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(to)) from error
    os.replace(temporary, to)


def plain_name(name: str) -> str:
    """Return the name that a tensor has in the model before `torch.compile`, which nests what it
    compiles.
    """
    return name.replace(_COMPILED, "")


def read_model(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    weights: Path,
    datasets: Datasets | None = None,
) -> tuple[nn.Module, Datasets]:
    """Build the model of a trial with weights that `write_weights` wrote, and load the data it was
    made for.

    Args:
        experiment: What the trial belongs to.
        params: The configuration of the trial.
        weights: The file.
        datasets: The data, where it is loaded already.

    Returns:
        The model, on the CPU and in evaluation mode, and the data.

    Raises:
        WorkbenchError: If the model cannot be built or the data not loaded.
        RunError: If the weights cannot be read, or belong to another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from workbench.training.assembly import build_trial_model
    from workbench.training.loading import load_trial_data
    from workbench.training.planning.settings import resolve

    datasets = datasets or load_trial_data(str(weights), experiment)
    settings = resolve(experiment, params, num_train_samples=len(datasets.train))
    model = build_trial_model(experiment, params, settings, datasets, pretrained=False)
    names = {plain_name(name): name for name in model.state_dict()}
    try:
        stored = {plain_name(name): value for name, value in load_file(weights).items()}
        model.load_state_dict({names.get(name, name): value for name, value in stored.items()})
    except (OSError, SafetensorError, RuntimeError) as error:
        raise RunError(
            f"cannot take the weights of {weights}: {first_line_of(error)}",
            next_step="Export the trial again.",
        ) from error
    return model.eval(), datasets

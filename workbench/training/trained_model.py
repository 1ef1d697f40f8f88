"""Builds a trained model from the checkpoint of its trial, and writes its weights to a file."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from pydantic import JsonValue
from torch import nn

from workbench.experiment import Experiment
from workbench.foundation.errors import RunError, first_line_of
from workbench.models.adapters import build_model
from workbench.models.trees import TreeEnsemble
from workbench.training.checkpoint import VALIDATION_OUTPUTS, read
from workbench.training.planning.settings import model_values

if TYPE_CHECKING:
    from workbench.data import Datasets
    from workbench.models.folder_models import FolderModel

_COMPILED = "_orig_mod."
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How safetensors reports that a file could not be written."""
_FEW_SAMPLES = 32
_AT_ONCE, _AT_ONCE_BY_TREES = 512, 50_000
"""Trees are walked one after the other, each by all rows, and need little memory for a row."""


def read_model(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    weights: Path,
    datasets: Datasets | None = None,
) -> tuple[nn.Module, Datasets]:
    """Build the model of a trial with weights from `write_weights`, and load its data.

    Args:
        experiment: The experiment of the trial.
        params: The configuration of the trial.
        weights: The file.
        datasets: The data, if it is loaded already.

    Returns:
        The model, on the CPU and in evaluation mode, and the data.

    Raises:
        WorkbenchError: If the model cannot be built, or the data cannot be loaded.
        RunError: If the weights cannot be read, or belong to another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from workbench.training.assembly import build_trial_model
    from workbench.training.loading import load_trial_data
    from workbench.training.planning.settings import resolve

    datasets = datasets or load_trial_data(str(weights), experiment, params=params)
    settings = resolve(experiment, params, num_train_samples=len(datasets.train))
    model = build_trial_model(experiment, params, settings, datasets, pretrained=False)
    names = {plain_name(name): name for name in model.state_dict()}
    try:
        stored = {plain_name(name): value for name, value in load_file(weights).items()}
        model.load_state_dict({names.get(name, name): value for name, value in stored.items()})
    except (OSError, SafetensorError, RuntimeError) as error:
        raise RunError(
            f"the model cannot load the weights in {weights}: {first_line_of(error)}",
            next_step="Export the trial again.",
        ) from error
    return model.eval(), datasets


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
        experiment: The experiment of the trial, with a model of the zoo.
        params: The configuration of the trial.
        checkpoint: A file that its training wrote.
        input_shape: Shape of one sample.
        num_outputs: Classes, or regression targets.

    Raises:
        RunError: If the checkpoint is missing or torn.
    """
    state = read(checkpoint)["strategy"]["model"]
    return load_state(experiment, params, state, input_shape=input_shape, num_outputs=num_outputs)


def load_state(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    state: Mapping[str, torch.Tensor | np.ndarray],
    *,
    input_shape: tuple[int, ...],
    num_outputs: int,
) -> nn.Module:
    """Build the model of a trial with given weights, on the CPU.

    Args:
        experiment: The experiment of the trial, with a model of the zoo.
        params: The configuration of the trial.
        state: The weights, by name.
        input_shape: Shape of one sample.
        num_outputs: Classes, or regression targets.
    """
    assert experiment.model is not None
    model = build_model(
        experiment.model.name,
        model_values(experiment, params),
        input_shape=input_shape,
        num_outputs=num_outputs,
    )
    tensors = {
        name: torch.from_numpy(values.copy()) if isinstance(values, np.ndarray) else values
        for name, values in state.items()
    }
    model.load_state_dict(tensors)
    return model.eval()


def write_weights(checkpoint: Path, to: Path) -> None:
    """Write the model of a checkpoint as safetensors.

    Args:
        checkpoint: A file that a training wrote, such as `best.pt`.
        to: The file to write. Its folder is created if it is missing.

    Raises:
        RunError: If the checkpoint is missing or torn.
        OSError: If the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # Tied weights share memory, which safetensors cannot store.
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


class WrittenModel(NamedTuple):
    """A language model that was written for transformers.

    Attributes:
        about: What was written, for readers.
        model: The model, with its adapter merged.
        datasets: Its data.
    """

    about: str
    model: FolderModel
    datasets: Datasets


def write_language_model(
    experiment: Experiment, params: Mapping[str, JsonValue], weights: Path, folder: Path
) -> WrittenModel:
    """Write a model that was trained by its folder as transformers and PEFT do.

    Args:
        experiment: The experiment of the trial.
        params: The configuration of the trial.
        weights: The weights from `write_weights`.
        folder: The folder to write. See `FolderModel.write`.

    Raises:
        WorkbenchError: If the model cannot be built or written.
    """
    from workbench.models.folder_models import FolderModel, TextClassifier
    from workbench.training.assembly import begins_with_folder
    from workbench.training.planning.settings import resolve

    model, datasets = read_model(experiment, params, weights)
    assert isinstance(model, FolderModel)
    if isinstance(model, TextClassifier):
        model.name_classes(datasets.class_names)
    settings = resolve(experiment, params)
    about = model.write(
        folder,
        has_adapter=settings.training.adapter is not None,
        is_of_folder=begins_with_folder(settings),
    )
    return WrittenModel(about, model, datasets)


def plain_name(name: str) -> str:
    """Return the name of a tensor before `torch.compile`, which wraps modules."""
    return name.replace(_COMPILED, "")


def stored_outputs(checkpoint: Path, num_samples: int, *, classes: bool) -> np.ndarray | None:
    """Return the predictions for the validation samples that are stored in a checkpoint.

    Args:
        checkpoint: A file that a training wrote.
        num_samples: Number of validation samples.
        classes: Whether the outputs are scores of classes.

    Returns:
        The same as `outputs_of`, or None if the checkpoint has none for this number of samples.

    Raises:
        RunError: If the checkpoint is missing or torn.
    """
    outputs = read(checkpoint).get(VALIDATION_OUTPUTS)
    if outputs is None or len(outputs) != num_samples:
        return None
    outputs = outputs.double()
    if classes:
        outputs = outputs.softmax(dim=-1)
    return outputs.numpy()


@contextlib.contextmanager
def _threads_for(num_samples: int) -> Iterator[None]:
    """Predict few samples on one thread: several would wait for each other for longer."""
    num_threads = torch.get_num_threads()
    if num_samples > _FEW_SAMPLES or num_threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def outputs_of(model: nn.Module, inputs: np.ndarray, *, classes: bool) -> np.ndarray:
    """Return the predictions of a model: probabilities of classes, or predicted numbers.

    Args:
        model: The model.
        inputs: Samples in the form of the training data. The first dimension is the samples.
        classes: Whether its outputs are scores of classes.

    Returns:
        (samples, outputs) as float64.
    """
    parts = []
    at_once = _AT_ONCE_BY_TREES if isinstance(model, TreeEnsemble) else _AT_ONCE
    with torch.inference_mode(), _threads_for(len(inputs)):
        for first in range(0, len(inputs), at_once):
            outputs = model(
                torch.from_numpy(np.ascontiguousarray(inputs[first : first + at_once]))
            ).double()
            if classes:
                outputs = outputs.softmax(dim=-1)
            parts.append(outputs)
    return torch.cat(parts).numpy()

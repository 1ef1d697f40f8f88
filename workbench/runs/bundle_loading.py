"""A bundle loaded in Python: the trained model, and the data that it was trained on."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import RunError
from workbench.experiment import Experiment
from workbench.remote.code_dependencies import relative_data, with_data_at
from workbench.remote.job_package import MODULES_FOLDER
from workbench.runs.bundle import CODE_FOLDER, FILES_FOLDER
from workbench.runs.experiment_file import read_experiment
from workbench.space import Params

if TYPE_CHECKING:
    from torch import nn

    from workbench.data import Datasets


@dataclass(frozen=True)
class Bundle:
    """A trained model with its configuration, results and data.

    Attributes:
        model: The model with its weights, on the CPU and in evaluation mode.
        data: The data that it was trained and validated on; `data.validation.batch(range(8))` returns the
            first eight inputs and targets as the model saw them.
        params: Its configuration.
        values: Its results.
        experiment: The experiment that trains it again.
    """

    model: nn.Module
    data: Datasets = field(repr=False)
    params: Params
    values: dict[str, float]
    experiment: Experiment = field(repr=False)


def load_bundle(folder: str | Path) -> Bundle:
    """Load the model of a bundle that `export` wrote.

    Python objects from a notebook are unpickled, which runs their code: load only what you trust.

    Args:
        folder: The bundle.

    Returns:
        The model, ready to be called, and its data.

    Raises:
        RunError: If the folder is not a bundle, or has no matching weights.
        WorkbenchError: If its model cannot be built, or its data cannot be loaded.

    Example:
        >>> bundle = wb.load_bundle(run.export("bundle"))
        >>> inputs, targets = bundle.data.validation.batch(range(8))
        >>> bundle.params == run.best.params
        True
    """
    from workbench.training.export import read_model

    folder = Path(folder)
    try:
        configuration = json.loads((folder / "configuration.json").read_text(encoding="utf-8"))
        params = dict(configuration["params"])
        values = {name: float(value) for name, value in configuration["values"].items()}
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{folder} is not a bundle", next_step="Write one with: run.export(folder)") from error
    weights = folder / "weights.safetensors"
    if not weights.exists():
        if (folder / FILES_FOLDER).is_dir():
            raise RunError(
                f"the bundle {folder} is of a train function, whose model only its own code can load",
                next_step=f"Load what the function left in {folder / FILES_FOLDER}.",
            )
        raise RunError(
            f"the bundle {folder} has no weights",
            next_step="Train it again with its retrain.sh, or export a trial with weights.",
        )
    experiment = read_experiment(folder / "experiment.yaml")
    code = (folder / CODE_FOLDER).absolute()
    path = relative_data(experiment)
    if path is not None and (code / path).exists():
        experiment = with_data_at(experiment, code / path)
    with _importing_from(str(code), str(code / MODULES_FOLDER)):
        model, data = read_model(experiment, params, weights)
    return Bundle(model, data, params, values, experiment)


@contextlib.contextmanager
def _importing_from(*folders: str) -> Iterator[None]:
    """Import modules from these folders first, inside the `with` block."""
    sys.path[:0] = folders
    try:
        yield
    finally:
        for folder in folders:
            sys.path.remove(folder)

"""A bundle loaded in Python: the trained model, and the data that it was trained on."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cluster.remote.code_dependencies import with_paths_in
from workbench.cluster.remote.job_package import MODULES_FOLDER
from workbench.deploy.card import CARD, Card, Timing, read_card
from workbench.experiment import Experiment
from workbench.experiment.space import Params
from workbench.foundation.bundle_manifest import check_file, read_configuration
from workbench.foundation.errors import RunError
from workbench.runs.bundles.bundle_files import CODE_FOLDER, FILES_FOLDER
from workbench.runs.experiment_file import read_experiment

if TYPE_CHECKING:
    from torch import nn

    from workbench.data import Datasets
    from workbench.deploy.predictor import Answers, Predictor


class Bundle:
    """A trained model with its configuration, results and data.

    Attributes:
        folder: The bundle.
        params: Its configuration.
        values: Its results.
    """

    def __init__(self, folder: Path, params: Params, values: dict[str, float]) -> None:
        """Take over what `load_bundle` has read."""
        self.folder = folder
        self.params = params
        self.values = values

    def __repr__(self) -> str:
        return f"Bundle({str(self.folder)!r}, params={self.params}, values={self.values})"

    @functools.cached_property
    def experiment(self) -> Experiment:
        """The experiment that trains it again."""
        return with_paths_in(read_experiment(self.folder / "experiment.yaml"), self._code)

    @property
    def model(self) -> nn.Module:
        """The model with its weights, on the CPU and in evaluation mode. It takes inputs of `data`.

        Raises:
            RunError: If the bundle has no weights, or they are another model's.
        """
        return self._trained[0]

    @property
    def data(self) -> Datasets:
        """The data that it was trained and validated on.

        `data.validation.batch(range(8))` returns the first eight inputs and targets as `model`
        takes them: scaled and encoded, such as standardised columns. `predict` and the ONNX file
        take them as they were.
        """
        return self._trained[1]

    def predict(self, samples: Any, *, interval: float | None = None) -> Answers:
        """Return the answers of the model for new samples, by its ONNX file.

        Args:
            samples: A data frame, the path of a table, a mapping of columns, a list of rows, or an
                array for a model that takes arrays: values as they were before the workbench
                encoded them. For a model that was trained on image files also paths of such files,
                or of a folder of them.
            interval: For numbers of an AutoML result, the share of true numbers that lie between
                `low` and `high` of the answers, such as 0.9.

        Raises:
            ArgumentError: If the model has no intervals, or it is not between 0 and 1.
            RunError: If the bundle was exported without its model in a format that can be run.
            DataError: If a column is missing, or a value is not of its kind. It names column and
                row.
            MissingDependencyError: If ONNX Runtime is not installed.

        Example:
            >>> bundle = wb.load_bundle(run.export("exported", format="onnx"))
            >>> answers = bundle.predict([{item.name: item.example for item in bundle.card.inputs}])
            >>> len(answers)
            1
        """
        from workbench.deploy.image_files import answers_for

        if interval is not None:
            self._predictor.check_interval(interval)
        answers = answers_for(self._predictor, samples)
        if interval is None:
            return answers
        return self._predictor.with_interval(answers, interval)

    def measure(self, device: str = "here", *, threads: int = 1, batch: int = 1) -> Timing:
        """Time the model on a device, and keep the result in the card.

        Args:
            device: `here`, ssh://[USER@]HOST[:PORT] with numpy and onnxruntime installed, or
                FILE:TIER, the machine of a tier.
            threads: Number of threads that compute a call.
            batch: Samples in a call.

        Raises:
            ArgumentError: If the device is unknown.
            RunError: If the machine cannot be reached, or the model cannot be run there.

        Example:
            >>> bundle = wb.load_bundle(run.export("timed", format="onnx"))
            >>> bundle.measure().p50_s > 0
            True
        """
        from workbench.deploy.device import measure
        from workbench.tiers.placement.machine_profile import find_device

        return measure(self.folder, find_device(device), threads=threads, batch=batch)

    @property
    def card(self) -> Card:
        """The card of the model: its inputs and outputs, and what was measured.

        Raises:
            RunError: If the bundle was exported without its model in a format that can be run.
        """
        return read_card(self.folder)

    @functools.cached_property
    def _predictor(self) -> Predictor:
        from workbench.deploy.predictor import Predictor

        return Predictor.open(self.folder)

    @contextlib.contextmanager
    def importing(self) -> Iterator[None]:
        """Import the code of the bundle first, inside the `with` block."""
        folders = [str(self._code), str(self._code / MODULES_FOLDER)]
        sys.path[:0] = folders
        try:
            yield
        finally:
            for folder in folders:
                sys.path.remove(folder)

    @property
    def _code(self) -> Path:
        return (self.folder / CODE_FOLDER).absolute()

    @functools.cached_property
    def _trained(self) -> tuple[nn.Module, Datasets]:
        from workbench.training.trained_model import read_model

        weights = self.folder / "weights.safetensors"
        if not weights.exists():
            if (self.folder / FILES_FOLDER).is_dir():
                raise RunError(
                    f"the model in the bundle {self.folder} was created by a train function, so"
                    " only your code can load it",
                    next_step=f"Load what the function left in {self.folder / FILES_FOLDER}.",
                )
            if (self.folder / CARD).exists():
                raise RunError(
                    f"the bundle {self.folder} has its model as ONNX only",
                    next_step="Use bundle.predict(...).",
                )
            raise RunError(
                f"the bundle {self.folder} has no weights",
                next_step="Train it again with its retrain.sh, or export a trial with weights.",
            )
        check_file(self.folder, weights.name)
        with self.importing():
            return read_model(self.experiment, self.params, weights)


def load_bundle(folder: str | Path) -> Bundle:
    """Load the model of a bundle that `export` wrote.

    Python objects from a notebook are unpickled, which runs their code: load only what you trust.
    To predict with a bundle that has its model as ONNX loads neither these nor torch.

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
    folder = Path(folder)
    configuration = read_configuration(folder)
    try:
        params = dict(configuration["params"])
        values = {name: float(value) for name, value in configuration["values"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{folder} is not a bundle", next_step="Write one with: run.export(folder)"
        ) from error
    bundle = Bundle(folder, params, values)
    if not (folder / CARD).exists():
        _ = bundle.model  # else it is loaded when it is needed: predicting needs no torch
    return bundle

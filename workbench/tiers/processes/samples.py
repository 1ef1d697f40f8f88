"""The samples with which tiers are measured, as the first stage takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from workbench.data import Datasets, check_options
from workbench.data.targets import class_of_each
from workbench.experiment import Experiment
from workbench.foundation.errors import RunError
from workbench.training.loading import load_trial_data

Part = Literal["train", "validation"]
_MAX_SAMPLES = 10_000


def bundle_samples(bundle: Path, *, part: Part = "validation") -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and classes of a split of the data that a bundle was trained on.

    Args:
        bundle: The bundle.
        part: The split.

    Returns:
        As `samples_of` does.

    Raises:
        WorkbenchError: If the bundle names no data, the data cannot be read, or its samples do not
            fit.
    """
    experiment = Experiment.from_file(bundle / "experiment.yaml")
    if experiment.data is None:
        raise RunError(
            f"{bundle} does not say which data it was trained on",
            next_step="Use `workbench place plan`, or a model of an experiment with data.",
        )
    return samples_of(load_trial_data(str(bundle), experiment), experiment, part=part)


def samples_of(
    data: Datasets, experiment: Experiment, *, part: Part = "validation"
) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and classes of a split.

    Args:
        data: The data of a classifier.
        experiment: The experiment that it was trained in.
        part: The split.

    Returns:
        The inputs as users have them, (samples, ...), and the right classes, (samples,).

    Raises:
        RunError: If a sample is not one array, or the data has no classes.
        DataError: If a sample has several classes.
    """
    component = experiment.data
    reading = None
    if component is not None and not component.is_reference:
        options = check_options(component.name, component.options)
        reading = options.reading(seed=experiment.seed)
    split = data.train if part == "train" else data.validation
    inputs, targets = split.batch(np.arange(min(_MAX_SAMPLES, len(split))))
    is_table = reading is not None and bool(reading.columns)
    if is_table or data.task != "classification" or not hasattr(inputs, "__array__"):
        raise RunError(
            "only classifiers whose samples are single arrays run on tiers",
            next_step="Use `workbench place plan`, or a model of images.",
        )
    values = np.asarray(inputs)
    if reading is not None and (np.any(reading.mean) or np.any(np.asarray(reading.scale) != 1.0)):
        # The first stage standardises what it takes.
        values = (values * reading.scale + reading.mean).astype(np.float32)
    return values, class_of_each(targets, data.num_outputs)

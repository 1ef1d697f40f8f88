"""Two small real data sets that come with scikit-learn.

Digits (images) and breast_cancer (features).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from workbench.data.cache import Cached, cached
from workbench.data.column_encoding import Column
from workbench.data.options import DatasetOptions, held_out_field, normalisation_field
from workbench.data.reading import Reading, some_of
from workbench.data.splits import (
    ArraySplit,
    Datasets,
    Normalisation,
    moments,
    split_in_three,
    standardise,
)
from workbench.experiment.metric_declarations import Task


class BundledOptions(DatasetOptions):
    """The options that both data sets share."""

    searchable = {"normalisation": {}}

    normalisation: Normalisation = normalisation_field()
    validation_fraction: float = Field(
        0.2, gt=0.0, lt=1.0, description="Share of each class that is held out."
    )
    test_fraction: float = held_out_field()

    def _split(
        self, arrays: Mapping[str, np.ndarray], seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        targets = arrays["targets"]
        return split_in_three(
            len(targets),
            validation_fraction=self.validation_fraction,
            test_fraction=self.test_fraction,
            seed=seed,
            classes=targets,
        )

    def _datasets(self, name: str, made: Cached, seed: int, *, axis: int | None) -> Datasets:
        """Divide and standardise samples."""
        targets = made.arrays["targets"]
        train, validation, test = self._split(made.arrays, seed)
        inputs = standardise(made.arrays["inputs"], train, axis=axis, how=self.normalisation)
        return Datasets(
            name=name,
            task="classification",
            train=ArraySplit(inputs[train], targets[train]),
            validation=ArraySplit(inputs[validation], targets[validation]),
            test=ArraySplit(inputs[test], targets[test]) if len(test) else None,
            input_shape=inputs.shape[1:],
            num_outputs=len(made.facts["class_names"]),
            class_names=tuple(made.facts["class_names"]),
        )

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "classification"


class DigitsOptions(BundledOptions):
    """1,797 grey images of handwritten digits, 1x8x8, standardised as in train."""

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Load and split the data set, as DatasetOptions.load does."""
        made = cached("digits", {}, _read_digits, code=[__file__], folder=cache)
        return self._datasets("digits", made, seed, axis=None)

    def reading(self, *, seed: int) -> Reading:
        """Return how pixels from 0 to 16 are standardised, as DatasetOptions.reading does."""
        made = _read_digits().arrays
        inputs, train = made["inputs"], self._split(made, seed)[0]
        indices = some_of(len(train))
        mean, deviation = moments(inputs, train, axis=None, how=self.normalisation)
        return Reading(
            {"inputs": inputs[train[indices]]}, indices, mean=float(mean), scale=float(deviation)
        )


class BreastCancerOptions(BundledOptions):
    """569 tumours of two classes with 30 features each, standardised as in train."""

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Load and split the data set, as DatasetOptions.load does."""
        made = cached("breast_cancer", {}, _read_breast_cancer, code=[__file__], folder=cache)
        return self._datasets("breast_cancer", made, seed, axis=0)

    def reading(self, *, seed: int) -> Reading:
        """Return how each measurement is standardised, as DatasetOptions.reading does."""
        from sklearn.datasets import load_breast_cancer

        bunch: Any = load_breast_cancer()
        made = _read_breast_cancer().arrays
        inputs, train = made["inputs"], self._split(made, seed)[0]
        indices = some_of(len(train))
        means, deviations = moments(inputs, train, axis=0, how=self.normalisation)
        names = [str(name) for name in bunch["feature_names"]]
        columns = tuple(
            Column(name, "number", float(mean), float(deviation))
            for name, mean, deviation in zip(names, means, deviations, strict=True)
        )
        chosen = inputs[train[indices]]
        return Reading(
            {name: chosen[:, place] for place, name in enumerate(names)},
            indices,
            columns,
            target="diagnosis",
        )


def _read_digits() -> Cached:
    from sklearn.datasets import load_digits

    images, targets = load_digits(return_X_y=True)
    arrays = {
        "inputs": images.reshape(-1, 1, 8, 8).astype(np.float32),
        "targets": targets.astype(np.int64),
    }
    return Cached(arrays, {"class_names": [str(digit) for digit in range(10)]})


def _read_breast_cancer() -> Cached:
    from sklearn.datasets import load_breast_cancer

    inputs, targets = load_breast_cancer(return_X_y=True)
    arrays = {"inputs": inputs.astype(np.float64), "targets": targets.astype(np.int64)}
    return Cached(arrays, {"class_names": ["malignant", "benign"]})

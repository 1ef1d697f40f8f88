"""The chosen model as it is kept with a run, so that predicting does not choose again.

It holds only what predicts: the models that have a weight, how their samples are read, and what was
learnt about their errors. The result of the run has its SHA-256. A run that is extended loses that
result, and its next end writes a new one, so a stored model is never that of an earlier end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from workbench.foundation.errors import RunError
from workbench.models.second_layer import SecondLayer
from workbench.runs.automl.decisions import Decisions
from workbench.runs.automl.error_bands import ErrorBands
from workbench.runs.automl.model_selection import Candidate, ChosenModel
from workbench.runs.automl.preparation import HeldOut, Interpreter, LearningData
from workbench.store.database.run_files import read_objects, write_objects

if TYPE_CHECKING:
    import torch

    from workbench.runs import Run

STORED_MODEL = "stored_model"
"""The key of a result with the SHA-256 of the model."""
_NARROWED = ":int64"
"""The end of the name of weights that were 64-bit whole numbers."""


@dataclass(frozen=True)
class StoredModel:
    """A model with all that it needs to predict and to be exported.

    Attributes:
        chosen: The model. Its candidates all have a weight, and no validation predictions.
        examples: Some encoded training inputs for each of its readers.
        ranges: The range of each column of numbers in the samples to learn from, and of the
            numbers to predict.
        values: Its scores, such as val_accuracy and test_accuracy.
        bands: How far predicted numbers are off, or None for classes.
        quantiles: The quantiles that the user wants of each row, or empty.
        guess: The simplest guess, and its quantiles.
    """

    chosen: ChosenModel
    examples: tuple[np.ndarray, ...] = field(repr=False)
    ranges: Mapping[str, tuple[float, float]] = field(repr=False)
    values: Mapping[str, float]
    bands: ErrorBands | None
    quantiles: tuple[float, ...]
    guess: np.ndarray = field(repr=False)

    def outputs(self, samples: Any) -> np.ndarray:
        """Return predictions for samples: probabilities of classes, or numbers.

        Numbers come with the quantiles that the user wants, as (samples, 1 + levels).

        Args:
            samples: Samples of the kind that the run was given.

        Raises:
            DataError: If they cannot be read.
        """
        predicted = self.chosen.outputs(samples)
        if not self.quantiles or not len(predicted):
            return predicted
        if self.bands is None or not self.chosen.used:
            return np.tile(self.guess, (len(predicted), 1))
        quantiles = self.bands.quantiles(predicted[:, 0], self.quantiles, samples)
        return np.column_stack([predicted, quantiles])


@dataclass(frozen=True)
class _StoredCandidate:
    """A candidate whose weights are objects of the run, by the place of their reader."""

    trial: int | None
    family: str
    params: dict[str, object]
    loss: float
    weight: float
    weights_sha256: dict[int, str]
    is_taught: bool


@dataclass(frozen=True)
class _Content:
    """What is pickled."""

    candidates: tuple[_StoredCandidate, ...]
    interpreter: Interpreter
    guess: np.ndarray
    decisions: Decisions
    examples: tuple[np.ndarray, ...]
    ranges: dict[str, tuple[float, float]]
    values: dict[str, float]
    bands: ErrorBands | None
    quantiles: tuple[float, ...]
    guess_with_quantiles: np.ndarray
    second: SecondLayer | None


def without_unused(
    chosen: ChosenModel,
    learning: LearningData,
    held_out: HeldOut,
    *,
    values: Mapping[str, float],
    bands: ErrorBands | None,
    guess: np.ndarray | None = None,
) -> StoredModel:
    """Return a chosen model with only what predicts.

    Args:
        chosen: The model that predicts, whose trees may have been fitted to all rows.
        learning: The data that it learnt from.
        held_out: The test part.
        values: Its scores.
        bands: How far its numbers are off, or None.
        guess: The simplest guess with the quantiles that the user wants. None if there are none.
    """
    places = sorted({place for candidate, _ in chosen.used for place in candidate.models})
    new_place = {place: number for number, place in enumerate(places)}
    no_rows = np.empty((0, len(chosen.guess)))
    candidates = tuple(
        replace(
            candidate,
            models={new_place[place]: model for place, model in candidate.models.items()},
            predicted=no_rows,
            teachers=(),
        )
        for candidate, _ in chosen.used
    )
    readers = tuple(chosen.interpreter.readers[place] for place in places)
    kept = ChosenModel(
        candidates,
        tuple(weight for _, weight in chosen.used),
        chosen.targets[:0],
        replace(chosen.interpreter, readers=readers),
        chosen.guess,
        chosen.decisions,
        chosen.second,
    )
    examples = tuple(_example(place, learning, held_out) for place in places)
    guess = chosen.guess if guess is None else guess
    return StoredModel(kept, examples, held_out.ranges, values, bands, held_out.quantiles, guess)


def _example(place: int, learning: LearningData, held_out: HeldOut) -> np.ndarray:
    """Return some inputs of the models of a fold, or of those of all rows after the last fold."""
    if place == len(learning.folds) and held_out.all_rows is not None:
        return held_out.all_rows.inputs[:7].copy()
    return learning.folds[place].train_inputs[:7].copy()


def write(run: Run, model: StoredModel) -> str:
    """Keep a model with its run, and return the SHA-256 by which it is found.

    Args:
        run: The run.
        model: The model.
    """
    from workbench.training import checkpoint

    payloads: dict[str, bytes] = {}

    def kept(payload: bytes) -> str:
        sha256 = hashlib.sha256(payload).hexdigest()
        payloads[sha256] = payload
        return sha256

    chosen = model.chosen
    candidates = tuple(
        _StoredCandidate(
            candidate.trial,
            candidate.family,
            candidate.params,
            candidate.loss,
            weight,
            {
                place: kept(checkpoint.packed(_narrow(module.state_dict())))
                for place, module in candidate.models.items()
            },
            candidate.is_taught,
        )
        for candidate, weight in chosen.used
    )
    content = _Content(
        candidates,
        chosen.interpreter,
        chosen.guess,
        chosen.decisions,
        model.examples,
        dict(model.ranges),
        dict(model.values),
        model.bands,
        model.quantiles,
        model.guess,
        chosen.second,
    )
    sha256 = kept(cloudpickle.dumps(content))
    write_objects(run.store.artifacts_of(run.run_id), payloads)
    return sha256


def read(run: Run, sha256: str) -> StoredModel:
    """Return the model that was kept with a run.

    Args:
        run: The run.
        sha256: As `write` returned it.

    Raises:
        RunError: If it is not the model that was written.
        ArtifactsError: If it cannot be read.
    """
    from workbench.training import checkpoint
    from workbench.training.trained_model import load_state

    content: _Content = cloudpickle.loads(_verified(run, sha256))
    num_outputs = len(content.guess)

    def module(params: Any, place: int, weights_sha256: str) -> Any:
        return load_state(
            run.experiment,
            params,
            _widened(checkpoint.unpacked(_verified(run, weights_sha256))),
            input_shape=content.examples[place].shape[1:],
            num_outputs=num_outputs,
        )

    no_rows = np.empty((0, num_outputs))
    candidates = tuple(
        Candidate(
            stored.trial,
            stored.family,
            stored.params,
            {
                # A model that was fitted in place of a trial has no family among its parameters.
                place: module({"family": stored.family, **stored.params}, place, sha256)
                for place, sha256 in stored.weights_sha256.items()
            },
            no_rows,
            stored.loss,
            is_taught=stored.is_taught,
        )
        for stored in content.candidates
    )
    chosen = ChosenModel(
        candidates,
        tuple(stored.weight for stored in content.candidates),
        no_rows[:, 0],
        content.interpreter,
        content.guess,
        content.decisions,
        content.second,
    )
    return StoredModel(
        chosen,
        content.examples,
        content.ranges,
        content.values,
        content.bands,
        content.quantiles,
        content.guess_with_quantiles,
    )


def _verified(run: Run, sha256: str) -> bytes:
    payload = read_objects(run.store.artifacts_of(run.run_id), [sha256])[sha256]
    if hashlib.sha256(payload).hexdigest() != sha256:
        raise RunError(
            f"the model of run {run.run_id} is not the one that was stored",
            next_step="Start a new run from the data: wb.automl(data).",
        )
    return payload


def _narrow(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights whose whole numbers take half the space. Those of trees are node numbers."""
    limit = np.iinfo(np.int32).max
    narrow: dict[str, torch.Tensor] = {}
    for name, values in state.items():
        is_long = str(values.dtype) == "torch.int64"
        if is_long and values.numel() and int(values.abs().max()) <= limit:
            narrow[name + _NARROWED] = values.int()
        else:
            narrow[name] = values
    return narrow


def _widened(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name.removesuffix(_NARROWED): values.long() if name.endswith(_NARROWED) else values
        for name, values in state.items()
    }

"""The chosen model as it is kept with a run, so that predicting does not choose again.

It holds only what predicts: the models that have a weight, how their samples are read, and what was
learnt about their errors. The result of the run has its SHA-256. A run that is extended loses that
result, and its next end writes a new one, so a stored model is never that of an earlier end.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from workbench.data.column_encoding import Column
from workbench.data.unusual_rows import as_learned
from workbench.foundation.errors import RunError
from workbench.models.second_layer import SecondLayer
from workbench.models.staged_fitting import MIN_PROBABILITY
from workbench.runs.automl.class_decisions import Decisions
from workbench.runs.automl.error_bands import ErrorBands
from workbench.runs.automl.model_selection import Candidate, ChosenModel
from workbench.runs.automl.preparation import HeldOut, Interpreter, LearningData
from workbench.store.database.run_files import read_objects, write_objects

if TYPE_CHECKING:
    from torch import nn

    from workbench.runs import Run

STORED_MODEL = "stored_model"
"""The key of a result with the SHA-256 of the model."""
_NARROWED = ":int64"
"""The end of the name of weights that were 64-bit whole numbers."""
_LINEAR = {"low", "high", "sum.weight", "sum.bias"}
_TREES = {
    "feature",
    "threshold",
    "missing_left",
    "left",
    "right",
    "value",
    "roots",
    "start",
    "depth",
    "votes",
}
_AT_ONCE = 500_000
"""Rows times trees that are walked at once."""
_MOST_STEPS = 100_000_000
"""Rows times trees times levels. More take longer than loading torch and scikit-learn."""


@dataclass(frozen=True)
class StoredModel:
    """A model with all that it needs to predict and to be exported.

    Attributes:
        chosen: The model. Its candidates all have a weight, and no validation predictions.
        examples: Some encoded training inputs for each of its readers.
        ranges: The range of each column of numbers in the samples to learn from, and of the
            numbers to predict.
        values: Its scores, such as val_accuracy and test_accuracy.
        packed_bands: How far predicted numbers are off, pickled, as it needs torch.
        quantiles: The quantiles that the user wants of each row, or empty.
        guess: The simplest guess, and its quantiles.
    """

    chosen: ChosenModel
    examples: tuple[np.ndarray, ...] = field(repr=False)
    ranges: Mapping[str, tuple[float, float]] = field(repr=False)
    values: Mapping[str, float]
    packed_bands: bytes = field(repr=False)
    quantiles: tuple[float, ...]
    guess: np.ndarray = field(repr=False)

    @functools.cached_property
    def bands(self) -> ErrorBands | None:
        """How far predicted numbers are off, or None for classes."""
        return pickle.loads(self.packed_bands)

    def outputs_of_new(self, samples: Any) -> np.ndarray:
        """Return predictions for new rows, as `ChosenModel.outputs_of_new` reads them."""
        if hasattr(samples, "columns"):
            samples, _ = as_learned(samples, self.chosen.columns)
        return self.outputs(samples)

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
    packed_bands: bytes
    quantiles: tuple[float, ...]
    guess_with_quantiles: np.ndarray
    second: SecondLayer | None
    offsets: Column | None


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
        candidates=candidates,
        weights=tuple(weight for _, weight in chosen.used),
        targets=chosen.targets[:0],
        interpreter=replace(chosen.interpreter, readers=readers),
        guess=chosen.guess,
        decisions=chosen.decisions,
        second=chosen.second,
        offsets=chosen.offsets,
    )
    examples = tuple(_example(place, learning, held_out) for place in places)
    guess = chosen.guess if guess is None else guess
    packed = cloudpickle.dumps(bands)
    return StoredModel(
        chosen=kept,
        examples=examples,
        ranges=held_out.ranges,
        values=values,
        packed_bands=packed,
        quantiles=held_out.quantiles,
        guess=guess,
    )


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
    payloads: dict[str, bytes] = {}

    def kept(payload: bytes) -> str:
        sha256 = hashlib.sha256(payload).hexdigest()
        payloads[sha256] = payload
        return sha256

    chosen = model.chosen
    candidates = tuple(
        _StoredCandidate(
            trial=candidate.trial,
            family=candidate.family,
            params=candidate.params,
            loss=candidate.loss,
            weight=weight,
            weights_sha256={
                place: kept(_packed(module)) for place, module in candidate.models.items()
            },
            is_taught=candidate.is_taught,
        )
        for candidate, weight in chosen.used
    )
    content = _Content(
        candidates=candidates,
        interpreter=chosen.interpreter,
        guess=chosen.guess,
        decisions=chosen.decisions,
        examples=model.examples,
        ranges=dict(model.ranges),
        values=dict(model.values),
        packed_bands=model.packed_bands,
        quantiles=model.quantiles,
        guess_with_quantiles=model.guess,
        second=chosen.second,
        offsets=chosen.offsets,
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
    content: _Content = cloudpickle.loads(_verified(run, sha256))
    num_outputs = len(content.guess)

    def module(params: Any, place: int, state: Mapping[str, np.ndarray]) -> nn.Module:
        from workbench.training.trained_model import load_state

        return load_state(
            run.experiment,
            params,
            state,
            input_shape=content.examples[place].shape[1:],
            num_outputs=num_outputs,
        )

    no_rows = np.empty((0, num_outputs))
    candidates = []
    for stored in content.candidates:
        # A model that was fitted in place of a trial has no family among its parameters.
        params = {"family": stored.family, **stored.params}
        states = {
            place: _unpacked(_verified(run, weights_sha256))
            for place, weights_sha256 in stored.weights_sha256.items()
        }
        made = {
            place: functools.partial(module, params, place, state)
            for place, state in states.items()
        }
        plain = {place: _plain(state) for place, state in states.items()}
        candidates.append(
            Candidate(
                trial=stored.trial,
                family=stored.family,
                params=stored.params,
                models=_ModulesOnDemand(made),
                predicted=no_rows,
                loss=stored.loss,
                is_taught=stored.is_taught,
                plain={place: model for place, model in plain.items() if model is not None},
            )
        )
    chosen = ChosenModel(
        candidates=tuple(candidates),
        weights=tuple(stored.weight for stored in content.candidates),
        targets=no_rows[:, 0],
        interpreter=content.interpreter,
        guess=content.guess,
        decisions=content.decisions,
        second=content.second,
        offsets=content.offsets,
    )
    return StoredModel(
        chosen=chosen,
        examples=content.examples,
        ranges=content.ranges,
        values=content.values,
        packed_bands=content.packed_bands,
        quantiles=content.quantiles,
        guess=content.guess_with_quantiles,
    )


def _verified(run: Run, sha256: str) -> bytes:
    payload = read_objects(run.store.artifacts_of(run.run_id), [sha256])[sha256]
    if hashlib.sha256(payload).hexdigest() != sha256:
        raise RunError(
            f"the model of run {run.run_id} is not the one that was stored",
            next_step="Start a new run from the data: wb.automl(data).",
        )
    return payload


def _packed(module: nn.Module) -> bytes:
    """Return the weights of a model as bytes that can be read without torch.

    Whole numbers take half the space: those of trees are node numbers.
    """
    from safetensors.numpy import save

    limit = np.iinfo(np.int32).max
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in module.state_dict().items():
        is_brief = str(tensor.dtype) == "torch.bfloat16"  # NumPy has no such numbers
        values = (tensor.float() if is_brief else tensor).cpu().numpy()
        if values.dtype == np.int64 and values.size and np.abs(values).max() <= limit:
            name, values = name + _NARROWED, values.astype(np.int32)
        arrays[name] = np.ascontiguousarray(values)
    return save(arrays)


def _unpacked(payload: bytes) -> dict[str, np.ndarray]:
    """Return the weights that `_packed` wrote."""
    from safetensors.numpy import load

    return {
        name.removesuffix(_NARROWED): values.astype(np.int64)
        if name.endswith(_NARROWED)
        else values
        for name, values in load(payload).items()
    }


class _ModulesOnDemand(Mapping[int, Any]):
    """Modules that are built when they are needed, which loads torch."""

    def __init__(self, made: Mapping[int, Callable[[], nn.Module]]) -> None:
        self._made = made
        self._modules: dict[int, nn.Module] = {}

    def __getitem__(self, place: int) -> nn.Module:
        if place not in self._modules:
            self._modules[place] = self._made[place]()
        return self._modules[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _plain(state: Mapping[str, np.ndarray]) -> _PlainLinear | _PlainTrees | None:
    """Return a model that predicts without torch, or None if its weights are of another kind."""
    if set(state) == _LINEAR:
        return _PlainLinear(state)
    return _PlainTrees(state) if set(state) == _TREES else None


class _PlainLinear:
    """The same as `LinearModel`."""

    def __init__(self, state: Mapping[str, np.ndarray]) -> None:
        self._state = state

    def outputs(self, inputs: np.ndarray, *, classes: bool) -> np.ndarray:
        """Return (rows, outputs) as float64."""
        state = self._state
        rows = np.clip(inputs.reshape(len(inputs), -1), state["low"], state["high"])
        scores = rows.astype(np.float32) @ state["sum.weight"].T + state["sum.bias"]
        return _answers(scores.astype(np.float64), classes)


class _PlainTrees:
    """The same as `TreeEnsemble`, for few rows."""

    def __init__(self, state: Mapping[str, np.ndarray]) -> None:
        self._state = state

    def outputs(self, inputs: np.ndarray, *, classes: bool) -> np.ndarray | None:
        """Return (rows, outputs) as float64, or None if loading what is faster pays off."""
        state = self._state
        num_trees, depth = len(state["roots"]), int(state["depth"].item())
        is_loaded = "torch" in sys.modules and len(inputs) > 1
        if is_loaded or len(inputs) * num_trees * max(1, depth) > _MOST_STEPS:
            return None
        rows = inputs.reshape(len(inputs), -1).astype(np.float64)
        at_once = max(1, _AT_ONCE // num_trees)
        sums = [self._sum(rows[first : first + at_once]) for first in range(0, len(rows), at_once)]
        total = (state["start"].astype(np.float64) + np.concatenate(sums)).astype(np.float32)
        if state["votes"].item():
            total = np.log(np.maximum(total, np.float32(MIN_PROBABILITY)))
        return _answers(total.astype(np.float64), classes)

    def _sum(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum of the leaves that rows come to, all trees at once."""
        state = self._state
        node = np.tile(state["roots"], (len(rows), 1))
        places = np.arange(len(rows))[:, None]
        for _ in range(int(state["depth"].item())):
            given = rows[places, state["feature"][node]]
            goes_left = given <= state["threshold"][node]
            goes_left |= np.isnan(given) & state["missing_left"][node]
            node = np.where(goes_left, state["left"][node], state["right"][node])
        return state["value"][node].sum(axis=1, dtype=np.float64)


def _answers(scores: np.ndarray, classes: bool) -> np.ndarray:
    """Return numbers as they are, and scores of classes as probabilities."""
    if not classes:
        return scores
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)

"""The base of a compression: a trained trial, its ONNX file, and its scores.

It is stored with the run, so that every trial compresses the same model on any machine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor, nn

from workbench.data import Datasets, Split
from workbench.data.collating import TARGET_NAMES
from workbench.data.splits import ArraySplit
from workbench.deploy.onnx_export import (
    Positional,
    feeds_for,
    given_to,
    lengths_of,
    write_onnx,
)
from workbench.deploy.predictor import open_session
from workbench.experiment import Experiment
from workbench.experiment.goals import Goal
from workbench.experiment.metric_declarations import goal_in
from workbench.foundation.errors import ArgumentError, RunError
from workbench.models.adapters import declared_goals
from workbench.models.exits import EarlyExits
from workbench.models.metrics import AnyMetric
from workbench.models.model_calls import call_model, needed_inputs, output_in
from workbench.models.own_steps import OwnSteps
from workbench.training.evaluation import Predictor, evaluate
from workbench.training.loss_and_metrics import metrics_of
from workbench.training.strategies.strategy import Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source
from workbench.training.trained_model import read_model

AT_ONCE = 256
_ACCURACY = "val_accuracy"
_PREFIX = "val_"


@dataclass(frozen=True)
class Base:
    """A trained model, with everything that is needed to build, train and measure it again.

    Attributes:
        run_id: The run that trained it.
        trial: The number of its trial.
        experiment_json: Its experiment.
        payloads: The objects from a notebook that the experiment names, by their SHA-256.
        params: Its configuration.
        weights: Its weights, as safetensors.
        onnx: The model as ONNX, with 32-bit floats.
        metric: The metric that compression should preserve, such as val_accuracy.
        goal: Whether the metric is maximized or minimized.
        values: The scores of the ONNX model on the validation samples, by metric.
    """

    run_id: str
    trial: int
    experiment_json: str = field(repr=False)
    payloads: Mapping[str, bytes] = field(repr=False)
    params: Mapping[str, JsonValue]
    weights: bytes = field(repr=False)
    onnx: bytes = field(repr=False)
    metric: str
    goal: Goal
    values: Mapping[str, float]

    @functools.cached_property
    def experiment(self) -> Experiment:
        """The experiment that trained it."""
        return Experiment(**json.loads(self.experiment_json)).with_payloads(self.payloads)

    @property
    def sha256(self) -> str:
        """The SHA-256 of its weights, in hexadecimal."""
        return hashlib.sha256(self.weights).hexdigest()

    def build(self) -> tuple[nn.Module, Datasets]:
        """Return the model, on the CPU and in evaluation mode, and its data.

        Early exits are skipped. A model is `Positional` if it takes or returns more than a tensor.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "weights.safetensors")
            path.write_bytes(self.weights)
            model, datasets = read_model(self.experiment, self.params, path)
        return _positional(model, datasets), datasets

    def drop(self, value: float) -> float:
        """Return by how much a value is worse than the base's. Negative if it is better.

        For metrics between 0 and 1 that are maximized, such as an accuracy, it is the difference,
        so 0.005 is half a percentage point. For other metrics, it is relative to the base's value.
        """
        before = self.values[self.metric]
        worse = before - value if self.goal == "maximize" else value - before
        is_share = self.goal == "maximize" and 0 <= before <= 1
        return worse if is_share or before == 0 else worse / abs(before)


def make_base(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    weights: Path,
    *,
    run_id: str,
    trial: int,
    metric: str | None = None,
) -> Base:
    """Prepare a trained model for compression.

    Args:
        experiment: The experiment of the model.
        params: Its configuration.
        weights: Its weights, as `training.export.write_weights` wrote them.
        run_id: Its run.
        trial: The number of its trial.
        metric: The metric that compression should preserve. None for the accuracy if it is
            measured, otherwise for the first objective.

    Raises:
        RunError: If the model cannot be compressed or exported.
        ArgumentError: If the metric is not measured on validation.
    """
    if experiment.makes_own_steps:
        raise RunError(
            "a model that is trained by a class with its own steps cannot be compressed, because"
            " only that class knows how to call it"
        )
    model, datasets = read_model(experiment, params, weights)
    _refuse(model, experiment)
    model = _positional(model, datasets)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        write_model(model, datasets.train, path)
        values = measure(path, experiment, datasets)
        content = path.read_bytes()
    chosen, goal = _metric_of(experiment, datasets, values, metric)
    return Base(
        run_id=run_id,
        trial=trial,
        experiment_json=experiment.model_dump_json(),
        payloads=experiment.payloads(),
        params=dict(params),
        weights=weights.read_bytes(),
        onnx=content,
        metric=chosen,
        goal=goal,
        values=values,
    )


def write_model(model: nn.Module, split: Split, path: Path) -> None:
    """Write a model as an ONNX file that takes all sizes that occur in a split.

    Args:
        model: The model.
        split: Its samples.
        path: The file.

    Raises:
        RunError: If it cannot be exported.
    """
    example = given_to(model, example_of(split))
    names = model.names if isinstance(model, Positional) else ("inputs",)
    lengths = lengths_of(split, names, np.arange(len(split)))
    if lengths:
        # A model that takes one size fails here, and with other sizes of its data later.
        with contextlib.suppress(RunError):
            write_onnx(model, example, path, lengths)
            return
    write_onnx(model, example, path)


def example_of(split: Split, number: int = 2) -> Any:
    """Return the inputs of the first samples, as the data has them."""
    return Source(split, torch.device("cpu")).fetch(np.arange(min(number, len(split))))[0]


def measure(
    path: Path, experiment: Experiment, datasets: Datasets, *, part: str = "val"
) -> dict[str, float]:
    """Return the scores of an ONNX model on the validation or the test samples.

    Args:
        path: The model.
        experiment: The experiment with the metrics.
        datasets: The data.
        part: val or test. The names of the values start with it.
    """
    split = datasets.validation if part == "val" else datasets.test
    assert split is not None
    return _measure(_Exported(path), split, experiment, datasets, part)


def measure_answers(
    answers: np.ndarray, targets: np.ndarray, experiment: Experiment, datasets: Datasets
) -> dict[str, float]:
    """Return the scores of answers that a model gave on another device, by metric.

    Args:
        answers: The answers, the sample first.
        targets: The targets of these samples.
        experiment: The experiment with the metrics.
        datasets: The data.
    """
    return _measure(_Answered(), ArraySplit(answers, targets), experiment, datasets, "val")


def _measure(
    model: Predictor, split: Split, experiment: Experiment, datasets: Datasets, part: str
) -> dict[str, float]:
    metrics = _metrics_of(experiment, datasets)
    cpu = torch.device("cpu")
    worker = Worker(0, 1, cpu, Group(0, 1, cpu, None))
    values = evaluate(model, Source(split, cpu), metrics, batch=AT_ONCE, worker=worker)
    return {f"{part}_{name}": value for name, value in values.items()}


def quality_of(model: nn.Module, base: Base, datasets: Datasets) -> float:
    """Return the validation score of a torch model by the metric of its base. Higher is better.

    Args:
        model: The model, in evaluation mode.
        base: The base from which the model was created.
        datasets: The data.
    """
    name = base.metric.removeprefix(_PREFIX)
    metrics = _metrics_of(base.experiment, datasets)
    cpu = torch.device("cpu")
    worker = Worker(0, 1, cpu, Group(0, 1, cpu, None))
    source = Source(datasets.validation, cpu)
    value = evaluate(_Module(model), source, {name: metrics[name]}, batch=AT_ONCE, worker=worker)[
        name
    ]
    return value if base.goal == "maximize" else -value


_LOSS = [{"metric": "val_loss", "goal": "minimize"}]


class _Module(Predictor):
    """A model of torch that answers without learning."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def predict(self, inputs: Any) -> Tensor:
        with torch.no_grad():
            return self._model(*given_to(self._model, inputs))

    def train(self, mode: bool) -> None:
        pass


class _Answered(Predictor):
    """A model whose answers are already known. They are passed as its inputs."""

    def predict(self, inputs: Tensor) -> Tensor:
        return inputs

    def train(self, mode: bool) -> None:
        pass


class _Exported(Predictor):
    """An ONNX file that answers as a model of torch does."""

    def __init__(self, path: Path) -> None:
        self._session = open_session(path, threads=1)

    def predict(self, inputs: Any) -> Tensor:
        return torch.from_numpy(self._session.run(None, feeds_for(self._session, inputs))[0])

    def train(self, mode: bool) -> None:
        pass


def _refuse(model: nn.Module, experiment: Experiment) -> None:
    """Raise an error for a model without weights to compress, or that computes its own loss."""
    if isinstance(model, OwnSteps) or not any(
        parameter.dim() > 1 for parameter in model.parameters()
    ):
        raise RunError(
            f"{type(model).__name__} has no layers with weights, so there is nothing to compress",
            next_step="Compress a trial of a network.",
        )
    if experiment.leaves_loss_to_model:
        raise RunError(
            f"{type(model).__name__} computes its own loss, and needs the targets to be called, so"
            " it cannot be compressed"
        )


def _positional(model: nn.Module, datasets: Datasets) -> nn.Module:
    """Return a model that is called with tensors and returns one. Early exits are skipped."""
    if isinstance(model, EarlyExits):
        model = model.model
    example = example_of(datasets.train)
    with torch.no_grad():
        needed = needed_inputs(model, example, TARGET_NAMES)
        outputs = call_model(model, needed)
    if isinstance(needed, Tensor) and isinstance(outputs, Tensor):
        return model
    if not isinstance(output_in(outputs), Tensor):
        raise RunError(
            f"{type(model).__name__} returns {type(outputs).__name__} without one tensor that is"
            " its output, so it cannot be compressed"
        )
    return Positional(model, needed)


def _metrics_of(experiment: Experiment, datasets: Datasets) -> dict[str, AnyMetric]:
    """Return the metrics that can be measured with an ONNX file. Some objectives cannot."""
    return metrics_of(experiment.replace(objectives=_LOSS, constraints=()), datasets)


def _metric_of(
    experiment: Experiment, datasets: Datasets, values: Mapping[str, float], wanted: str | None
) -> tuple[str, Goal]:
    first = experiment.objectives[0].metric
    chosen = wanted or (_ACCURACY if _ACCURACY in values else first)
    if chosen not in values:
        raise ArgumentError(
            f"{chosen!r} is not measured on the validation samples",
            field="objective",
            allowed=list(values),
        )
    goal = goal_in(experiment, chosen, declared_goals(_metrics_of(experiment, datasets)))
    if goal is None:
        raise ArgumentError(
            f"it is unknown whether {chosen!r} should be maximized or minimized",
            field="objective",
            next_step='Decorate its function with @wb.metric(goal="maximize") or "minimize".',
        )
    return chosen, goal

"""Averages the predictions of trained models, with weights selected on validation data.

Weights are chosen on one half of the validation samples. The result is compared with the best model
on the other half, which the selection has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.data import Datasets, Split, check_options
from workbench.data.splits import split_indices
from workbench.experiment import Experiment, Objective
from workbench.experiment.goals import sign_of
from workbench.foundation.errors import ArgumentError, RunError
from workbench.models.ensemble_selection import select, weighted_mean
from workbench.models.metrics import AnyMetric, WholeMetric
from workbench.models.model_calls import call_model, output_in
from workbench.models.pairing import Pairing
from workbench.training.loaders import as_tensors
from workbench.training.loss_and_metrics import learned_pairing, metrics_of, pairing_of

INTERVAL = 0.95
"""The probability that a difference lies in its interval."""
MIN_VALIDATION_SAMPLES = 20
_MAX_NUMBERS = 100_000_000
_AT_ONCE = 256
_NUM_RESAMPLES = 400
_PREFIX = "val_"


@dataclass(frozen=True)
class Judgement:
    """An ensemble and the best single model on the same samples.

    Attributes:
        num_samples: Number of samples.
        ensemble: The metric of the ensemble.
        single: The metric of the single model.
        low: Lower end of the interval of the improvement. If it is above 0, the ensemble is better.
        high: Upper end of the interval.
    """

    num_samples: int
    ensemble: float
    single: float
    low: float
    high: float


@dataclass(frozen=True)
class Selection:
    """The selected weights, and how their mean compares with the best model.

    Attributes:
        weights: The weight of each model. They sum to 1, and most may be 0.
        validation: The result on the validation samples that the selection has not seen.
        test: The result on the test samples, or None if the data has none.
    """

    weights: tuple[float, ...]
    validation: Judgement
    test: Judgement | None


class _Score:
    """Measures a metric of predictions, like the training of a single model."""

    def __init__(self, experiment: Experiment, datasets: Datasets, objective: Objective) -> None:
        pairing = pairing_of(experiment, datasets)
        pairing.declared = lambda: -1  # the dimension of the classes, from `predict`
        metrics = metrics_of(experiment, datasets, pairing=pairing)
        name = objective.metric.removeprefix(_PREFIX)
        if not objective.metric.startswith(_PREFIX) or name not in metrics:
            raise ArgumentError(
                f"{objective.metric} cannot be measured from predictions for validation samples",
                field="metric",
                allowed=[f"{_PREFIX}{name}" for name in metrics],
                next_step="Choose one of these objectives.",
            )
        self._metric: AnyMetric = metrics[name]
        self._is_classes = datasets.task == "classification"
        self.sign = sign_of(objective.goal)

    def __call__(self, predicted: np.ndarray, targets: Tensor) -> float:
        outputs = torch.from_numpy(predicted)
        if self._is_classes:  # losses take scores, and the softmax of these is the probabilities
            outputs = outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log()
        outputs = outputs.float()
        if isinstance(self._metric, WholeMetric):
            return self._metric.compute([(outputs, targets)])
        with torch.inference_mode():
            total, count = self._metric.measure(outputs, targets)
        return self._metric.finish(float(total) / float(count))


def predict(
    model: nn.Module, inputs: Any, *, is_classes: bool, pairing: Pairing | None = None
) -> np.ndarray:
    """Return the prediction of a model for a batch, in double precision.

    Args:
        model: The model, on the CPU and in evaluation mode.
        inputs: The inputs, as arrays or tensors.
        is_classes: Whether it scores classes. Then probabilities are returned, and the last
            dimension is the classes.
        pairing: How to read its outputs, as `learned_pairing` returns it. None means that the
            classes come last.

    Raises:
        RunError: If it returns no tensor, or no score for each class.
    """
    with torch.inference_mode():
        outputs = call_model(model, as_tensors(inputs))
        outputs = output_in(outputs) if pairing is None else pairing.scores(outputs)
        if not isinstance(outputs, Tensor) or (
            is_classes and (outputs.ndim < 2 or outputs.shape[-1] < 2)
        ):
            expected = "a score for each class" if is_classes else "a tensor of numbers"
            raise RunError(
                f"{type(model).__name__} does not return {expected}, so its predictions cannot be"
                " averaged",
                next_step="Use the best trial alone.",
            )
        outputs = outputs.double()
        if is_classes:
            outputs = outputs.softmax(dim=-1)
        return outputs.numpy()


def in_unit_of_target(predicted: np.ndarray, experiment: Experiment) -> np.ndarray:
    """Return predicted numbers in the unit that the target had before the data was scaled.

    Args:
        predicted: The predictions of models.
        experiment: The experiment with the data.
    """
    component = experiment.data
    if component is None or component.is_reference:
        return predicted
    reading = check_options(component.name, component.options).reading(seed=experiment.seed)
    if reading is None:
        return predicted
    return predicted * reading.target_scale + reading.target_mean


def check_task(experiment: Experiment, datasets: Datasets) -> None:
    """Check that the predictions of models can be averaged.

    Args:
        experiment: The experiment. It must train a model.
        datasets: Its data.

    Raises:
        RunError: If they cannot, or there are too few samples to select and judge models.
    """
    reason = None
    if experiment.leaves_loss_to_model or experiment.makes_own_steps:
        reason = "the model computes its own loss, so averaged predictions cannot be judged"
    elif datasets.task not in ("classification", "regression"):
        reason = f"predictions for the task {datasets.task} cannot be averaged"
    elif len(datasets.validation) < MIN_VALIDATION_SAMPLES:
        reason = (
            f"{len(datasets.validation)} validation samples are too few to select and judge models:"
            f" at least {MIN_VALIDATION_SAMPLES} are needed"
        )
    if reason is not None:
        raise RunError(reason, next_step="Use the best trial alone.")


def select_models(
    experiment: Experiment,
    datasets: Datasets,
    models: Iterable[nn.Module],
    objective: Objective,
    *,
    num_models: int,
    size: int | None,
) -> Selection:
    """Select models for a mean, and compare it with the first of them.

    Args:
        experiment: The experiment of the models.
        datasets: Its data.
        models: The models, the best first. They are called one after another, and none is kept.
        objective: The objective to improve.
        num_models: Number of models.
        size: Maximum number of models with a weight, or None for any number.

    Raises:
        ArgumentError: If the objective cannot be measured from predictions.
        RunError: If the predictions cannot be averaged, or are too large to be kept.
    """
    check_task(experiment, datasets)
    score = _Score(experiment, datasets, objective)
    is_classes = datasets.task == "classification"
    splits = [datasets.validation]
    if datasets.test is not None:
        splits.append(datasets.test)
    targets = [_targets(split) for split in splits]
    predictions: list[list[np.ndarray]] = [[] for _ in splits]
    for model in models:
        pairing = learned_pairing(experiment, datasets, model)
        for split, kept in zip(splits, predictions, strict=True):
            kept.append(
                _predict_all(model, split, pairing, is_classes=is_classes, num_models=num_models)
            )
    classes = targets[0].numpy() if is_classes and targets[0].ndim == 1 else None
    chosen_by, judged_by = split_indices(
        len(splits[0]), validation_fraction=0.5, seed=experiment.seed, classes=classes
    )
    wanted = targets[0][torch.from_numpy(chosen_by)]
    weights = select(
        [predicted[chosen_by] for predicted in predictions[0]],
        lambda mean: -score.sign * score(mean, wanted),
        max_members=size,
        min_gain=0.0,
    )
    used = [int(model) for model in np.flatnonzero(weights)]

    def judge(predicted: Sequence[np.ndarray], targets: Tensor, places: np.ndarray) -> Judgement:
        mean = weighted_mean(
            [predicted[model][places] for model in used], [float(weights[model]) for model in used]
        )
        targets = targets[torch.from_numpy(places)]
        return compare(score, score.sign, mean, predicted[0][places], targets, seed=experiment.seed)

    tested = None
    if datasets.test is not None:
        tested = judge(predictions[1], targets[1], np.arange(len(datasets.test)))
    return Selection(
        tuple(map(float, weights)), judge(predictions[0], targets[0], judged_by), tested
    )


def compare(
    score: Callable[[np.ndarray, Tensor], float],
    sign: float,
    mean: np.ndarray,
    single: np.ndarray,
    targets: Tensor,
    *,
    seed: int,
) -> Judgement:
    """Compare two predictions of the same samples, with an interval from a paired bootstrap.

    Args:
        score: The metric of predictions.
        sign: 1 if more is better, and -1 if less is better.
        mean: The prediction of the ensemble.
        single: The prediction of the single model.
        targets: The true values.
        seed: Seed of the bootstrap.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), percentile intervals.
    """
    random = np.random.default_rng(seed)
    gains = []
    for _ in range(_NUM_RESAMPLES):
        places = random.integers(0, len(targets), len(targets))
        wanted = targets[torch.from_numpy(places)]
        gains.append(sign * (score(mean[places], wanted) - score(single[places], wanted)))
    low, high = np.quantile(gains, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2])
    return Judgement(
        len(targets), score(mean, targets), score(single, targets), float(low), float(high)
    )


def _targets(split: Split) -> Tensor:
    parts = [as_tensors(split.batch(places)[1]) for places in _batches(split)]
    if not all(isinstance(part, Tensor) for part in parts):
        raise RunError(
            "the targets are not one tensor, so predictions cannot be compared with them",
            next_step="Use the best trial alone.",
        )
    return torch.cat(parts)


def _predict_all(
    model: nn.Module, split: Split, pairing: Pairing, *, is_classes: bool, num_models: int
) -> np.ndarray:
    parts = []
    for places in _batches(split):
        parts.append(predict(model, split.batch(places)[0], is_classes=is_classes, pairing=pairing))
        num_numbers = parts[0].size // len(parts[0]) * len(split) * num_models
        if num_numbers > _MAX_NUMBERS:
            raise RunError(
                f"{num_models} models predict {num_numbers:,} numbers for {len(split)} samples",
                allowed=f"at most {_MAX_NUMBERS:,}",
                next_step="Select from fewer trials.",
            )
    return np.concatenate(parts)


def _batches(split: Split) -> list[np.ndarray]:
    return [
        np.arange(first, min(first + _AT_ONCE, len(split)))
        for first in range(0, len(split), _AT_ONCE)
    ]

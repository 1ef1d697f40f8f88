"""Means of models: selected on one half of the validation samples, judged on the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.builders.examples import examples
from workbench.data import Datasets
from workbench.data.splits import ArraySplit
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, RunError
from workbench.training.ensembles import compare, predict, select_models


class Noisy(nn.Module):
    """Answers with its input, to which it adds an error that follows from the input."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs[:, :1] + self.factor * inputs[:, 1:]


def numbers(num_validation: int = 60, *, test: bool = True, task: Any = "regression") -> Datasets:
    """Return data whose target is the first column; the second has nothing to do with it."""
    inputs = np.random.default_rng(0).standard_normal((num_validation + 80, 2)).astype(np.float32)
    targets = inputs[:, 0]
    parts = np.split(np.arange(len(inputs)), [num_validation, num_validation + 40])
    validation, train, tested = (ArraySplit(inputs[part], targets[part]) for part in parts)
    return Datasets("numbers", task, train, validation, (2,), 1, test=tested if test else None)


def experiment(metric: str = "val_loss") -> Experiment:
    return Experiment(
        model="mlp",
        data="workbench.data.bundled:none",
        objectives=[{"metric": metric, "goal": "minimize"}],
    )


def select(
    data: Datasets, models: list[nn.Module], metric: str = "val_loss", size: int | None = None
) -> Any:
    wanted = experiment(metric)
    return select_models(
        wanted, data, iter(models), wanted.objectives[0], num_models=len(models), size=size
    )


def test_models_with_opposite_errors_are_better_together_and_that_is_shown() -> None:
    selected = select(numbers(), [Noisy(0.5), Noisy(-0.5)])

    assert selected.weights == (0.5, 0.5)
    assert selected.test is not None
    for judged in (selected.validation, selected.test):
        assert judged.ensemble == pytest.approx(0.0, abs=1e-6)
        assert judged.single > 0.05
        assert 0 < judged.low < judged.single < judged.high
    assert (selected.validation.num_samples, selected.test.num_samples) == (30, 40)


def test_copies_of_a_model_are_not_shown_to_be_better_than_it() -> None:
    selected = select(numbers(test=False), [Noisy(0.5), Noisy(0.5), Noisy(0.9)])

    assert selected.validation.low <= 0 <= selected.validation.high
    assert selected.test is None


def test_no_more_models_are_used_than_allowed() -> None:
    selected = select(numbers(), [Noisy(0.5), Noisy(-0.4), Noisy(0.7)], size=1)

    assert selected.weights == (0.0, 1.0, 0.0)
    assert selected.validation.ensemble < selected.validation.single


@examples(25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
def test_equal_predictions_differ_by_nothing(seed: int, num_samples: int) -> None:
    random = np.random.default_rng(seed)
    predicted, targets = (
        random.normal(size=num_samples),
        torch.from_numpy(random.normal(size=num_samples)),
    )

    def error(given: np.ndarray, wanted: torch.Tensor) -> float:
        return float((torch.from_numpy(given) - wanted).abs().mean())

    same = compare(error, -1.0, predicted, predicted, targets, seed=seed)
    assert (same.low, same.high, same.ensemble) == (0.0, 0.0, same.single)
    better = compare(error, -1.0, targets.numpy(), predicted, targets, seed=seed)
    assert 0.0 <= better.low <= better.high
    assert better.low <= better.single <= better.high or num_samples < 20


def test_classes_are_predicted_as_probabilities() -> None:
    logits = torch.tensor([[0.0, 3.0], [200.0, -200.0]])
    predicted = predict(nn.Identity(), logits, is_classes=True)

    np.testing.assert_allclose(predicted.sum(axis=1), 1.0)
    assert predicted[1, 1] > 0  # its logarithm is a loss, not infinity


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (numbers(task="detection"), "task detection cannot be averaged"),
        (numbers(task="language_model"), "task language_model cannot be averaged"),
        (numbers(num_validation=12), "12 validation samples are too few"),
    ],
)
def test_what_has_no_mean_is_refused(data: Datasets, words: str) -> None:
    with pytest.raises(RunError, match=words):
        select(data, [Noisy(1.0), Noisy(-1.0)])


def test_a_model_without_a_score_for_each_class_is_refused() -> None:
    with pytest.raises(RunError, match="Noisy does not return a score for each class"):
        predict(Noisy(1.0), np.zeros((3, 2), np.float32), is_classes=True)


def test_an_objective_that_predictions_do_not_determine_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"train_loss cannot be measured from predictions.*: val_loss"
    ):
        select(numbers(), [Noisy(1.0), Noisy(-1.0)], metric="train_loss")

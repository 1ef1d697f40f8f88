"""Answers by near samples: smooth, sure of nothing, and the same once they are loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.nearest_neighbours import Neighbours, remember

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(300, 3)).astype(np.float32)


def answers(model: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(rows)).numpy()


def test_a_number_is_the_mean_around_it() -> None:
    targets = np.sin(INPUTS[:, 0]).astype(np.float32)
    model = remember(INPUTS, targets, num_classes=None, num_neighbours=5)
    said = answers(model, INPUTS)
    assert said.shape == (300, 1)
    assert np.mean((said[:, 0] - targets) ** 2) < 0.2 * targets.var()
    wide = remember(INPUTS, targets, num_classes=None, num_neighbours=10_000)
    assert answers(wide, INPUTS).std() < said.std()


@pytest.mark.parametrize("num_classes", [2, 3])
def test_classes_are_shares_of_which_none_is_impossible(num_classes: int) -> None:
    classes = (INPUTS[:, 0] > 0).astype(int)
    model = remember(INPUTS, classes, num_classes=num_classes, num_neighbours=5)
    shares = np.exp(answers(model, INPUTS * 100))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-5)
    assert shares.min() > 0
    assert (answers(model, INPUTS).argmax(axis=1) == classes).mean() > 0.9


def test_copies_of_one_sample_are_no_obstacle() -> None:
    rows = np.zeros((6, 2), dtype=np.float32)
    targets = np.arange(6.0)
    model = remember(rows, targets, num_classes=None, num_neighbours=2)
    assert answers(model, rows[:1])[0, 0] == pytest.approx(2.5)


def test_it_is_fitted_at_once_and_loaded_into_a_model_without_samples() -> None:
    configuration = configure("neighbours", {"num_neighbours": 7})
    assert isinstance(configuration, FittedConfiguration)
    (grown,) = configuration.grow(INPUTS, INPUTS[:, 1], num_classes=None, num_rounds=5, seed=0)
    empty = configuration.build(input_shape=(3,), num_outputs=1, vocabulary_size=None)
    assert isinstance(empty, Neighbours)
    empty.load_state_dict(grown.state_dict())
    np.testing.assert_array_equal(answers(empty, INPUTS), answers(grown, INPUTS))

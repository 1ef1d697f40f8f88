"""Linear and logistic models say what scikit-learn says, within the range of the train rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.linear import LinearModel, fit_linear

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(150, 4)).astype(np.float32)
SCORES = INPUTS[:, 0] - 2 * INPUTS[:, 1] + 0.3 * RANDOM.normal(size=150)


def answers(model: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(rows)).numpy()


def test_numbers_are_those_of_a_ridge_regression() -> None:
    model = fit_linear(INPUTS, SCORES.astype(np.float32), num_classes=None, l2=2.0)
    expected = Ridge(alpha=2.0).fit(INPUTS, SCORES).predict(INPUTS)
    np.testing.assert_allclose(answers(model, INPUTS)[:, 0], expected, atol=1e-4)
    pairs = np.stack([SCORES, -SCORES], axis=1)
    both = answers(fit_linear(INPUTS, pairs, num_classes=None, l2=2.0), INPUTS)
    np.testing.assert_allclose(both[:, 0], -both[:, 1], atol=1e-4)


@pytest.mark.parametrize("num_seen", [2, 3])
def test_classes_are_those_of_a_logistic_regression_and_an_unseen_one_is_unlikely(
    num_seen: int,
) -> None:
    cuts = np.quantile(SCORES, np.linspace(0, 1, num_seen + 1)[1:-1])
    classes = np.digitize(SCORES, cuts) + 1  # class 0 has no samples
    model = fit_linear(INPUTS, classes, num_classes=num_seen + 1, l2=0.5)
    said = torch.from_numpy(answers(model, INPUTS)).softmax(1).numpy()
    expected = LogisticRegression(C=2.0, max_iter=500).fit(INPUTS, classes).predict_proba(INPUTS)
    np.testing.assert_allclose(said[:, 1:], expected, atol=2e-3)
    assert said[:, 0].max() < 1e-5
    alone = fit_linear(INPUTS, np.full(150, 2), num_classes=3, l2=1.0)
    assert (answers(alone, INPUTS).argmax(axis=1) == 2).all()


def test_a_row_far_outside_is_answered_like_one_at_the_border() -> None:
    model = fit_linear(INPUTS, SCORES, num_classes=None, l2=1.0)
    far = np.tile(INPUTS.max(axis=0), (1, 1))
    np.testing.assert_array_equal(answers(model, far * 1e9), answers(model, far))


def test_it_is_fitted_at_once_and_loaded_into_a_model_that_is_not() -> None:
    configuration = configure("linear", {"l2": 3.0})
    assert isinstance(configuration, FittedConfiguration)
    assert configuration.describe(None) == "a linear model"
    (grown,) = configuration.grow(INPUTS, SCORES, num_classes=None, num_rounds=5, seed=0)
    empty = configuration.build(input_shape=(2, 2), num_outputs=1, vocabulary_size=None)
    assert isinstance(empty, LinearModel)
    empty.load_state_dict(grown.state_dict())
    rows = INPUTS.reshape(-1, 2, 2)
    np.testing.assert_array_equal(answers(empty, rows), answers(grown, INPUTS))

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.automl_pipeline.ensemble import MIN_GAIN, select, weighted_mean
from workbench.automl_pipeline.scores import loss_of, scores_of, simplest_guess


@st.composite
def classifications(draw: st.DrawFn) -> tuple[list[np.ndarray], np.ndarray]:
    num_models, num_samples, num_classes = (
        draw(st.integers(1, 6)), draw(st.integers(2, 30)), draw(st.integers(2, 4))
    )  # fmt: skip
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    predictions = [rng.dirichlet(np.ones(num_classes), num_samples) for _ in range(num_models)]
    return predictions, rng.integers(0, num_classes, num_samples)


@given(classifications())
def test_the_mean_is_never_worse_on_validation_than_the_best_model(drawn):
    predictions, targets = drawn
    weights = select(predictions, targets, "classification")
    assert np.isclose(weights.sum(), 1.0)
    assert (weights >= 0).all()
    best = min(loss_of(each, targets, "classification") for each in predictions)
    joined = loss_of(weighted_mean(predictions, weights), targets, "classification")
    assert joined <= best + 1e-12
    if (weights > 0).sum() > 1:
        assert joined < (1 - MIN_GAIN) * best


@given(classifications())
def test_a_mean_of_probabilities_is_one(drawn):
    predictions, targets = drawn
    joined = weighted_mean(predictions, select(predictions, targets, "classification"))
    np.testing.assert_allclose(joined.sum(axis=1), 1.0)


def test_models_with_opposite_errors_are_joined_and_the_better_twin_is_not():
    targets = np.zeros(100)
    errors = np.random.default_rng(0).normal(size=(100, 1))
    assert (select([errors, -errors], targets, "regression") == [0.5, 0.5]).all()
    assert (select([errors, 2 * errors], targets, "regression") == [1.0, 0.0]).all()


def test_the_simplest_guess_scores_what_it_should():
    targets = np.array([0, 0, 0, 1])
    said = np.tile(simplest_guess(targets, 2), (4, 1))
    assert scores_of(said, targets, "classification")["accuracy"] == 0.75
    assert scores_of(said, targets, "classification")["balanced_accuracy"] == 0.5
    numbers = np.array([1.0, 2.0, 6.0])
    assert scores_of(np.tile(simplest_guess(numbers, None), (3, 1)), numbers, "regression")["r2"] == 0.0

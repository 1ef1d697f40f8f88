from __future__ import annotations

import functools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.models.ensemble_selection import MIN_GAIN, select, weighted_mean


def log_loss(predicted: np.ndarray, targets: np.ndarray) -> float:
    return float(-np.mean(np.log(np.maximum(predicted[np.arange(len(targets)), targets], 1e-7))))


def squared_error(predicted: np.ndarray, targets: np.ndarray) -> float:
    return float(np.mean((predicted[:, 0] - targets) ** 2))


@st.composite
def classifications(draw: st.DrawFn) -> tuple[list[np.ndarray], np.ndarray]:
    num_models, num_samples, num_classes = (
        draw(st.integers(1, 6)),
        draw(st.integers(2, 30)),
        draw(st.integers(2, 4)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    predictions = [rng.dirichlet(np.ones(num_classes), num_samples) for _ in range(num_models)]
    return predictions, rng.integers(0, num_classes, num_samples)


@given(classifications())
def test_the_mean_is_never_worse_on_validation_than_the_best_model(drawn):
    predictions, targets = drawn
    loss = functools.partial(log_loss, targets=targets)
    weights = select(predictions, loss)
    assert np.isclose(weights.sum(), 1.0)
    assert (weights >= 0).all()
    best = min(loss(each) for each in predictions)
    joined = loss(weighted_mean(predictions, weights))
    assert joined <= best + 1e-12
    if (weights > 0).sum() > 1:
        assert joined < (1 - MIN_GAIN) * best


@given(classifications(), st.integers(1, 4))
def test_a_score_is_never_lowered_and_no_more_models_have_a_weight_than_allowed(drawn, max_members):
    predictions, targets = drawn

    def errors_minus_one(predicted: np.ndarray) -> float:
        return -float(np.mean(predicted.argmax(axis=1) == targets))

    weights = select(predictions, errors_minus_one, max_members=max_members, min_gain=0.0)
    assert np.isclose(weights.sum(), 1.0)
    assert 1 <= (weights > 0).sum() <= max_members
    best = min(errors_minus_one(each) for each in predictions)
    assert errors_minus_one(weighted_mean(predictions, weights)) <= best + 1e-12


@given(classifications())
def test_a_mean_of_probabilities_is_one(drawn):
    predictions, targets = drawn
    weights = select(predictions, functools.partial(log_loss, targets=targets), min_gain=0.0)
    np.testing.assert_allclose(weighted_mean(predictions, weights).sum(axis=1), 1.0)


def test_models_with_opposite_errors_are_joined_and_the_better_twin_is_not():
    loss = functools.partial(squared_error, targets=np.zeros(100))
    errors = np.random.default_rng(0).normal(size=(100, 1))
    assert (select([errors, -errors], loss) == [0.5, 0.5]).all()
    assert (select([errors, 2 * errors], loss) == [1.0, 0.0]).all()


def test_a_model_that_predicts_nan_has_no_weight():
    loss = functools.partial(squared_error, targets=np.zeros(4))
    nothing, good = np.full((4, 1), np.nan), np.full((4, 1), 0.1)
    assert (select([nothing, good], loss, min_gain=0.0) == [0.0, 1.0]).all()

"""Calibration and thresholds: learnt on validation samples, used if they help elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.foundation.errors import ArgumentError
from workbench.runs.automl.decisions import Decisions, factors_of, learn_decisions
from workbench.runs.automl.scores import METRICS

CLASSIFICATION = METRICS["classification"]


def drawn(num_rows: int, power: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities that are too sure if the power is above 1, and classes."""
    random = np.random.default_rng(seed)
    true = 1 / (1 + np.exp(-random.normal(-1.5, 1.5, num_rows)))
    classes = (random.random(num_rows) < true).astype(int)
    odds = (true / (1 - true)) ** power
    return np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1), classes


def test_probabilities_that_are_too_sure_are_calibrated():
    predicted, classes = drawn(800, power=2.5)
    decisions = learn_decisions(predicted, classes, score=None)
    assert decisions.temperature == pytest.approx(2.5, rel=0.25)
    log_loss = CLASSIFICATION["log_loss"].score
    new, new_classes = drawn(4000, power=2.5, seed=1)
    assert log_loss(decisions.calibrated(new), new_classes) < log_loss(new, new_classes) - 0.05
    np.testing.assert_allclose(decisions.calibrated(new).sum(axis=1), 1.0)


def test_good_probabilities_stay_as_they_are():
    predicted, classes = drawn(800, power=1.0)
    decisions = learn_decisions(predicted, classes, score=None)
    assert decisions == Decisions()
    assert decisions.calibrated(predicted) is predicted
    assert decisions.weighed(predicted) is predicted


@pytest.mark.parametrize(
    ("metric", "least"),
    [("f1", 0.01), ("balanced_accuracy", 0.05), ("mcc", -0.005), ("macro_f1", -0.005)],
)
def test_a_threshold_is_chosen_for_the_metric(metric, least):
    score = CLASSIFICATION[metric].score
    predicted, classes = drawn(800, power=1.0)
    decisions = learn_decisions(predicted, classes, score=score)
    assert decisions.temperature == 1.0
    new, new_classes = drawn(4000, power=1.0, seed=1)
    assert score(decisions.weighed(new), new_classes) > score(new, new_classes) + least


def test_three_classes_get_factors():
    random = np.random.default_rng(0)
    classes = random.choice(3, 600, p=[0.85, 0.1, 0.05])
    logits = 1.2 * np.eye(3)[classes] + random.normal(size=(600, 3)) + np.log([0.85, 0.1, 0.05])
    predicted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    score = CLASSIFICATION["balanced_accuracy"].score
    decisions = learn_decisions(predicted, classes, score=score)
    assert len(decisions.factors) == 3
    assert score(decisions.weighed(predicted), classes) > score(predicted, classes) + 0.05


def test_a_threshold_that_does_not_help_is_not_used():
    random = np.random.default_rng(3)
    classes = random.integers(0, 2, 100)
    predicted = np.where(np.eye(2)[classes] > 0, 0.95, 0.05)
    score = CLASSIFICATION["f1"].score
    assert learn_decisions(predicted, classes, score=score).factors == ()


def test_few_samples_teach_nothing():
    predicted, classes = drawn(30, power=3.0)
    assert learn_decisions(predicted, classes, score=CLASSIFICATION["f1"].score) == Decisions()


def test_weights_of_classes():
    shares = np.array([0.8, 0.2])
    assert factors_of(None, ("no", "yes"), shares) == ()
    assert factors_of("balanced", ("no", "yes"), shares) == pytest.approx((1.0, 4.0))
    assert factors_of({"yes": 5}, ("no", "yes"), shares) == (1.0, 5.0)
    assert factors_of({1: 2.0}, (0, 1), shares) == (1.0, 2.0)
    for weights, message in (
        ("balance", "class_weights: 'balance' is no weight of a class"),
        ({"yess": 2}, "class_weights: 'yess' is not a class"),
        ({"yes": 0}, "class_weights: the weight of 'yes' is 0"),
    ):
        with pytest.raises(ArgumentError) as raised:
            factors_of(weights, ("no", "yes"), shares)
        assert str(raised.value).startswith(message)


def test_a_threshold_is_described_as_a_probability():
    assert Decisions().describe(("no", "yes")) is None
    assert (
        Decisions(factors=(1.0, 4.0)).describe(("no", "yes"))
        == "yes is predicted from a probability of 0.2 on"
    )

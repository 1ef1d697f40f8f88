"""Calibration and thresholds: learnt on validation samples, used if they help elsewhere."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score, log_loss

from workbench.deploy.exported_model import along_curves, calibrated
from workbench.deploy.graph import Graph
from workbench.foundation.errors import ArgumentError
from workbench.runs.automl.class_decisions import Decisions, factors_of, learn_decisions
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
    decisions = learn_decisions(predicted, classes, score=CLASSIFICATION[metric].tuned)
    assert decisions.temperature == 1.0
    new, new_classes = drawn(4000, power=1.0, seed=1)
    assert score(decisions.weighed(new), new_classes) > score(new, new_classes) + least


def test_three_classes_get_factors():
    random = np.random.default_rng(0)
    classes = random.choice(3, 600, p=[0.85, 0.1, 0.05])
    logits = 1.2 * np.eye(3)[classes] + random.normal(size=(600, 3)) + np.log([0.85, 0.1, 0.05])
    predicted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    score = CLASSIFICATION["balanced_accuracy"].score
    tuned = CLASSIFICATION["balanced_accuracy"].tuned
    decisions = learn_decisions(predicted, classes, score=tuned)
    assert len(decisions.factors) == 3
    assert score(decisions.weighed(predicted), classes) > score(predicted, classes) + 0.05


def test_a_threshold_that_does_not_help_is_not_used():
    random = np.random.default_rng(3)
    classes = random.integers(0, 2, 100)
    predicted = np.where(np.eye(2)[classes] > 0, 0.95, 0.05)
    score = CLASSIFICATION["f1"].tuned
    assert learn_decisions(predicted, classes, score=score).factors == ()


def test_few_samples_teach_nothing():
    predicted, classes = drawn(30, power=3.0)
    assert learn_decisions(predicted, classes, score=CLASSIFICATION["f1"].tuned) == Decisions()


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


def rare(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the true probabilities of a class that 28 in 1,000 samples have, and the classes."""
    random = np.random.default_rng(seed)
    classes = (random.random(num_rows) < 0.028).astype(int)
    evidence = random.normal(size=num_rows) + 1.5 * classes
    odds = 0.028 / 0.972 * np.exp(1.5 * evidence - 1.125)
    return np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1), classes


def test_a_threshold_of_few_positives_is_nearly_the_best_of_all():
    new, new_classes = rare(100_000, 99)
    falling = np.argsort(-new[:, 1])
    num_right = np.cumsum(new_classes[falling])
    best = (2 * num_right / (np.arange(1, len(new) + 1) + new_classes.sum())).max()
    scores = []
    for seed in range(10):
        decisions = learn_decisions(*rare(1000, seed), score=CLASSIFICATION["f1"].tuned)
        chosen = decisions.weighed(decisions.calibrated(new)).argmax(axis=1)
        scores.append(f1_score(new_classes, chosen))
    assert best > 2 * f1_score(new_classes, new.argmax(axis=1))
    assert np.mean(scores) > 0.96 * best
    assert min(scores) > 0.85 * best


def bent(num_rows: int, seed: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities that no temperature corrects, and the classes."""
    random = np.random.default_rng(seed)
    odds = random.normal(0.0, 1.5, (num_rows, num_classes))
    true = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    classes = (true.cumsum(axis=1) < random.random((num_rows, 1))).sum(axis=1)
    said = true**0.5 * np.linspace(1.0, 6.0, num_classes)
    return said / said.sum(axis=1, keepdims=True), classes


@pytest.mark.parametrize("num_classes", [2, 3])
def test_curves_correct_what_a_temperature_cannot(num_classes):
    predicted, classes = bent(1500, 0, num_classes)
    decisions = learn_decisions(predicted, classes, score=None)
    assert len(decisions.curves) == (1 if num_classes == 2 else 3)
    new, new_classes = bent(20_000, 1, num_classes)
    calibrated = decisions.calibrated(new)
    np.testing.assert_allclose(calibrated.sum(axis=1), 1.0)
    assert log_loss(new_classes, calibrated) < log_loss(new_classes, new) - 0.05
    # Of the samples with a probability of about 30 %, 30 % are of the class.
    some = np.abs(calibrated[:, 1] - 0.3) < 0.05
    assert (new_classes[some] == 1).mean() == pytest.approx(0.3, abs=0.05)
    order = np.argsort(new[:, 1])
    if num_classes == 2:
        assert (np.diff(calibrated[order, 1]) >= 0).all()


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_graph_calibrates_along_the_same_curves(num_classes):
    decisions = learn_decisions(*bent(1500, 0, num_classes), score=None)
    new, _ = bent(2000, 1, num_classes)
    new[:2] = np.eye(num_classes)[:2]
    graph = Graph()
    given = graph.input("given", np.dtype("float32"), (num_classes,))
    answer = along_curves(graph, given, decisions.curves)
    model = graph.model(answer, "answers", np.dtype("float32"), (num_classes,))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    calibrated = session.run(None, {"given": new.astype(np.float32)})[0]
    np.testing.assert_allclose(calibrated, decisions.calibrated(new), atol=1e-5)


def graded(num_rows: int, seed: int, shares: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the true probabilities of ordered classes, and the classes."""
    random = np.random.default_rng(seed)
    places = np.arange(len(shares))
    classes = random.choice(places, num_rows, p=shares)
    seen = classes + random.normal(0.0, 1.2, num_rows)
    likely = np.array(shares) * np.exp(-((seen[:, None] - places) ** 2) / (2 * 1.2**2))
    return likely / likely.sum(axis=1, keepdims=True), classes


@pytest.mark.parametrize("shares", [[0.7, 0.15, 0.1, 0.05], [0.2, 0.2, 0.2, 0.2, 0.2]])
def test_ordered_classes_are_chosen_for_the_quadratic_kappa(shares):
    decisions = learn_decisions(*graded(1500, 0, shares), score=None, distance_power=2)
    new, new_classes = graded(50_000, 1, shares)

    def kappa(chosen: np.ndarray) -> float:
        return cohen_kappa_score(new_classes, chosen, weights="quadratic")

    agreement = kappa(decisions.weighed(new).argmax(axis=1))
    nearest = kappa(np.round(new @ np.arange(len(shares))).astype(int))
    assert agreement > max(kappa(new.argmax(axis=1)), nearest) - 0.005
    # No threshold on the mean class, in steps, is much better.
    stretched = [
        kappa(np.clip(np.round(factor * (new @ np.arange(len(shares))) + shift), 0, 4).astype(int))
        for factor in np.linspace(0.8, 2.0, 13)
        for shift in np.linspace(-1.5, 0.5, 9)
    ]
    assert agreement > max(stretched) - 0.01


def test_ordered_classes_are_chosen_for_their_distance():
    predicted, classes = graded(1500, 0, [0.6, 0.1, 0.1, 0.2])
    decisions = learn_decisions(predicted, classes, score=None, distance_power=1)
    median = (predicted.cumsum(axis=1) < 0.5).sum(axis=1)
    np.testing.assert_array_equal(decisions.weighed(predicted).argmax(axis=1), median)


def test_samples_that_are_all_right_do_not_make_certain():
    random = np.random.default_rng(0)
    classes = random.integers(0, 2, 60)
    predicted = np.where(np.eye(2)[classes] > 0, 0.9, 0.1)
    decisions = learn_decisions(predicted, classes, score=None)
    assert decisions.temperature >= 0.5
    # By the rule of succession, one of 62 new samples may be of the other class.
    assert decisions.calibrated(predicted).min() > 0.2 / 62


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("kind", ["temperature", "curves"])
def test_no_calibrated_probability_is_0_and_none_in_the_graph(num_classes, kind):
    decisions = Decisions(0.5)
    if kind == "curves":
        curve = ((-5.0, 0.0, 5.0), (-15.0, 0.0, 15.0))
        decisions = Decisions(curves=(curve,) * (1 if num_classes == 2 else num_classes))
    certain = np.eye(num_classes)
    given = np.concatenate([certain, np.clip(certain, 1e-12, None), certain + 1.0 / num_classes])
    given = given / given.sum(axis=1, keepdims=True)
    found = decisions.calibrated(given)
    assert found.min() >= 0.9e-7
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_array_equal(found.argmax(axis=1), given.argmax(axis=1))
    graph = Graph()
    taken = graph.input("given", np.dtype("float32"), (num_classes,))
    answer = calibrated(graph, taken, decisions.temperature, decisions.curves)
    model = graph.model(answer, "answers", np.dtype("float32"), (num_classes,))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answers = session.run(None, {"given": given.astype(np.float32)})[0]
    assert answers.min() >= 0.9e-7
    np.testing.assert_allclose(answers, found, atol=1e-5)


def test_a_temperature_changes_no_class_and_curves_that_do_are_said():
    predicted, classes = drawn(800, power=2.5)
    decisions = learn_decisions(predicted, classes, score=None)
    new, _ = drawn(4000, power=2.5, seed=1)
    np.testing.assert_array_equal(decisions.calibrated(new).argmax(axis=1), new.argmax(axis=1))
    assert decisions.describe(("no", "yes")) is None
    predicted, classes = bent(1500, 0, 2)
    decisions = learn_decisions(predicted, classes, score=None)
    moved = decisions.calibrated(predicted).argmax(axis=1) != predicted.argmax(axis=1)
    assert decisions.moved == moved.mean() > 0
    text = decisions.describe(("no", "yes"))
    assert text is not None
    assert text.startswith("calibration changes the predicted class of ")


def test_copies_of_a_row_do_not_confirm_each_other():
    random = np.random.default_rng(0)
    classes = random.integers(0, 2, 240)
    predicted = np.repeat(random.dirichlet([1, 1], 240), 6, axis=0)
    copied = learn_decisions(
        predicted, np.repeat(classes, 6), score=None, copies=np.repeat(np.arange(240), 6)
    )
    alone = learn_decisions(predicted[::6], classes, score=None)
    assert bool(copied.curves) == bool(alone.curves)
    few = learn_decisions(
        predicted[:240], np.repeat(classes[:40], 6), score=None, copies=np.repeat(np.arange(40), 6)
    )
    assert few == Decisions(), "40 rows are too few, however many copies they have"

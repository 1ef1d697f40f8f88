from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    cohen_kappa_score,
    f1_score,
    matthews_corrcoef,
    mean_absolute_percentage_error,
    mean_pinball_loss,
    median_absolute_error,
    precision_score,
    recall_score,
    roc_auc_score,
)

from workbench.data.row_splits import RowBlocks
from workbench.foundation.errors import ArgumentError
from workbench.runs.automl.scores import (
    METRICS,
    check_metric,
    check_quantiles,
    is_better,
    loss_of,
    note_of_positives,
    score_intervals,
    scores_of,
    simplest_guess,
)


def test_the_simplest_guess_scores_what_it_should():
    targets = np.array([0, 0, 0, 1])
    guessed = np.tile(simplest_guess(targets, 2), (4, 1))
    assert scores_of(guessed, targets, "classification")["accuracy"] == 0.75
    assert scores_of(guessed, targets, "classification")["balanced_accuracy"] == 0.5
    numbers = np.array([1.0, 2.0, 6.0])
    assert (
        scores_of(np.tile(simplest_guess(numbers, None), (3, 1)), numbers, "regression")["r2"]
        == 0.0
    )


def test_what_is_optimised_comes_first_and_its_loss_falls_where_it_is_better():
    random = np.random.default_rng(0)
    targets = random.integers(0, 3, 90)
    poor = random.dirichlet([1.0] * 3, 90)
    good = 0.5 * poor + 0.5 * np.eye(3)[targets]
    for metric in METRICS["classification"]:
        scores = [
            scores_of(predicted, targets, "classification", metric) for predicted in (good, poor)
        ]
        assert next(iter(scores[0])) == metric
        assert is_better(metric, "classification", scores[0][metric], scores[1][metric])
        losses = [
            loss_of(predicted, targets, "classification", metric) for predicted in (good, poor)
        ]
        assert 0.0 <= losses[0] < losses[1]
    assert scores_of(poor, targets, "classification", "macro_f1")["macro_f1"] == pytest.approx(
        f1_score(targets, poor.argmax(axis=1), average="macro")
    )
    assert scores_of(poor, targets, "classification", "roc_auc")["roc_auc"] == pytest.approx(
        roc_auc_score(targets, poor, multi_class="ovr")
    )
    assert list(scores_of(poor, targets, "classification")) == [
        "accuracy",
        "balanced_accuracy",
        "log_loss",
    ]


def test_errors_of_numbers_are_better_where_they_are_smaller():
    numbers = np.array([1.0, 2.0, 6.0])
    good, poor = (numbers + 0.5)[:, None], (numbers - 1.0)[:, None]
    for metric in METRICS["regression"].keys() - {"pinball"}:  # quantiles correct a constant error
        first, second = (
            scores_of(each, numbers, "regression", metric)[metric] for each in (good, poor)
        )
        assert is_better(metric, "regression", first, second)
        assert loss_of(good, numbers, "regression", metric) < loss_of(
            poor, numbers, "regression", metric
        )


def test_a_metric_of_the_other_task_is_refused_with_what_is_allowed():
    check_metric(None, "regression")
    check_metric("rmse", "regression")
    with pytest.raises(
        ArgumentError, match=r"'macrof1' cannot be optimised in a classification.*macro_f1\?"
    ):
        check_metric("macrof1", "classification")
    with pytest.raises(ArgumentError, match="allowed: rmse, mae, r2"):
        check_metric("accuracy", "regression")


@pytest.mark.parametrize("num_classes", [2, 3])
def test_scores_of_classes_are_those_of_scikit_learn(num_classes):
    random = np.random.default_rng(1)
    targets = random.integers(0, num_classes, 80)
    predicted = random.dirichlet([1.0] * num_classes, 80).round(1)  # with ties
    predicted[:, 0] = 1.0 - predicted[:, 1:].sum(axis=1)
    chosen = predicted.argmax(axis=1)
    scores = scores_of(predicted, targets, "classification", "f1")
    average = "binary" if num_classes == 2 else "macro"
    assert scores["f1"] == pytest.approx(f1_score(targets, chosen, average=average))
    assert scores["precision"] == pytest.approx(precision_score(targets, chosen, average=average))
    assert scores["recall"] == pytest.approx(recall_score(targets, chosen, average=average))
    score = METRICS["classification"]["mcc"].score(predicted, targets)
    assert score == pytest.approx(matthews_corrcoef(targets, chosen))
    wanted = targets if num_classes == 2 else np.eye(num_classes)[targets]
    shown = predicted[:, 1] if num_classes == 2 else predicted
    score = METRICS["classification"]["average_precision"].score(predicted, targets)
    assert score == pytest.approx(average_precision_score(wanted, shown))


def test_errors_of_numbers_are_those_of_scikit_learn():
    random = np.random.default_rng(2)
    targets, predicted = random.normal(3, 1, 50), random.normal(3, 1, (50, 1))
    errors = {
        name: METRICS["regression"][name].score(predicted, targets)
        for name in ("mape", "median_absolute_error")
    }
    assert errors["mape"] == pytest.approx(mean_absolute_percentage_error(targets, predicted))
    assert errors["median_absolute_error"] == pytest.approx(
        median_absolute_error(targets, predicted)
    )


def test_a_class_that_is_never_predicted_has_no_precision():
    predicted = np.tile([0.9, 0.1], (6, 1))
    targets = np.array([0, 0, 0, 1, 1, 0])
    scores = scores_of(predicted, targets, "classification", "f1")
    assert (scores["f1"], scores["precision"], scores["recall"]) == (0.0, 0.0, 0.0)
    assert METRICS["classification"]["mcc"].score(predicted, targets) == 0.0


@pytest.mark.parametrize(
    ("metric", "names", "share", "says"),
    [
        ("f1", ["no", "Yes"], 0.1, "f1 is that of the class 'Yes'"),
        ("f1", ["failed", "ok"], 0.9, "the more frequent one. If 'failed' matters"),
        ("average_precision", ["0", "1"], 0.1, "average_precision is that of the class '1'"),
        ("mcc", ["no", "yes"], 0.1, None),
        (None, ["no", "yes"], 0.1, None),
        ("f1", ["a", "b", "c"], 0.1, None),
    ],
)
def test_a_metric_of_one_of_two_classes_names_it(metric, names, share, says):
    classes = (np.arange(100) < 100 * share).astype(np.int64)
    note = note_of_positives(metric, names, classes)
    assert (note is None) == (says is None)
    assert (says or "") in (note or "")
    assert ("more frequent" in (note or "")) == (share > 0.5)


@pytest.mark.parametrize("name", ["recall", "f1", "precision", "balanced_accuracy", "mcc"])
def test_six_positives_of_which_none_is_recognised_leave_a_wide_interval(name: str) -> None:
    for num_samples in (400, 1_000):
        targets = np.zeros(num_samples, dtype=np.int64)
        targets[:6] = 1
        predicted = np.tile([0.9, 0.1], (num_samples, 1))
        metric = "mcc" if name == "mcc" else "f1"
        intervals = score_intervals(
            predicted, targets, "classification", metric, blocks=RowBlocks()
        )
        low, high = intervals[name]
        assert high - low > 0.2
        if name in ("recall", "f1"):
            # Clopper and Pearson: with a probability of 5 %, none of 6 is seen at a share of 0.39.
            assert low == 0.0
            assert 0.25 < high < 0.45
        if name == "precision":  # nothing was called positive, so it may be anything
            assert low == 0.0
            assert high > 0.9


def test_the_pinball_loss_is_that_of_scikit_learn():
    random = np.random.default_rng(0)
    targets = random.normal(size=200)
    quantiles = np.sort(random.normal(size=(200, 3)), axis=1)
    levels = (0.1, 0.5, 0.8)
    wanted = [
        mean_pinball_loss(targets, quantiles[:, place], alpha=level)
        for place, level in enumerate(levels)
    ]
    predicted = np.column_stack([quantiles[:, 1], quantiles])
    scores = scores_of(predicted, targets, "regression", "pinball", quantiles=levels)
    assert scores["pinball"] == pytest.approx(np.mean(wanted))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0.1, 1.0), "quantiles: 1 is not a quantile"),
        ((0.1, 0.1), "quantiles: a quantile is listed twice"),
    ],
)
def test_wrong_quantiles_are_an_error(given, message):
    with pytest.raises(ArgumentError) as raised:
        check_quantiles(given, None, "regression")
    assert str(raised.value).startswith(message)


def test_the_pinball_loss_alone_predicts_every_tenth():
    assert check_quantiles((), "pinball", "regression") == pytest.approx(np.arange(1, 10) / 10)
    assert check_quantiles((0.9, 0.1), None, "regression") == (0.1, 0.9)
    assert check_quantiles((), None, "regression") == ()
    with pytest.raises(ArgumentError, match="classes have no quantiles"):
        check_quantiles((0.5,), None, "classification")


def test_scores_of_ordered_classes_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    targets, chosen = random.integers(0, 4, (2, 200))
    scores = scores_of(np.eye(4)[chosen], targets, "classification", "quadratic_kappa")
    wanted = cohen_kappa_score(targets, chosen, weights="quadratic")
    assert scores["quadratic_kappa"] == pytest.approx(wanted)
    assert scores["class_distance"] == pytest.approx(np.abs(targets - chosen).mean())
    check_metric("class_distance", "classification", is_ordered=True)
    with pytest.raises(ArgumentError, match="needs classes with an order"):
        check_metric("class_distance", "classification")

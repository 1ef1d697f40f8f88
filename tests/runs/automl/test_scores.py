from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from workbench.foundation.errors import ArgumentError
from workbench.runs.automl.scores import (
    METRICS,
    check_metric,
    is_better,
    loss_of,
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
        scores = [scores_of(each, targets, "classification", metric) for each in (good, poor)]
        assert next(iter(scores[0])) == metric
        assert is_better(metric, "classification", scores[0][metric], scores[1][metric])
        losses = [loss_of(each, targets, "classification", metric) for each in (good, poor)]
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
    for metric in METRICS["regression"]:
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

"""What is reported of rows with weights, against scikit-learn and sums by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from workbench.data.row_splits import RowBlocks
from workbench.foundation.errors import DataError
from workbench.runs.automl.error_slices import error_slices
from workbench.runs.automl.held_out_analysis import AskedScore, TestAnalysis, analyse
from workbench.runs.automl.row_roles import weights_in
from workbench.runs.automl.score_intervals import Judged, with_more_rows
from workbench.runs.automl.scores import METRICS, score_intervals, scores_of, simplest_guess

RANDOM = np.random.default_rng(0)
NUM = 300
WEIGHTS = RANDOM.gamma(0.7, size=NUM) + 0.01
LABELS = RANDOM.integers(0, 3, NUM)
SHARES = RANDOM.dirichlet([1.0, 1.0, 1.0], NUM) * 0.7 + 0.3 * np.eye(3)[LABELS]
NUMBERS = RANDOM.normal(3.0, 2.0, NUM)
PREDICTED = (NUMBERS + RANDOM.normal(size=NUM))[:, None]
TABLE = pd.DataFrame(
    {
        "size": NUMBERS,
        "town": RANDOM.choice(["Rome", "Oslo"], NUM),
        "noise": RANDOM.normal(size=NUM),
    }
)


def test_scores_of_classes_are_those_of_scikit_learn() -> None:
    chosen, is_class = SHARES.argmax(axis=1), np.eye(3)[LABELS]
    how: dict[str, Any] = {"sample_weight": WEIGHTS}
    expected = {
        "accuracy": metrics.accuracy_score(LABELS, chosen, **how),
        "balanced_accuracy": metrics.balanced_accuracy_score(LABELS, chosen, **how),
        "log_loss": metrics.log_loss(LABELS, SHARES, **how),
        "macro_f1": metrics.f1_score(LABELS, chosen, average="macro", **how),
        "mcc": metrics.matthews_corrcoef(LABELS, chosen, **how),
        "quadratic_kappa": metrics.cohen_kappa_score(LABELS, chosen, weights="quadratic", **how),
        "roc_auc": metrics.roc_auc_score(is_class, SHARES, average="macro", **how),
        "average_precision": metrics.average_precision_score(
            is_class, SHARES, average="macro", **how
        ),
        "class_distance": np.average(np.abs(chosen - LABELS), weights=WEIGHTS),
    }
    for name, value in expected.items():
        score = METRICS["classification"][name].score(SHARES, LABELS, WEIGHTS)
        assert score == pytest.approx(value, abs=1e-9), name


def test_scores_of_numbers_are_those_of_scikit_learn() -> None:
    how: dict[str, Any] = {"sample_weight": WEIGHTS}
    expected = {
        "r2": metrics.r2_score(NUMBERS, PREDICTED[:, 0], **how),
        "rmse": metrics.mean_squared_error(NUMBERS, PREDICTED[:, 0], **how) ** 0.5,
        "mae": metrics.mean_absolute_error(NUMBERS, PREDICTED[:, 0], **how),
        "mape": metrics.mean_absolute_percentage_error(NUMBERS, PREDICTED[:, 0], **how),
    }
    for name, value in expected.items():
        scores = METRICS["regression"][name].score(PREDICTED, NUMBERS, WEIGHTS)
        assert scores == pytest.approx(value), name
    levels = (0.1, 0.9)
    quantiles = np.column_stack([PREDICTED, PREDICTED - 1.0, PREDICTED + 1.5])
    losses = [
        metrics.mean_pinball_loss(NUMBERS, quantiles[:, place], alpha=level, **how)
        for place, level in enumerate(levels, 1)
    ]
    scores = scores_of(
        quantiles, NUMBERS, "regression", "pinball", quantiles=levels, weights=WEIGHTS
    )
    assert scores["pinball"] == pytest.approx(np.mean(losses))


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_row_of_weight_2_is_like_two_rows(task: Any) -> None:
    whole = RANDOM.integers(0, 4, NUM)
    rows = np.repeat(np.arange(NUM), whole)
    predicted, targets = PREDICTED, NUMBERS
    if task == "classification":
        predicted, targets = SHARES, LABELS
    for name, measure in METRICS[task].items():
        score = measure.score(predicted, targets, whole.astype(float))
        expected = measure.score(predicted[rows], targets[rows])
        tolerance = 0.05 if name == "pinball" else 1e-9  # whose quantiles are interpolated
        assert score == pytest.approx(expected, rel=tolerance), name


def test_the_simplest_guess_is_that_of_the_weights() -> None:
    share = [WEIGHTS[number == LABELS].sum() / WEIGHTS.sum() for number in range(3)]
    assert simplest_guess(LABELS, 3, WEIGHTS) == pytest.approx(share)
    assert simplest_guess(NUMBERS, None, WEIGHTS)[0] == pytest.approx(
        (NUMBERS * WEIGHTS).sum() / WEIGHTS.sum()
    )


def test_equal_weights_change_no_interval_and_large_ones_widen_it() -> None:
    plain = score_intervals(PREDICTED, NUMBERS, "regression", blocks=RowBlocks())
    equal = score_intervals(
        PREDICTED, NUMBERS, "regression", blocks=RowBlocks(), weights=np.full(NUM, 2.5)
    )
    few = np.where(np.arange(NUM) < 20, 50.0, 0.1)
    wide = score_intervals(PREDICTED, NUMBERS, "regression", blocks=RowBlocks(), weights=few)
    for name, (low, high) in plain.items():
        assert equal[name] == pytest.approx((low, high))
        assert wide[name][1] - wide[name][0] > 1.5 * (high - low)


def test_copies_that_share_a_weight_are_as_much_evidence_as_the_row() -> None:
    test = Judged(PREDICTED[:60], NUMBERS[:60], RowBlocks(), np.ones(60))
    rows = np.repeat(np.arange(60, 240), 3)
    copies = Judged(PREDICTED[rows], NUMBERS[rows], RowBlocks(rows), np.full(540, 1 / 3))
    more = with_more_rows(test, copies)
    assert more is not None
    assert more.ratio == pytest.approx(240 / 60)
    times = Judged(PREDICTED[rows], NUMBERS[rows], RowBlocks(rows, rows * 1.0), np.full(540, 1 / 3))
    later = Judged(PREDICTED[:60], NUMBERS[:60], RowBlocks(None, np.arange(300.0, 360)), None)
    more = with_more_rows(later, times)
    assert more is not None
    assert more.ratio == pytest.approx(240 / 60)


def classes_of(rows: pd.DataFrame) -> np.ndarray:
    second = (rows["size"] > 3.0).to_numpy(float) * 0.8 + 0.1
    return np.column_stack([1 - second, second])


def test_the_analysis_of_classes_counts_by_weights() -> None:
    labels = (NUMBERS + RANDOM.normal(size=NUM) > 3.0).astype(int)
    analysis = analyse(
        classes_of, TABLE, labels, "classification", labels=("no", "yes"), weights=WEIGHTS
    )
    chosen = classes_of(TABLE).argmax(axis=1)
    counts = TestAnalysis(analysis).confusion().to_numpy()
    for true in (0, 1):
        for guess in (0, 1):
            sum_by_hand = WEIGHTS[(labels == true) & (chosen == guess)].sum()
            assert counts[true, guess] == pytest.approx(sum_by_hand)
    wrong = (chosen != labels).astype(float)
    for part in analysis["slices"]:
        if part["column"] == "town":
            rows = (TABLE["town"] == part["value"]).to_numpy()
            assert part["mean"] == pytest.approx(np.average(wrong[rows], weights=WEIGHTS[rows]))
            assert part["num_samples"] == rows.sum()
        assert part["overall"] == pytest.approx(np.average(wrong, weights=WEIGHTS))


def test_the_analysis_of_numbers_counts_by_weights() -> None:
    def predict(rows: pd.DataFrame) -> np.ndarray:
        return rows[["size"]].to_numpy() * 0.5

    whole = RANDOM.integers(1, 5, NUM)
    analysis = analyse(predict, TABLE, NUMBERS, "regression", weights=whole.astype(float))
    off = np.abs(NUMBERS * 0.5)
    assert analysis["errors"]["median"] == pytest.approx(np.median(np.repeat(off, whole)))
    column = next(row for row in analysis["importance"]["columns"] if row["column"] == "size")
    gains = []
    random = np.random.default_rng(0)
    for _ in range(5):
        shuffled = NUMBERS[random.permutation(NUM)]
        gains.append(np.average(np.abs(shuffled * 0.5 - NUMBERS) - off, weights=whole))
    assert column["mean"] == pytest.approx(np.mean(gains))


def test_a_slice_is_as_certain_as_its_weights_allow() -> None:
    mistakes = np.where((TABLE["town"] == "Oslo") & (TABLE["noise"] > 0), 1.0, 0.0)
    [sure] = error_slices(TABLE[["town"]], mistakes)
    assert sure["certain"]
    few = np.where(np.arange(NUM) % 30 == 0, 1000.0, 1e-3)
    assert not error_slices(TABLE[["town"]], mistakes, few), "ten rows are too few"


@pytest.mark.parametrize("name", ["roc_auc", "log_loss", "balanced_accuracy", "mcc"])
def test_importance_is_measured_in_the_metric_that_was_asked_for(name: str) -> None:
    labels = (NUMBERS + RANDOM.normal(size=NUM) > 3.0).astype(int)
    measure = METRICS["classification"][name]
    asked = AskedScore(name, measure.score, measure.goal == "minimize", classes_of)
    analysis = analyse(
        classes_of, TABLE, labels, "classification", labels=("no", "yes"), asked=asked
    )
    table = TestAnalysis(analysis).importance()
    verb = "gain" if name == "log_loss" else "loss"
    assert list(table.columns) == ["column", f"{verb}_of_{name}", "low", "high"]
    assert table["column"].iloc[0] == "size"
    before = {
        "roc_auc": lambda shares: metrics.roc_auc_score(labels, shares[:, 1]),
        "log_loss": lambda shares: -metrics.log_loss(labels, shares),
        "balanced_accuracy": lambda shares: metrics.balanced_accuracy_score(
            labels, shares.argmax(axis=1)
        ),
        "mcc": lambda shares: metrics.matthews_corrcoef(labels, shares.argmax(axis=1)),
    }[name]
    random = np.random.default_rng(0)
    losses = []
    for _ in range(5):
        shuffled = TABLE.assign(size=NUMBERS[random.permutation(NUM)])
        losses.append(before(classes_of(TABLE)) - before(classes_of(shuffled)))
    assert table.iloc[0, 1] == pytest.approx(np.mean(losses))
    assert table["low"].iloc[0] > 0.0
    assert table.loc[table["column"] == "noise"].iloc[0, 1] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_the_interval_of_an_importance_holds_the_loss_on_all_rows() -> None:
    measure = METRICS["classification"]["roc_auc"]
    asked = AskedScore("roc_auc", measure.score, False, classes_of)
    held, losses = 0, []
    for seed in range(60):
        random = np.random.default_rng(seed)
        size = random.normal(3.0, 2.0, 200)
        rows = pd.DataFrame({"size": size})
        labels = (size + random.normal(0, 2.0, 200) > 3.0).astype(int)
        analysis = analyse(classes_of, rows, labels, "classification", labels=(0, 1), asked=asked)
        losses.append(analysis["importance"]["columns"][0])
    truth = np.mean([row["mean"] for row in losses])
    held = sum(row["low"] <= truth <= row["high"] for row in losses)
    assert held >= 0.8 * 60
    assert all(math.isfinite(row["mean"]) for row in losses)


def test_weights_may_be_written_with_decimal_commas() -> None:
    rows = pd.DataFrame({"w": ["2,0", "0,5", "1.200,25"], "v": ["1", "0", "3"]})
    assert weights_in(rows, "w").tolist() == [2.0, 0.5, 1200.25]
    assert weights_in(rows, "v").tolist() == [1.0, 0.0, 3.0]
    with pytest.raises(DataError, match=r"the weight in row 0 \(from 0\) is 'a'"):
        weights_in(rows.assign(w=["a", "1", "2"]), "w")

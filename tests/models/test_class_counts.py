from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, jaccard_score, roc_auc_score

from workbench.models.adapters import load_metrics
from workbench.models.metrics import IGNORED, WholeMetric

CLASSES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


@given(CLASSES, st.integers(1, 7), st.booleans())
@pytest.mark.parametrize(("name", "rival"), [("macro_f1", f1_score), ("mean_iou", jaccard_score)])
def test_scores_are_those_of_scikit_learn_however_the_set_is_cut(
    name, rival, pairs, size, as_scores
):
    metric = load_metrics([name], "classification")[name]
    assert isinstance(metric, WholeMetric)
    predicted, wanted = torch.tensor(pairs).T
    outputs = torch.nn.functional.one_hot(predicted, 5).float() if as_scores else predicted
    batches = list(zip(outputs.split(size), wanted.split(size), strict=True))
    padding = (outputs[:1], torch.tensor([IGNORED]))
    expected = rival(wanted.numpy(), predicted.numpy(), average="macro", zero_division=0)
    assert metric.compute([*batches, padding]) == pytest.approx(float(expected))


def test_a_set_without_targets_has_no_score():
    metric = load_metrics(["mean_iou"], "classification")["mean_iou"]
    assert isinstance(metric, WholeMetric)
    assert np.isnan(metric.compute([(torch.zeros(2, 3), torch.tensor([IGNORED, IGNORED]))]))


@given(CLASSES, st.integers(1, 7))
@pytest.mark.filterwarnings("ignore:y_pred contains classes")
def test_balanced_accuracy_is_that_of_scikit_learn_however_the_set_is_cut(pairs, size):
    metric = load_metrics(["balanced_accuracy"], "classification")["balanced_accuracy"]
    assert isinstance(metric, WholeMetric)
    predicted, wanted = torch.tensor(pairs).T
    batches = list(zip(predicted.split(size), wanted.split(size), strict=True))
    expected = balanced_accuracy_score(wanted.numpy(), predicted.numpy())
    assert metric.compute(batches) == pytest.approx(float(expected))


@pytest.mark.parametrize("num_classes", [2, 4])
def test_the_area_under_the_roc_curve_is_that_of_scikit_learn(num_classes):
    metric = load_metrics(["roc_auc"], "classification")["roc_auc"]
    assert isinstance(metric, WholeMetric)
    random = torch.Generator().manual_seed(0)
    wanted = torch.arange(60) % num_classes
    outputs = torch.randn(60, num_classes, generator=random).round(decimals=1)
    outputs[torch.arange(60), wanted] += 0.5
    area = metric.compute(zip(outputs.split(7), wanted.split(7), strict=True))
    shares = outputs.double().softmax(dim=-1).numpy()
    scores = shares if num_classes > 2 else shares[:, 1]
    assert area == pytest.approx(roc_auc_score(wanted.numpy(), scores, multi_class="ovr"))
    assert np.isnan(metric.compute([(outputs[:1], wanted[:1])]))

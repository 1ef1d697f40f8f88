"""Several targets: numbers or labels, one model, one bundle, and scores of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score, roc_auc_score

import workbench as wb
from tests.builders.recorded_runs import record_run
from workbench.foundation.errors import ArgumentError, DataError
from workbench.models.configurations import configure
from workbench.runs.automl.exported_ensemble import write_ensemble
from workbench.runs.automl.model_selection import Candidate, ChosenModel
from workbench.runs.automl.preparation import prepare
from workbench.runs.automl.scores import check_several, loss_of, scores_of, several_scores
from workbench.runs.automl.several_targets import split_targets
from workbench.runs.automl.stored_model import without_unused
from workbench.runs.automl.task_detection import Problem, read_several
from workbench.training.trained_model import outputs_of

NUMBERS, LABELS = ("power", "noise"), ("hot", "late")


def table(num_rows: int = 300) -> pd.DataFrame:
    random = np.random.default_rng(0)
    size, kind = random.normal(size=num_rows), random.choice(["x", "y"], num_rows)
    other = random.normal(size=num_rows)
    return pd.DataFrame(
        {
            "size": size,
            "other": other,
            "kind": kind,
            "power": 1000.0 * size + 100.0 * random.normal(size=num_rows),
            "noise": other**2 + (kind == "x") + 0.1 * random.normal(size=num_rows),
            "hot": (size + 0.3 * random.normal(size=num_rows) > 0.5).astype(int),
            "late": (other + 0.3 * random.normal(size=num_rows) > 0.0),
        }
    )


def read(names: tuple[str, ...]) -> Problem:
    others = [name for name in (*NUMBERS, *LABELS) if name not in names]
    return read_several(table(), names, task=None, drop=others)


def chosen_of(names: tuple[str, ...], family: str) -> tuple:
    learning, held_out = prepare(read(names), 0, [0, 1, 2, 3, 4])
    models = {}
    for place, fold in enumerate(learning.folds):
        options = {} if family == "linear" else {"num_trees": 40}
        *_, models[place] = configure(family, options).grow(
            fold.train_inputs, fold.train_targets, num_classes=None, num_rounds=1, seed=0
        )
        models[place].state_dict()
    candidate = Candidate(0, family, {"family": family}, models, np.zeros(0), 0.0)
    parts = (held_out.interpreter, held_out.guess)
    return ChosenModel((candidate,), (1.0,), np.zeros(0), *parts), learning, held_out


def test_targets_are_listed_with_commas_or_as_a_list():
    assert split_targets("a, b", None) == ("a", "b")
    assert split_targets(["a", "b"], None) == ("a", "b")
    assert split_targets("a,b", ["a,b", "c"]) == ()
    assert split_targets("a,b, c", ["a,b", "c"]) == ("a,b", "c")
    assert split_targets("c,a,b", ["a,b", "a", "b", "c"]) == ("c", "a,b")
    assert split_targets("a", None) == ()
    with pytest.raises(ArgumentError, match="listed twice"):
        split_targets("a,a", None)


def test_numbers_and_labels_are_told_apart():
    assert read(NUMBERS).targets.shape == (300, 2)
    assert not read(NUMBERS).are_labels
    assert read(LABELS).are_labels
    assert set(read(LABELS).samples.columns) == {"size", "other", "kind"}
    with pytest.raises(DataError, match="'hot' is a label that is 0 or 1, but 'power' is a number"):
        read(("power", "hot"))
    with pytest.raises(DataError, match="'kind' holds neither numbers nor labels"):
        read(("power", "kind"))


def test_rows_without_all_targets_are_not_used():
    gaps = table()
    gaps.loc[:9, "power"] = np.nan
    gaps.loc[5:14, "noise"] = np.nan
    problem = read_several(gaps, NUMBERS, task=None, drop=LABELS)
    assert len(problem) == 285
    assert "15 samples without all targets are not used" in problem.notes


@pytest.mark.parametrize("family", ["lightgbm", "xgboost", "catboost", "forest", "linear"])
def test_each_family_learns_several_numbers(family):
    if family not in ("forest", "linear"):
        pytest.importorskip(family)
    chosen, _, held_out = chosen_of(NUMBERS, family)
    predicted = chosen.outputs(held_out.samples)
    assert r2_score(held_out.targets[:, 0], predicted[:, 0]) > 0.7
    if family != "linear":
        assert r2_score(held_out.targets[:, 1], predicted[:, 1]) > 0.3


def test_trees_of_several_numbers_are_those_of_each_alone():
    lightgbm = pytest.importorskip("lightgbm")
    learning, _ = prepare(read(NUMBERS), 0, [0, 1, 2, 3, 4])
    fold = learning.folds[0]
    grow = {"num_classes": None, "num_rounds": 2, "seed": 0}
    configuration = configure("lightgbm", {"num_trees": 20})
    *_, both = configuration.grow(fold.train_inputs, fold.train_targets, **grow)
    before = outputs_of(both, fold.validation_inputs, classes=False)
    both.state_dict()
    after = outputs_of(both, fold.validation_inputs, classes=False)
    np.testing.assert_allclose(before, after, atol=1e-5)
    for place in range(2):
        column = np.ascontiguousarray(fold.train_targets[:, place])
        *_, tree = configuration.grow(fold.train_inputs, column, **grow)
        alone = outputs_of(tree, fold.validation_inputs, classes=False)
        np.testing.assert_allclose(before[:, place], alone[:, 0], atol=1e-5)
    assert lightgbm is not None


@pytest.mark.slow
@pytest.mark.parametrize("names", [NUMBERS, LABELS])
def test_a_bundle_predicts_all_targets(names: tuple[str, ...], tmp_path: Path) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    chosen, learning, held_out = chosen_of(names, "forest")
    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    bundle = wb.load_bundle(tmp_path / "best")
    assert bundle.card.outputs[0].targets == names
    answers = bundle.predict(table()).values
    np.testing.assert_allclose(answers, chosen.outputs(table()), rtol=1e-5, atol=1e-5)
    if names == LABELS:
        assert answers.min() >= 0.0
        assert answers.max() <= 1.0


def test_scores_are_those_of_scikit_learn():
    random = np.random.default_rng(1)
    targets, predicted = random.normal(size=(2, 100, 2))
    several = several_scores(("a", "b"), are_labels=False, metric=None)
    scores = scores_of(predicted, targets, "regression", several=several)
    r2 = [r2_score(targets[:, at], predicted[:, at]) for at in range(2)]
    assert next(iter(scores)) == "r2"
    assert scores["r2"] == pytest.approx(np.mean(r2))
    assert scores["r2 of b"] == pytest.approx(r2[1])
    assert scores["mae of a"] == pytest.approx(mean_absolute_error(targets[:, 0], predicted[:, 0]))
    # Units do not matter for the choice.
    loss = loss_of(predicted, targets, "regression")
    assert loss == pytest.approx(loss_of(predicted * [1, 1000], targets * [1, 1000], "regression"))


def test_scores_of_labels_are_those_of_scikit_learn():
    random = np.random.default_rng(1)
    targets, predicted = random.integers(0, 2, (100, 2)), random.random((100, 2))
    several = several_scores(("a", "b"), are_labels=True, metric=None)
    scores = scores_of(predicted, targets, "regression", several=several)
    decided = predicted >= 0.5
    assert scores["exact_match"] == pytest.approx(accuracy_score(targets, decided))
    assert scores["accuracy"] == pytest.approx((decided == targets).mean())
    assert scores["roc_auc of b"] == pytest.approx(roc_auc_score(targets[:, 1], predicted[:, 1]))


def test_options_for_a_single_target_are_an_error():
    with pytest.raises(ArgumentError, match="several targets have no quantiles"):
        check_several(False, None, (0.5,))
    with pytest.raises(ArgumentError, match="the metric of several labels cannot be chosen"):
        check_several(True, "accuracy", ())
    with pytest.raises(ArgumentError, match="the task is ordinal, but there are several targets"):
        read_several(table(), NUMBERS, task="ordinal")


def test_the_simplest_guess_is_the_mean_of_each():
    _, held_out = prepare(read(NUMBERS), 0, [0, 1, 2, 3, 4])
    assert replace(held_out).guess.shape == (2,)

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.library_trees import leaf_only
from workbench.models.trees import TreeEnsemble, TreeExits

DATA = {
    "two classes": (load_breast_cancer, 2),
    "classes": (load_wine, 3),
    "numbers": (load_diabetes, None),
}


def read(kind: str) -> tuple[np.ndarray, np.ndarray, int | None]:
    load, num_classes = DATA[kind]
    inputs, targets = load(return_X_y=True)
    return inputs.astype(np.float32), targets, num_classes


def grow(family: str, kind: str, values: dict[str, Any], num_rounds: int = 3) -> list[TreeEnsemble]:
    inputs, targets, num_classes = read(kind)
    fitted = configure(family, values).fitted
    assert fitted is not None
    return list(
        fitted.grow(inputs, targets, num_classes=num_classes, num_rounds=num_rounds, seed=4)
    )


@pytest.mark.parametrize("kind", DATA)
def test_boosted_trees_say_what_the_estimator_says(kind):
    inputs, targets, num_classes = read(kind)
    grown = grow("boosted_trees", kind, {"num_trees": 20, "max_leaves": 7, "shrinkage": 0.2})
    said = grown[-1](torch.from_numpy(inputs)).double()
    estimator = (
        HistGradientBoostingRegressor if num_classes is None else HistGradientBoostingClassifier
    )
    reference = estimator(
        max_iter=20, max_leaf_nodes=7, learning_rate=0.2, early_stopping=False, random_state=4
    ).fit(inputs, targets)
    if num_classes is None:
        np.testing.assert_allclose(said[:, 0], reference.predict(inputs), rtol=1e-4)
    else:
        np.testing.assert_allclose(said.softmax(1), reference.predict_proba(inputs), atol=1e-4)


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("family", ["forest", "extra_trees"])
def test_trees_that_vote_say_what_the_estimator_says(family, kind):
    inputs, targets, num_classes = read(kind)
    values = {"num_trees": 15, "min_samples_leaf": 4, "features_per_split": 0.4}
    grown = grow(family, kind, values, 1)
    said = grown[-1](torch.from_numpy(inputs)).double()
    estimators = {
        "forest": (RandomForestRegressor, RandomForestClassifier),
        "extra_trees": (ExtraTreesRegressor, ExtraTreesClassifier),
    }
    estimator = estimators[family][num_classes is not None]
    reference = estimator(15, min_samples_leaf=4, max_features=0.4, random_state=4).fit(
        inputs, targets
    )
    if num_classes is None:
        np.testing.assert_allclose(said[:, 0], reference.predict(inputs), rtol=1e-4)
    else:
        # A class without votes gets a small probability, so the others lose a little.
        np.testing.assert_allclose(said.softmax(1), reference.predict_proba(inputs), atol=3e-3)


@pytest.mark.parametrize("family", ["boosted_trees", "forest", "extra_trees"])
def test_rounds_add_trees_and_weights_are_loaded_into_a_model_without_any(family):
    grown = grow(family, "classes", {"num_trees": 9})
    assert [len(ensemble.roots) for ensemble in grown] == sorted(len(each.roots) for each in grown)
    assert len(grown) == 3
    inputs = torch.from_numpy(read("classes")[0])
    empty = configure(family, {}).build(input_shape=(13,), num_outputs=3, vocabulary_size=None)
    empty.load_state_dict(grown[-1].state_dict())
    assert torch.equal(empty(inputs), grown[-1](inputs))


def test_one_of_several_is_the_one_that_is_named():
    built = configure("one_of", {"family": "mlp", "mlp_hidden_width": 7, "resnet_width": 3}).build(
        input_shape=(5,), num_outputs=2, vocabulary_size=None
    )
    assert built(torch.zeros(1, 5)).shape == (1, 2)
    assert any(parameter.shape == (7, 5) for parameter in built.parameters())
    assert configure("one_of", {"family": "mlp"}).fitted is None
    assert configure("one_of", {"family": "forest", "forest_num_trees": 3}).fitted == configure(
        "forest", {"num_trees": 3}
    )


def test_parameters_of_a_family_are_checked_by_it():
    with pytest.raises(ExperimentError, match=r"resnet_depth: 9 is not 6 n \+ 2"):
        configure("one_of", {"resnet_depth": 9})
    with pytest.raises(ExperimentError, match=r"search\.mlp_dropout"):
        configure("one_of", {"mlp_dropout": 1.5})


MODELS = [
    ("boosted_trees", {"num_trees": 6, "max_leaves": 5}),
    ("forest", {"num_trees": 9}),
    ("extra_trees", {"num_trees": 9}),
]


def grown(
    model: str, values: dict[str, int], *, num_classes: int = 10
) -> tuple[TreeEnsemble, torch.Tensor]:
    data = load_digits() if num_classes == 10 else load_breast_cancer()
    inputs, targets = data.data[:400].astype(np.float32), data.target[:400]
    configuration = configure(model, values)
    assert isinstance(configuration, FittedConfiguration)
    *_, last = configuration.grow(inputs, targets, num_classes=num_classes, num_rounds=1, seed=0)
    assert isinstance(last, TreeEnsemble)
    return last, torch.from_numpy(inputs)


@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize(("model", "values"), MODELS)
def test_the_last_exit_answers_as_all_trees(
    model: str, values: dict[str, int], num_classes: int
) -> None:
    trees, inputs = grown(model, values, num_classes=num_classes)
    tree_exits = TreeExits(trees, 2)
    passed = inputs
    for number in range(tree_exits.num_stages):
        passed = tree_exits.stage(number, passed)
    outputs = tree_exits.exit_outputs(inputs)
    torch.testing.assert_close(passed, outputs[-1])
    torch.testing.assert_close(passed, trees(inputs).float(), rtol=1e-5, atol=1e-5)


def test_an_exit_of_boosted_trees_answers_as_the_model_of_fewer_rounds() -> None:
    trees, inputs = grown("boosted_trees", {"num_trees": 6, "max_leaves": 5})
    fewer, _ = grown("boosted_trees", {"num_trees": 3, "max_leaves": 5})
    torch.testing.assert_close(
        TreeExits(trees, 1).exit_outputs(inputs)[0], fewer(inputs).float(), rtol=1e-5, atol=1e-5
    )


def test_an_exit_of_a_forest_answers_with_shares_of_its_votes() -> None:
    trees, inputs = grown("forest", {"num_trees": 9})
    early = TreeExits(trees, 1).exit_outputs(inputs)[0].exp()
    # Classes without a vote have a small probability of their own.
    torch.testing.assert_close(early.sum(dim=1), torch.ones(len(inputs)), rtol=0, atol=0.01)


def test_exits_need_a_place_between_trees() -> None:
    with pytest.raises(ExperimentError, match="at most 3") as caught:
        configure("forest", {"num_trees": 4, "exits": 4}).build(
            input_shape=(5,), num_outputs=2, vocabulary_size=None
        )
    assert caught.value.field == "exits"


@pytest.mark.parametrize("num_rows", [1, 9, 3000])
@pytest.mark.parametrize("num_outputs", [1, 3])
def test_the_fast_walk_comes_to_the_leaves_of_the_steps(num_rows: int, num_outputs: int) -> None:
    random = np.random.default_rng(num_rows)
    inputs = random.normal(size=(400, 12)).astype(np.float32)
    inputs[random.random(inputs.shape) < 0.2] = np.nan
    targets = np.nan_to_num(inputs[:, :num_outputs]) + random.normal(size=(400, num_outputs))
    estimator = ExtraTreesRegressor(30, random_state=0).fit(inputs, np.squeeze(targets))
    trees = TreeEnsemble.of(
        [
            {
                "feature": grown.tree_.feature,
                "threshold": grown.tree_.threshold,
                "missing_left": grown.tree_.missing_go_to_left,
                "left": grown.tree_.children_left,
                "right": grown.tree_.children_right,
                "value": grown.tree_.value[:, :, 0].astype(np.float32),
            }
            for grown in estimator.estimators_
        ],
        np.arange(num_outputs),
        votes=False,
    )
    rows = torch.from_numpy(inputs[random.integers(0, 400, num_rows)])
    first = trees(rows)
    second = trees(rows)
    walk = trees._walk
    assert walk is not None
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(trees._stepped(rows), second, rtol=1e-5, atol=1e-5)
    assert pickle.loads(pickle.dumps(trees))._walk is None

    trees.load_state_dict(grow("forest", "numbers", {"num_trees": 3})[-1].state_dict())
    others = torch.from_numpy(read("numbers")[0])
    np.testing.assert_allclose(trees(others), trees._stepped(others), rtol=1e-5, atol=1e-5)
    assert trees._walk is not walk


def test_a_single_leaf_is_walked_to() -> None:
    trees = TreeEnsemble.of([leaf_only(np.array([2.5], np.float32))], np.ones(1), votes=False)
    for num_rows in (1, 2, 40):
        said = trees(torch.zeros(num_rows, 3))
        assert said.tolist() == [[3.5]] * num_rows

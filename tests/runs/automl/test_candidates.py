"""Which families are tried on which data, and with what they start."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.foundation.errors import ArgumentError, MissingDependencyError
from workbench.runs.automl import candidates
from workbench.runs.automl.candidates import (
    _TREE_TIMES,
    LIBRARIES,
    _pass_s,
    check_families,
    check_foundation,
    experiment_for,
    families_for,
    first_configurations,
    missing_note,
)
from workbench.runs.automl.preparation import LearningData, prepare
from workbench.runs.automl.task_detection import read_problem

SEEDS = [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def learning() -> LearningData:
    random = np.random.default_rng(0)
    table = pd.DataFrame({"x": random.normal(size=90), "y": random.normal(size=90)})
    return prepare(read_problem(table, "y"), 0, SEEDS)[0]


def install(monkeypatch: pytest.MonkeyPatch, *installed: str) -> None:
    monkeypatch.setattr(
        candidates.importlib.util, "find_spec", lambda name: name if name in installed else None
    )


def experiment(learning: LearningData, **changes: Any) -> Any:
    fields: dict[str, Any] = {"held_out": "0" * 64, "time_s": 60.0, "seed": 0, "name": "run"}
    fields["task"] = "regression"
    return experiment_for("table", learning, **fields | changes)


def test_families_whose_package_is_missing_are_left_out_with_a_note(
    learning: LearningData, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "xgboost")
    assert families_for("table", learning) == (
        "linear",
        "tabular_mlp",
        "xgboost",
        "extra_trees",
        "boosted_trees",
        "neighbours",
        "forest",
    )
    note = missing_note("table")
    assert note is not None
    assert note.startswith("LightGBM and CatBoost are not installed, so only other models")
    assert "tables" in note
    assert missing_note("images") is None

    install(monkeypatch, *LIBRARIES)
    assert "boosted_trees" not in families_for("table", learning)
    assert missing_note("table") is None


def test_first_configurations_take_turns_and_are_in_the_search_space(
    learning: LearningData, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, *LIBRARIES)
    made = experiment(learning)
    first = first_configurations(made)
    families = families_for("table", learning)
    assert [params["family"] for params in first[: len(families)]] == list(families)
    for params in first:
        for name, value in params.items():
            assert made.search.root[name].contains(value), (name, value)


def test_deep_trees_of_catboost_come_first_if_there_are_many_samples(
    learning: LearningData, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, *LIBRARIES)
    made = experiment(learning)
    few, many = (
        [
            params["catboost_depth"]
            for params in first_configurations(made, num_train)
            if params["family"] == "catboost"
        ]
        for num_train in (1_000, 10_000)
    )
    assert few == sorted(few)
    assert many == few[::-1]
    assert few[0] < few[-1]


def test_the_first_leaves_of_lightgbm_are_smaller_if_there_are_few_samples(
    learning: LearningData, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, *LIBRARIES)
    made = experiment(learning)
    few, many, unknown = (
        next(
            params["lightgbm_min_samples_leaf"]
            for params in first_configurations(made, num_train)
            if params["family"] == "lightgbm"
        )
        for num_train in (1_000, 10_000, 0)
    )
    assert few < many == unknown


def test_families_are_chosen_or_left_out_by_name(
    learning: LearningData, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "lightgbm", "catboost")
    assert check_families("table", "forest, lightgbm") == ("lightgbm", "forest")
    assert check_families("table", ["-tabular_mlp", "-catboost", "-neighbours"]) == (
        "lightgbm",
        "linear",
        "extra_trees",
        "forest",
    )
    assert check_families("table", "-lightgbm,-linear,-neighbours") == (
        "catboost",
        "tabular_mlp",
        "extra_trees",
        "boosted_trees",
        "forest",
    )
    assert check_families("images", ()) == ()
    chosen = check_families("table", "boosted_trees")
    assert experiment(learning, families=chosen).search.root["family"].values() == ["boosted_trees"]


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("forrest", "table", r"'forrest' is not a family for tables.*Did you mean forest"),
        ("-convnet,-resnet", "images", "no family is left to try"),
        ("xgboost", "table", "XGBoost is not installed"),
    ],
)
def test_families_that_cannot_be_tried_are_an_error(
    given: str, kind: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "lightgbm")
    with pytest.raises((ArgumentError, MissingDependencyError), match=message):
        check_families(kind, given)


def test_boosted_trees_fit_into_the_time_of_a_run(learning: LearningData) -> None:
    rows = np.random.default_rng(0).permutation(20_000)[:, None].astype(np.float32)
    fold = dataclasses.replace(
        learning.folds[0], train_inputs=np.tile(rows, 50), train_targets=rows[:, 0]
    )
    large = dataclasses.replace(learning, folds=(fold,))
    many = experiment(large, time_s=3600.0).search.root
    few = experiment(large, time_s=10.0, families=("catboost",)).search.root
    assert max(few["catboost_num_trees"].values()) < max(many["lightgbm_num_trees"].values())
    # Fewer trees must be added with larger parts.
    (num_trees,) = few["catboost_num_trees"].values()
    assert few["catboost_shrinkage"].low * num_trees >= 8.0


def test_few_rounds_of_lightgbm_are_smaller_for_many_classes(learning: LearningData) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")
    random = np.random.default_rng(0)
    inputs = random.normal(size=(20_000, 50)).astype(np.float32)
    fold = dataclasses.replace(
        learning.folds[0], train_inputs=inputs, train_targets=np.arange(20_000) % 9
    )
    names = tuple("abcdefghi")
    large = dataclasses.replace(learning, folds=(fold,), class_names=names)
    families = ("lightgbm", "xgboost")
    first = first_configurations(
        experiment(large, task="classification", time_s=10.0, families=families)
    )

    def sum_of(family: str) -> float:
        params = next(params for params in first if params["family"] == family)
        return params[f"{family}_shrinkage"] * params[f"{family}_num_trees"]

    assert sum_of("lightgbm") < 8.0 <= sum_of("xgboost")


def test_features_with_few_values_cost_a_boosted_tree_less() -> None:
    random = np.random.default_rng(0)
    of_numbers = random.normal(size=(5_000, 40)).astype(np.float32)
    of_flags = (of_numbers > 0.0).astype(np.float32)
    for time in _TREE_TIMES.values():
        assert time.of(of_flags) < 0.8 * time.of(of_numbers)


def test_a_forest_has_fewer_trees_if_there_is_no_time_for_all(learning: LearningData) -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 100)).astype(np.float32)
    fold = dataclasses.replace(learning.folds[0], train_inputs=rows, train_targets=rows[:, 0])
    large = dataclasses.replace(learning, folds=(fold,))
    num_trees = [
        max(experiment(large, time_s=time_s).search.root["forest_num_trees"].values())
        for time_s in (20.0, 3600.0)
    ]
    assert num_trees[0] < num_trees[1] == 200


def test_a_network_makes_as_many_passes_as_there_is_time_for(learning: LearningData) -> None:
    for time_s in (1.0, 30.0, 3600.0):
        made = experiment(learning, time_s=time_s, families=("tabular_mlp",))
        (passes,) = made.search.root["tabular_mlp_num_passes"].values()
        assert 10.0 <= passes <= 100.0
        assert all(
            params["tabular_mlp_num_passes"] == passes for params in first_configurations(made)
        )
    assert passes == 100.0


def test_a_network_needs_more_time_for_a_sample_of_a_small_table() -> None:
    small, large = (np.random.default_rng(0).normal(size=(num, 1)) for num in (300, 9600))
    assert _pass_s(small, 1) / 300 > 2.0 * _pass_s(large, 1) / 9600


def test_a_foundation_model_is_tried_only_with_a_folder(
    learning: LearningData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, "tabicl")
    assert "foundation" not in families_for("table", learning)
    assert check_foundation("table", "regression", (), None) is None
    with pytest.raises(ArgumentError, match=r"needs weights.*--foundation-weights FOLDER"):
        check_foundation("table", "regression", check_families("table", "foundation"), None)

    (tmp_path / "tabicl-regressor-v2.ckpt").touch()
    weights = check_foundation("table", "regression", (), tmp_path)
    made = experiment(learning, foundation=weights)
    (first,) = (params for params in first_configurations(made) if params["family"] == "foundation")
    assert first["foundation_weights_path"] == str(tmp_path / "tabicl-regressor-v2.ckpt")
    assert made.search.root["foundation_weights_path"].contains(first["foundation_weights_path"])
    with pytest.raises(ArgumentError, match="do not include it"):
        check_foundation("table", "regression", ("linear",), tmp_path)
    with pytest.raises(ArgumentError, match="for tables, not for images"):
        check_foundation("images", "classification", (), tmp_path)

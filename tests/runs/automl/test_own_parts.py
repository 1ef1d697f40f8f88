"""Rows that the user keeps apart to test or to validate on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.foundation.errors import DataError
from workbench.runs.automl.preparation import divide, prepare
from workbench.runs.automl.task_detection import read_problem

SEEDS = (11, 12, 13, 14, 15)


def table(num_rows: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": random.normal(size=num_rows),
            "city": random.choice(["Rome", "Oslo"], num_rows),
            "label": random.choice(["no", "yes"], num_rows),
        }
    )


def test_only_the_rows_of_the_test_file_are_tested(tmp_path: Path):
    table(30, 2).to_csv(tmp_path / "test.csv", index=False)
    problem = read_problem(table(100, 1), "label", test=tmp_path / "test.csv")
    learning, test = divide(problem, seed=0)
    assert learning.tolist() == list(range(100))
    assert test.tolist() == list(range(100, 130))
    data, held_out = prepare(problem, 0, SEEDS)
    assert len(data.folds) == 5
    assert held_out.samples["size"].to_numpy() == pytest.approx(table(30, 2)["size"].to_numpy())
    assert held_out.own_parts == ("test",)


def test_the_rows_to_validate_on_choose_and_teach_nothing():
    problem = read_problem(table(100, 1), "label", validation=table(40, 3))
    data, held_out = prepare(problem, 0, SEEDS)
    (fold,) = data.folds
    assert len(fold.train_targets) == 80
    assert len(fold.validation_targets) == 40
    assert held_out.num_samples == (120, 20)
    wanted = table(40, 3)["label"].eq("yes").to_numpy().astype(int)
    assert fold.validation_targets.tolist() == wanted.tolist()
    assert held_out.own_parts == ("validation",)


def test_pairs_and_both_parts():
    random = np.random.default_rng(0)
    pairs = [(random.normal(size=(num, 3)), random.normal(size=num)) for num in (60, 10, 15)]
    problem = read_problem(pairs[0], validation=pairs[1], test=pairs[2])
    data, held_out = prepare(problem, 0, SEEDS)
    assert len(data.folds[0].train_targets) == 60
    assert len(data.folds[0].validation_targets) == 10
    np.testing.assert_array_equal(held_out.targets, pairs[2][1])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (table(30, 2).drop(columns="size"), "test: there is no column 'size'; needed: size, city"),
        (table(30, 2).drop(columns="label"), "test: there is no column 'label'"),
        (table(30, 2).assign(label="maybe"), "test: no sample to learn from is of the class 'mayb"),
        (table(30, 2).assign(label=None), "test: no sample has a target"),
        (Path("nowhere.csv"), "test: the path nowhere.csv does not exist"),
    ],
)
def test_rows_that_do_not_fit_are_errors_about_their_part(part, message):
    with pytest.raises(DataError) as raised:
        read_problem(table(100, 1), "label", test=part)
    assert str(raised.value).startswith(message)


def test_a_column_that_is_dropped_may_be_missing():
    test = table(30, 2).drop(columns="size")
    problem = read_problem(table(100, 1), "label", test=test, drop=["size"])
    assert list(problem.samples.columns) == ["city"]


def test_rows_to_test_on_are_never_learnt_from():
    rows = table(100, 1)
    problem = read_problem(rows, "label", test=rows[:7])
    assert len(problem) == 100
    assert (
        "7 rows not used: they have the same inputs as rows to test on, so the score would be too"
        " good" in problem.notes
    )
    grouped = rows.assign(patient=np.arange(100) // 2)
    problem = read_problem(
        grouped, "label", test=grouped[:4].assign(size=0.5), group_column="patient"
    )
    assert len(problem) == 100
    assert (
        "4 rows not used: they have the same `patient` as rows to test on, so the score would be"
        " too good" in problem.notes
    )


def test_rows_of_known_groups_are_noted():
    rows = table(100, 1).assign(shop=np.arange(100) % 10)
    problem = read_problem(rows, "label", test=rows.assign(size=0.5), group_column="shop")
    assert len(problem) == 200
    assert (
        "100 rows to test on have the same `shop` as rows to learn from. The score may be too good"
        " for new rows" in problem.notes
    )

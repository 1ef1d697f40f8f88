"""Ordered classes: where their order comes from, and that a bundle predicts them the same."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.recorded_runs import record_run
from tests.runs.automl.test_exported_ensemble import chosen_from
from workbench.foundation.errors import ArgumentError, DataError
from workbench.runs.automl.class_decisions import learn_decisions
from workbench.runs.automl.exported_ensemble import write_ensemble
from workbench.runs.automl.stored_model import without_unused
from workbench.runs.automl.task_detection import read_problem

NAMES = ["low", "medium", "high"]


def table(num_rows: int = 240) -> pd.DataFrame:
    random = np.random.default_rng(0)
    size = random.normal(size=num_rows)
    grade = pd.cut(size + random.normal(size=num_rows), [-9, -0.5, 0.8, 9], labels=NAMES)
    return pd.DataFrame({"size": size, "noise": random.normal(size=num_rows), "grade": grade})


def test_an_ordered_categorical_brings_its_order():
    problem = read_problem(table(), "grade")
    assert (problem.class_names, problem.is_ordered) == (("low", "medium", "high"), True)
    np.testing.assert_array_equal(problem.targets, table().grade.cat.codes)
    assert not read_problem(table(), "grade", task="classification").is_ordered


def test_texts_get_the_order_that_the_user_gives():
    texts = table().assign(grade=table().grade.astype(str))
    problem = read_problem(texts, "grade", class_order=["low", "medium", "high", "top"])
    assert (problem.class_names, problem.is_ordered) == (("low", "medium", "high"), True)
    assert not read_problem(texts, "grade").is_ordered


def test_numbers_are_in_their_own_order():
    numbers = table().assign(grade=9 + table().grade.cat.codes.astype(int))
    problem = read_problem(numbers, "grade", task="ordinal")
    assert (problem.class_names, problem.is_ordered) == (("9", "10", "11"), True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"task": "ordinal"}, ArgumentError, "class_order: the order of the classes is unknown"),
        ({"class_order": ["low", "high"]}, DataError, "the class 'medium' has no place"),
        ({"class_order": ["low", "low"]}, ArgumentError, "a class is listed twice"),
        (
            {"class_order": NAMES, "task": "regression"},
            ArgumentError,
            "the task is regression, but an order of classes is given",
        ),
    ],
)
def test_an_order_that_is_missing_or_wrong_is_an_error(options, error, message):
    texts = table().assign(grade=table().grade.astype(str))
    with pytest.raises(error) as raised:
        read_problem(texts, "grade", **options)
    assert message in str(raised.value)


@pytest.mark.slow
def test_a_bundle_predicts_the_same_ordered_classes(tmp_path: Path) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    chosen, learning, held_out = chosen_from(table(), "grade", "forest", num_folds=2)
    known = chosen.outputs(held_out.samples)
    decisions = learn_decisions(known, held_out.targets, score=None, distance_power=1)
    chosen = replace(chosen, decisions=replace(decisions, temperature=3.0, curves=()))
    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    rows = table().drop(columns="grade")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    outputs = chosen.outputs(rows)
    wanted = np.array(NAMES)[chosen.decisions.weighed(outputs).argmax(axis=1)]
    assert (wanted != np.array(NAMES)[outputs.argmax(axis=1)]).any()
    answers = wb.load_bundle(tmp_path / "best").predict(rows)
    np.testing.assert_array_equal(answers.classes, wanted)
    script = [sys.executable, str(tmp_path / "best" / "predict.py"), str(tmp_path / "rows.csv")]
    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert [line.split(",")[0] for line in printed.splitlines()[1:]] == wanted.tolist()

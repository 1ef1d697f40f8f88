"""The model that predicts is stored with the result, and is that of the last end of the run."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import workbench as wb
from tests.builders.ended_automl import conclude, create_automl, end, trained
from tests.builders.recorded_runs import append, begin
from workbench.cli.exported_models import predict
from workbench.deploy.serving.client_rows import intervals_as_json
from workbench.deploy.serving.served_models import Limits, Version
from workbench.foundation.errors import ArgumentError, RunError
from workbench.runs.automl import result

RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {"x": RANDOM.normal(size=120), "town": RANDOM.choice([f"t{n}" for n in range(9)], 120)}
)
TABLE["when"] = pd.date_range("2024-01-01", periods=120, freq="31h").strftime("%d/%m/%Y %H:%M")
TABLE["y"] = TABLE["x"] * 3 + TABLE["town"].str[1].astype(int) + RANDOM.normal(size=120)
LINEAR = {"family": "linear", "linear_l2": 1.0}
TREES = {
    "family": "boosted_trees",
    "boosted_trees_num_trees": 20,
    "boosted_trees_shrinkage": 0.2,
    "boosted_trees_max_leaves": 4,
    "boosted_trees_min_samples_leaf": 3,
    "boosted_trees_l2": 1.0,
}


def created(store: wb.Store, table: pd.DataFrame = TABLE) -> wb.AutoML:
    return create_automl(table, "y", time="20s", families="boosted_trees,linear", store=store)


@pytest.mark.parametrize("target", ["number", pytest.param("class", marks=pytest.mark.slow)])
def test_an_ended_run_predicts_and_is_exported_without_choosing_again(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TABLE
    if target == "class":
        table = TABLE.assign(y=np.where(TABLE["y"] > 4, "high", "low"))
    rows = table.drop(columns="y").head(7)
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        ended = end(created(store, table), TREES, LINEAR)
        made = ended._make_model()
        expected = made.chosen.outputs(rows)
        known: dict[str, Any] = {
            "score": ended.score(),
            "intervals": ended.intervals(),
            "baseline": ended.baseline,
        }

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("the model was chosen again")

        monkeypatch.setattr(result, "choose", refuse)
        monkeypatch.setattr(result, "unpack", refuse)
        again = wb.AutoML.attach(ended.run.run_id, store=store)
        if target == "class":
            np.testing.assert_allclose(again.predict_proba(rows), expected, rtol=1e-5, atol=1e-6)
            assert set(again.predict(rows)) <= set(again.classes) == {"high", "low"}
        else:
            np.testing.assert_allclose(again.predict(rows), expected[:, 0], rtol=1e-5, atol=1e-6)
            low, high = made.bands.around(expected[:, 0], 0.8, rows)  # type: ignore[union-attr]
            table = again.predict(rows, interval=0.8)
            np.testing.assert_allclose(table["low"], low, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(table["high"], high, rtol=1e-5, atol=1e-6)
        assert {
            "score": again.score(),
            "intervals": again.intervals(),
            "baseline": again.baseline,
        } == known
        assert again.leaderboard()["model"].tolist() == [
            row["model"] for row in again.to_json()["leaderboard"]["rows"]
        ]
        monkeypatch.undo()
        monkeypatch.setattr(result, "choose", refuse)
        again.export(tmp_path / "best")
        answers = wb.load_bundle(tmp_path / "best").predict(rows)
        assert answers.numbers is not None
        np.testing.assert_allclose(answers.numbers.reshape(expected.shape), expected, rtol=1e-5)
        if target == "number":
            _check_intervals(tmp_path / "best", rows, again.predict(rows, interval=0.8))


def test_trees_and_linear_models_predict_without_torch(tmp_path: Path) -> None:
    """In one process, which loads pandas once."""
    voting = {"extra_trees_num_trees": 9, "extra_trees_min_samples_leaf": 2}
    voting |= {"family": "extra_trees", "extra_trees_features_per_split": 0.5}
    number = TABLE.copy()
    number.loc[3, "x"] = np.nan
    classes = number.assign(y=np.where(number["y"] > 4, "high", "low"))
    rows = number.drop(columns="y").head(9)
    rows.to_pickle(tmp_path / "rows.pickle")
    path = str(tmp_path / "store.sqlite")
    asked: list[tuple[str, str]] = []
    expected = []
    with wb.Store.open(path) as store:
        for params, table, ask in (
            (LINEAR, classes, "predict_proba"),
            (TREES, number, "predict"),
            (voting, classes, "predict_proba"),
        ):
            families = str(params["family"])
            ended = end(
                create_automl(table, "y", time="20s", families=families, store=store), params
            )
            expected.append(ended._make_model().chosen.outputs(rows))
            asked.append((ended.run.run_id, ask))
    program = f"""
import sys
import pandas as pd
import workbench as wb
for run_id, ask in {asked!r}:
    ended = wb.AutoML.attach(run_id, store={path!r})
    print(getattr(ended, ask)(pd.read_pickle({str(tmp_path / "rows.pickle")!r})).tolist())
    print(sorted({{"torch", "sklearn", "ray"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for answers, outputs in zip(lines[::2], expected, strict=True):
        np.testing.assert_allclose(
            np.reshape(ast.literal_eval(answers), outputs.shape), outputs, rtol=1e-5, atol=1e-6
        )
    assert lines[1::2] == ["[]"] * len(asked)


def _check_intervals(folder: Path, rows: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Check that a bundle has the same intervals, however it is asked."""
    bundle = wb.load_bundle(folder)
    answers = bundle.predict(rows, interval=0.8)
    for predicted, name in (
        (answers.values, "prediction"),
        (answers.low, "low"),
        (answers.high, "high"),
    ):
        np.testing.assert_allclose(predicted, expected[name], rtol=1e-5, atol=1e-5)
    rows.to_csv(folder / "rows.csv", index=False)
    asked = [str(folder / "rows.csv"), "--interval", "0.8"]
    shown = CliRunner().invoke(predict, [str(folder), *asked], standalone_mode=False).stdout
    assert shown.startswith("prediction,low,high\n")
    script = [sys.executable, str(folder / "predict.py"), *asked]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert done.stdout == shown
    np.testing.assert_allclose(
        pd.read_csv(io.StringIO(shown))[["low", "high"]], expected[["low", "high"]], rtol=1e-5
    )
    assert intervals_as_json(answers)[0].keys() == {"low", "high"}
    version = Version.open(folder, Limits(threads=1))
    served = version.intervals(version.reader.read(rows.to_dict("records")), 0.8)
    np.testing.assert_allclose([answer["low"] for answer in served], expected["low"], rtol=1e-5)
    np.testing.assert_allclose([answer["high"] for answer in served], expected["high"], rtol=1e-5)
    with pytest.raises(ArgumentError, match="90 is no share of rows"):
        bundle.predict(rows, interval=90)
    wrong = [*script[:-1], "90"]
    assert (
        "such as 0.9" in subprocess.run(wrong, capture_output=True, text=True, check=False).stderr
    )


@pytest.mark.slow
def test_the_model_of_a_run_that_goes_on_is_chosen_and_stored_again(tmp_path: Path) -> None:
    rows = TABLE.drop(columns="y").head(7)
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = end(created(store), TREES | {"boosted_trees_num_trees": 1})
        first = run.predict(rows)
        before = run.to_json()["stored_model"]
        number = len(run._learning.folds)

        append(store, run.run.run_id, [*begin(), *trained(run, LINEAR, first=number)])
        with pytest.raises(RunError, match="there is no result yet"):
            run.predict(rows)

        conclude(run)
        assert run.to_json()["stored_model"] != before
        second = run.predict(rows)
        assert np.abs(second - first).max() > 1e-3
        again = wb.AutoML.attach(run.run.run_id, store=store)
        np.testing.assert_array_equal(again.predict(rows), second)
        made = again._make_model().chosen.outputs(rows)[:, 0]
        np.testing.assert_allclose(made, second, rtol=1e-5, atol=1e-6)


def test_a_model_that_is_not_the_stored_one_is_not_loaded(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = end(created(store), LINEAR)
        objects = store.artifacts_of(run.run.run_id).below("objects")
        sha256 = run.to_json()["stored_model"]
        objects.write(sha256, objects.read(sha256)[:-1] + b"!")
        again = wb.AutoML.attach(run.run.run_id, store=store)
        with pytest.raises(RunError, match="is not the one that was stored"):
            again.predict(TABLE.head(1))


@pytest.mark.slow
def test_the_linear_model_of_a_run_without_time_predicts_after_it_is_read_again(
    tmp_path: Path,
) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = end(created(store))
        assert [candidate.trial for candidate, _ in run._chosen.used] == [None]
        rows = TABLE.drop(columns="y")
        again = wb.AutoML.attach(run.run.run_id, store=store)
        refitted = run._with_all_rows()
        np.testing.assert_allclose(
            again.predict(rows), refitted.outputs(rows)[:, 0], rtol=1e-5, atol=1e-6
        )
        again.export(tmp_path / "best")
        answers = wb.load_bundle(tmp_path / "best").predict(rows)
        assert answers.values == pytest.approx(again.predict(rows), rel=1e-5, abs=1e-6)


@pytest.mark.slow
def test_a_second_layer_answers_the_same_everywhere(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(2_600, 2)), columns=["x", "z"])
    # A linear model knows the first class, and trees tell the others apart.
    is_far = np.abs(table["z"]) > 0.7
    table["y"] = np.where(table["x"] > 0.6, "first", np.where(is_far, "second", "third"))
    rows = table.drop(columns="y").head(50)
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        ended = end(created(store, table), TREES, LINEAR)
        document: Any = ended.to_json()
        assert document["model"] == "stack of 2"
        board = ended.leaderboard()
        assert [used["weight"] for used in document["used"]] == [None, None]
        assert "in a second layer" in ended.model_card()
        assert board["val_log_loss"][0] < 0.98 * min(board["val_log_loss"][1:3])
        made = ended._make_model()
        expected = made.chosen.outputs(rows)
        assert made.chosen.second is not None
        again = wb.AutoML.attach(ended.run.run_id, store=store)
        # The last bit of a sum depends on how many rows are computed at once.
        np.testing.assert_allclose(again.predict_proba(rows), expected, rtol=1e-12)
        again.export(tmp_path / "stack")
        answers: Any = wb.load_bundle(tmp_path / "stack").predict(rows)
        np.testing.assert_allclose(answers.probabilities, expected, rtol=1e-5, atol=1e-6)


def test_rows_that_belong_together_get_no_second_layer(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        independent = created(store, TABLE.drop(columns="when"))
        grouped = create_automl(
            TABLE, "y", time="20s", families="linear", group_column="town", store=store
        )
        assert independent._are_independent
        assert not grouped._are_independent

"""What a model does on test samples: pure functions of its predictions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.experiment import Experiment
from workbench.foundation.events import RunStateChanged
from workbench.foundation.events.runs import ModelChosen
from workbench.runs.automl import held_out_analysis
from workbench.runs.automl.held_out_analysis import (
    MAX_CLASSES,
    TestAnalysis,
    analyse,
    describe_analysis,
)
from workbench.runs.plots.figures import FIGURES
from workbench.runs.plots.prepare import model_figures
from workbench.runs.plots.run_data import RunData

RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "used": RANDOM.normal(size=200),
        "idle": RANDOM.normal(size=200),
        "kind": RANDOM.choice(["a", "b"], 200),
    }
)
EXPERIMENT = Experiment.model_validate(
    {
        "train": "package:function",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0, "high": 1.0}},
    }
)


def number_of(table: pd.DataFrame) -> np.ndarray:
    return (10.0 * table["used"] + 3.0 * (table["kind"] == "b")).to_numpy()[:, None]


def classes_of(table: pd.DataFrame) -> np.ndarray:
    is_second = (table["used"] > 0).to_numpy(float)
    return np.stack([1 - is_second, is_second], axis=1)


def drawn(found: dict[str, Any], name: str) -> Any:
    run = RunData(EXPERIMENT)
    run.add(ModelChosen(result={"analysis": found}))
    assert name in model_figures(run.history)
    return FIGURES[name](run)


def test_errors_of_numbers_are_in_the_unit_of_the_target() -> None:
    off = np.where(np.arange(200) < 150, 2.0, -20.0)
    analysis = analyse(
        number_of, TABLE, number_of(TABLE)[:, 0] - off, "regression", target_name="price"
    )
    errors = TestAnalysis(analysis).errors()
    assert (len(errors), errors["error"].round(6).value_counts().to_dict()) == (
        200,
        {2.0: 150, -20.0: 50},
    )
    assert (
        describe_analysis(analysis)[0] == "errors of price: half are below 2, nine in ten below 20"
    )
    figure = drawn(analysis, "prediction_errors")
    assert figure.layout.xaxis.title.text == "True price"
    assert list(figure.data[1].customdata) == pytest.approx(errors["error"].tolist())


def test_errors_of_a_target_that_is_written_with_a_unit_have_that_unit() -> None:
    wanted = number_of(TABLE)[:, 0] - 2.0
    analysis = analyse(
        number_of, TABLE, wanted, "regression", target_name="rent", target_unit="CHF"
    )
    assert (
        describe_analysis(analysis)[0]
        == "errors of rent: half are below 2 CHF, nine in ten below 2 CHF"
    )
    figure = drawn(analysis, "prediction_errors")
    assert figure.layout.xaxis.title.text == "True rent (CHF)"
    assert "below 2 CHF, nine in ten below 2 CHF" in figure.to_json()
    assert drawn(analysis, "column_importance").layout.xaxis.title.text.endswith("without it (CHF)")


def test_a_column_matters_as_much_as_the_model_is_worse_without_it() -> None:
    analysis = analyse(number_of, TABLE, number_of(TABLE)[:, 0], "regression")
    table = TestAnalysis(analysis).importance().set_index("column")
    assert list(table.index) == ["used", "kind", "idle"]
    assert table.loc["idle"].tolist() == [0.0, 0.0, 0.0]
    # Shuffling a fair coin changes it in half of the samples, by 3.
    assert table.loc["kind", "low"] < 1.5 < table.loc["kind", "high"]
    assert describe_analysis(analysis)[1] == "relies most on: used, kind"
    figure = drawn(analysis, "column_importance")
    assert list(figure.data[0].y) == ["idle", "kind", "used"]


def test_texts_of_numbers_are_not_read_again_for_each_shuffled_column() -> None:
    columns = ("used", "idle")
    written = TABLE.assign(**{name: TABLE[name].map("{:.17g} kg".format) for name in columns})
    num_texts = []

    def predict(table: pd.DataFrame) -> np.ndarray:
        texts = [name for name in columns if table[name].dtype.kind != "f"]
        num_texts.append(len(texts))
        read = {name: table[name].str.removesuffix(" kg").astype(float) for name in texts}
        return number_of(table.assign(**read))

    targets = number_of(TABLE)[:, 0]
    found = analyse(predict, written, targets, "regression", meant=TABLE)
    assert num_texts[0] == len(columns)  # the samples as they were given
    assert set(num_texts[1:]) == {0, 1}  # only a column of which a curve is drawn
    plain = analyse(number_of, TABLE, targets, "regression")
    assert found["importance"] == plain["importance"]
    curves = {curve["column"]: curve for curve in found["partial_dependence"]}
    used = curves["used"]
    np.testing.assert_allclose(
        np.diff(used["means"]["prediction"]), 10.0 * np.diff(used["values"]), rtol=1e-9
    )


def test_classes_are_counted_as_they_are_confused() -> None:
    targets = np.concatenate([np.zeros(150, int), np.ones(50, int)])
    analysis = analyse(classes_of, TABLE, targets, "classification", labels=("no", "yes"))
    counts = TestAnalysis(analysis).confusion()
    assert counts.loc["no"].sum() == 150
    assert counts.loc["yes", "yes"] == np.count_nonzero(TABLE["used"].to_numpy()[150:] > 0)
    wrong = counts.loc["no", "yes"]
    assert (
        describe_analysis(analysis)[0]
        == f"most frequent mistake: yes instead of no, {wrong} of 150 times"
    )
    heatmap = drawn(analysis, "confusion").data[0]
    row = counts.loc["no"]
    assert list(heatmap.text[0]) == [f"{count} ({count / row.sum():.0%})" for count in row]
    right, wrong = row["no"] / row.sum(), row["yes"] / row.sum()
    # Colours tell right from wrong, and small shares of mistakes can be seen.
    assert list(heatmap.z[0]) == pytest.approx([-right, wrong**0.5])


def test_classes_of_several_words_and_columns_with_commas_are_quoted() -> None:
    table = TABLE.rename(columns={"used": "used, in kg"})
    table["y"] = np.where(table["used, in kg"] > 0, "Yes, it was", "no")

    def predict(some: pd.DataFrame) -> np.ndarray:
        is_second = (some["used, in kg"] > 0.2).to_numpy(float)
        return np.stack([1 - is_second, is_second], axis=1)

    numbers = (table["y"] != "no").to_numpy(int)
    labels = ["no", "Yes, it was"]
    found = analyse(predict, table, numbers, "classification", labels=labels)
    mistake, *_, relies = describe_analysis(found)
    assert mistake.startswith("most frequent mistake: no instead of 'Yes, it was', ")
    assert relies == "relies most on: 'used, in kg'"


def test_rare_classes_stand_together() -> None:
    targets = np.concatenate([np.arange(30), np.repeat(np.arange(5, 30), 3)])
    analysis = analyse(
        lambda one: np.eye(30)[one], targets, targets, "classification", labels=range(30)
    )
    labels = analysis["confusion"]["labels"]
    assert (len(labels), labels[-1]) == (MAX_CLASSES + 1, "(others)")
    assert np.trace(np.array(analysis["confusion"]["counts"])) == len(targets)
    assert "importance" not in analysis, "images and texts have no columns"


def test_columns_are_shuffled_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out_analysis, "MAX_SECONDS", -1.0)
    analysis = analyse(number_of, TABLE, number_of(TABLE)[:, 0], "regression")
    assert (
        [row["column"] for row in analysis["importance"]["columns"]],
        analysis["importance"]["num_left_out"],
    ) == (
        ["used"],
        2,
    )


def test_unmeasured_columns_are_not_said_to_be_useless() -> None:
    columns = [{"column": "a", "mean": 0.1, "low": -0.1, "high": 0.3}]
    importance = {"score": "accuracy", "columns": columns, "num_left_out": 2}
    (line,) = describe_analysis({"importance": importance})
    assert line == "1 column measured, without a clear difference. There was no time for 2 more"


def test_a_model_that_predicts_slowly_is_asked_as_seldom_as_possible() -> None:
    tables = []

    def predict(table: pd.DataFrame) -> np.ndarray:
        tables.append(table)
        return number_of(table)

    targets = number_of(TABLE)[:, 0]
    analysis = analyse(
        predict, TABLE, targets, "regression", predicted=number_of(TABLE), longest_s=-1.0
    )
    assert len(tables) == 1, (
        "one column is shuffled once; what was predicted before is not predicted again"
    )
    assert len(analysis["importance"]["columns"]) == 1


@pytest.mark.parametrize("longest_s", [3.0, 9.0, 40.0])
def test_shuffling_and_curves_together_take_the_time_that_there_is(
    monkeypatch: pytest.MonkeyPatch, longest_s: float
) -> None:
    times_s = [50.0]
    monkeypatch.setattr(held_out_analysis, "time", SimpleNamespace(monotonic=lambda: times_s[-1]))

    def predict(table: pd.DataFrame) -> np.ndarray:
        times_s.append(times_s[-1] + 0.2)
        return number_of(table)

    analyse(
        predict,
        TABLE,
        number_of(TABLE)[:, 0],
        "regression",
        predicted=number_of(TABLE),
        longest_s=longest_s,
    )
    of_a_curve_s = 0.2 * held_out_analysis._NUM_PLACES
    assert times_s[-1] - times_s[0] <= longest_s + of_a_curve_s


def test_a_run_without_a_tested_model_says_so() -> None:
    run = RunData(EXPERIMENT)
    run.add(RunStateChanged(state="running"))
    assert model_figures(run.history) == ()
    assert "has not tested a model" in FIGURES["confusion"](run).layout.annotations[0].text

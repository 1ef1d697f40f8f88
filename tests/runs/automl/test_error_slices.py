from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbench.runs.automl.error_slices import describe_slice, error_slices
from workbench.runs.automl.held_out_analysis import TestAnalysis, analyse, describe_analysis


def table(num_rows: int = 400) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.uniform(20, 80, num_rows),
            "city": random.choice(["Rome", "Oslo", None], num_rows, p=[0.6, 0.3, 0.1]),
            "name": [f"n{row}" for row in range(num_rows)],
        }
    )


def test_a_value_with_more_mistakes_is_found():
    rows = table()
    random = np.random.default_rng(1)
    rate = np.where(rows["city"] == "Oslo", 0.5, 0.1)
    slices = error_slices(rows, (random.random(len(rows)) < rate).astype(float))
    assert (slices[0]["column"], slices[0]["value"], slices[0]["certain"]) == ("city", "Oslo", True)
    assert slices[0]["num_samples"] == (rows["city"] == "Oslo").sum()
    assert not any(each["certain"] for each in slices if each["column"] == "age")
    assert describe_slice(slices[0], is_classification=True).startswith(
        "worst where city is Oslo: accuracy 0."
    )


def test_a_quarter_of_the_numbers_with_larger_errors_is_found():
    rows = table()
    errors = np.abs(np.random.default_rng(2).normal(0, 1 + 3 * (rows["age"] > 65)))
    slices = error_slices(rows, errors)
    assert slices[0]["column"] == "age"
    assert slices[0]["value"].endswith(" to 79.95") or slices[0]["value"].startswith("6")
    assert slices[0]["certain"]
    text = describe_slice(slices[0], is_classification=False, unit="CHF")
    assert "mean absolute error" in text
    assert "CHF on" in text


def test_chance_is_not_certain():
    rows = table()
    certain = 0
    for seed in range(40):
        mistakes = (np.random.default_rng(seed).random(len(rows)) < 0.2).astype(float)
        certain += any(each["certain"] for each in error_slices(rows, mistakes))
    assert certain <= 5
    assert error_slices(rows, np.zeros(len(rows))) == []


def test_slices_are_part_of_the_analysis():
    rows = table().drop(columns="name")
    targets = (np.random.default_rng(0).random(len(rows)) < 0.5).astype(int)
    wrong = (rows["city"] == "Oslo").to_numpy()
    predicted = np.eye(2)[np.where(wrong, 1 - targets, targets)]
    analysis = analyse(
        lambda samples: predicted[: len(samples)],
        rows,
        targets,
        "classification",
        labels=("no", "yes"),
        predicted=predicted,
    )
    slices = TestAnalysis(analysis).slices()
    assert slices.iloc[0][["column", "value", "accuracy"]].tolist() == ["city", "Oslo", 0.0]
    assert slices.iloc[0]["accuracy_overall"] == 1 - wrong.mean()
    assert any(line.startswith("worst where city is Oslo") for line in describe_analysis(analysis))
    assert TestAnalysis({"errors": {}}).slices().empty


@pytest.mark.parametrize("kind", ["Float64", "Int64", "float64[pyarrow]"])
def test_missing_numbers_of_pandas_are_in_the_same_slices_as_those_of_numpy(kind: str):
    if "pyarrow" in kind:
        pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    numbers = np.where(rng.random(300) < 0.1, np.nan, rng.integers(0, 90, 300))
    mistakes = rng.random(300) + np.isnan(numbers) + (numbers > 60)
    plain = error_slices(pd.DataFrame({"age": numbers}), mistakes)
    nullable = pd.DataFrame({"age": pd.Series(numbers).astype("Float64").astype(kind)})
    assert error_slices(nullable, mistakes) == plain
    assert {"missing", "67.25 to 89"} <= {each["value"] for each in plain}

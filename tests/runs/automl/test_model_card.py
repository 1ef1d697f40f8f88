"""The model card, and partial dependence, against numbers that are known."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_percent
from workbench.runs.automl.error_slices import error_slices
from workbench.runs.automl.held_out_analysis import TestAnalysis, analyse, partial_dependence
from workbench.runs.automl.preparation import prepare
from workbench.runs.automl.result_summary import compared_with_guess, model_card
from workbench.runs.automl.task_detection import read_problem

START = pd.Timestamp("2024-01-01")
RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 90, 400),
        "size": RANDOM.normal(size=400),
        "kind": RANDOM.choice(["red", "blue"], 400),
        "always": 1.0,
    }
)


def number_of(rows: pd.DataFrame) -> np.ndarray:
    return (2.0 * rows["age"] + rows["size"] + 5.0 * (rows["kind"] == "red")).to_numpy()[:, None]


def classes_of(rows: pd.DataFrame) -> np.ndarray:
    second = rows["age"].to_numpy() / 100.0
    return np.stack([1.0 - second, second], axis=1)


def dependence(predict: Any, columns: list[str], **how: Any) -> list[dict[str, Any]]:
    return partial_dependence(predict, TABLE, columns, until_s=math.inf, **how)[0]


def test_partial_dependence_is_the_mean_over_rows_with_one_value() -> None:
    age, kind = dependence(number_of, ["age", "kind", "always"])
    for value, mean in zip(age["values"], age["means"]["prediction"], strict=True):
        kept = TABLE.sample(300, random_state=0).assign(age=int(value))
        assert mean == pytest.approx(number_of(kept).mean(), abs=0.6)
    assert np.diff(age["means"]["prediction"]) == pytest.approx(2.0 * np.diff(age["values"]))
    means = dict(zip(kind["values"], kind["means"]["prediction"], strict=True))
    assert means["red"] - means["blue"] == pytest.approx(5.0)


def test_of_two_classes_the_probability_of_the_second_is_shown() -> None:
    (age,) = dependence(classes_of, ["age"], labels=("no", "yes"))
    assert list(age["means"]) == ["yes"]
    assert age["means"]["yes"] == pytest.approx(np.array(age["values"]) / 100.0)


def test_rows_with_weights_count_by_them() -> None:
    weights = np.where(TABLE["kind"] == "red", 4.0, 1.0)
    rows = TABLE[:200]
    (age,), _ = partial_dependence(
        number_of, rows, ["age"], until_s=math.inf, weights=weights[:200]
    )
    for value, mean in zip(age["values"], age["means"]["prediction"], strict=True):
        numbers = number_of(rows.assign(age=int(value)))[:, 0]
        assert mean == pytest.approx((numbers * weights[:200]).sum() / weights[:200].sum())


def test_dates_have_a_curve() -> None:
    rows = TABLE.assign(day=pd.date_range(START, periods=400))
    (day,), _ = partial_dependence(
        lambda some: (some["day"] - START).dt.days.to_numpy(float)[:, None],
        rows,
        ["day"],
        until_s=math.inf,
    )
    expected = [(pd.Timestamp(value) - START).days for value in day["values"]]
    assert day["means"]["prediction"] == expected
    assert expected == sorted(expected)


def test_numbers_and_dates_that_are_written_as_text_have_a_curve() -> None:
    days = pd.Series(pd.date_range(START, periods=400))
    numbers = pd.Series(RANDOM.uniform(0, 90, 400).round(1))
    written = pd.DataFrame(
        {
            "size": numbers.astype(str).str.replace(".", ",", regex=False),
            "day": days.dt.strftime("%d/%m/%Y"),
            "y": numbers,
        }
    )
    _, held_out = prepare(read_problem(written, "y", time_column="none"), 0, [0, 1, 2, 3, 4])
    rows = held_out.samples
    meant = held_out.interpreter.meant(rows)

    def predict(some: pd.DataFrame) -> np.ndarray:
        sizes, dates = some["size"], some["day"]
        if sizes.dtype.kind != "f":
            sizes = sizes.str.replace(",", ".", regex=False).astype(float)
        if dates.dtype.kind != "M":
            dates = pd.to_datetime(dates, format="%d/%m/%Y")
        passed = (dates - START).dt.days
        return (sizes + 1000.0 * passed).to_numpy()[:, None]

    (size, day), why = partial_dependence(
        predict, rows, ["size", "day"], until_s=math.inf, meant=meant
    )
    assert why == {}
    assert size["values"] == sorted(size["values"])
    assert np.diff(size["means"]["prediction"]) == pytest.approx(np.diff(size["values"]))
    passed = [(pd.Timestamp(value) - START).days for value in day["values"]]
    assert passed == sorted(passed)
    assert np.diff(day["means"]["prediction"]) == pytest.approx(1000.0 * np.diff(passed))
    assert day["values"][0].startswith("2024-01-")
    late = (meant["day"] > pd.Timestamp("2024-11-01")).to_numpy(float)
    [worst, *_] = error_slices(meant, late)
    assert worst["column"] == "day"
    assert worst["value"].endswith(str(meant["day"].max())[:10])


def test_each_column_without_a_curve_has_a_reason() -> None:
    rows = TABLE.assign(text=[f"text {row}" for row in range(400)], **dict.fromkeys("abcd", 1.5))
    columns = ["age", "text", "always", "size", "kind", "a", "b"]
    curves, why = partial_dependence(number_of, rows, columns, until_s=math.inf)
    assert [part["column"] for part in curves] == ["age", "size", "kind"]
    assert why == {
        "text": "it has too many different texts, none of which is typical",
        "always": "it has fewer than two different values in the test rows",
        "a": "it has fewer than two different values in the test rows",
        "b": "only the 6 most important columns have one",
        "c": "its importance was not measured",
        "d": "its importance was not measured",
    }
    curves, why = partial_dependence(number_of, TABLE, ["age"], until_s=time.monotonic() - 1.0)
    assert curves == []
    assert why["age"] == "there was no time left to compute it"


def test_the_analysis_shows_it_as_a_table() -> None:
    test_analysis = TestAnalysis(analyse(number_of, TABLE, number_of(TABLE)[:, 0], "regression"))
    assert test_analysis.columns == ["age", "kind", "size"]
    assert list(test_analysis.partial_dependence("kind").columns) == ["kind", "prediction"]
    with pytest.raises(ArgumentError, match="'height' has no partial dependence"):
        test_analysis.partial_dependence("height")
    why = "'always' has no partial dependence: it has fewer than two different values"
    with pytest.raises(ArgumentError, match=why):
        test_analysis.partial_dependence("always")


def result() -> dict[str, Any]:
    return {
        "run_id": "houses-1",
        "task": "regression",
        "metric": "mae",
        "model": "ensemble of 2",
        "used": [{"family": "lightgbm", "weight": 0.7}, {"family": "linear", "weight": 0.3}],
        "decisions": {"temperature": 1.0},
        "test": {"mae": 3.25, "r2": 0.5},
        "baseline": {"mae": 6.5, "r2": -0.01},
        "intervals": {"mae": [3.0, 3.5]},
        "split": {"group": None, "time": "day", "own_parts": []},
        "num_samples": {"learning": 800, "test": 150},
        "notes": ["2 columns are constant"],
        "prediction_interval": {"level": 0.9, "held": 0.88},
        "analysis": analyse(number_of, TABLE, number_of(TABLE)[:, 0] - 9.0, "regression"),
        "refit": {"0": "hash"},
    }


def test_a_card_tells_data_scores_and_limits() -> None:
    card = model_card(result(), name="houses", target="price")
    assert card.startswith("# Model card: houses\n\n## Intended use\n\n*To be written by you.*")
    for line in (
        "- Target: `price`",
        "  - lightgbm, weight 0.70",
        "- Rows of the test, which chose nothing: 150",
        "- The last rows by `day` were tested.",
        "- 2 columns are constant",
        "| mae | 3.25 | 3 to 3.5 | 6.5 |",
        "| r2 | 0.5 |  | -0.01 |",
        "- The test has few rows, so the scores are rough.",
        "- After the test, models were fitted again to all rows, also to those of the test",
    ):
        assert line in card.splitlines()
    assert "does not follow time" not in card
    wanted = f"Intervals of {format_percent(0.9)} hold {format_percent(0.88)} of the test rows."
    assert wanted in card


def test_a_card_says_of_test_rows_of_the_user_that_they_were_never_learned_from() -> None:
    own = result() | {"split": {"group": None, "time": None, "own_parts": ["test"]}}
    lines = model_card(own, name="houses", target="price").splitlines()
    assert "- The test rows were given by the user." in lines
    (refit,) = (line for line in lines if line.startswith("- After the test"))
    assert "to all rows but those of the test" in refit
    assert not any("split does not follow time" in line for line in lines)
    assert "- Whether the test rows are later ones, only the user who gave them knows." in lines


def test_a_card_tells_how_probabilities_were_calibrated() -> None:
    changed = result() | {"task": "classification", "decisions": {"temperature": 1.7}}
    card = model_card(changed, name="loans", target=None, licences=["Weights: MIT"])
    assert "- Calibration: temperature 1.7, learned on validation rows" in card
    assert "## Licence\n\nWeights: MIT" in card


def scored(metric: str, value: float, ends: tuple[float, float], **others: Any) -> dict[str, Any]:
    """Return a result in which the simplest guess has r2 -0.02, accuracy 0.7 and log_loss 0.6."""
    scores = {metric: (value, ends), **others}
    return {
        "task": "regression" if metric == "r2" else "classification",
        "test": {name: value for name, (value, _) in scores.items()},
        "intervals": {name: list(ends) for name, (_, ends) in scores.items()},
        "baseline": {"r2": -0.02, "accuracy": 0.7, "log_loss": 0.6},
    }


MAY_BE = " - the model may be no better than this guess, which its interval does not exclude"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (scored("r2", 0.03, (-0.05, 0.1)), MAY_BE),
        (scored("r2", -0.03, (-0.1, 0.1)), " - the model is no better than this guess"),
        (scored("r2", 0.3, (0.1, 0.5)), ""),
        (
            scored("accuracy", 0.7, (0.6, 0.8), log_loss=(0.5, (0.4, 0.65))),
            " - the predicted classes are no better than this guess, but the probabilities are:"
            " log_loss 0.5 instead of 0.6",
        ),
        (
            scored("accuracy", 0.7, (0.6, 0.8), log_loss=(0.7, (0.6, 0.8))),
            " - the model is no better than this guess",
        ),
        (scored("accuracy", 0.72, (0.6, 0.8), log_loss=(0.55, (0.5, 0.65))), MAY_BE),
        # The classes are as often right as the guess, but the probabilities tell more.
        (scored("accuracy", 0.72, (0.6, 0.8), log_loss=(0.4, (0.35, 0.45))), ""),
        (scored("log_loss", 0.55, (0.5, 0.59)), ""),
    ],
)
def test_a_score_that_may_be_luck_is_said_to_be_no_better_than_the_guess(
    result: dict[str, Any], expected: str
) -> None:
    assert compared_with_guess(result, next(iter(result["test"]))) == expected

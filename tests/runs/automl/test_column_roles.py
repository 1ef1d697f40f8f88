from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbench.foundation.errors import DataError
from workbench.runs.automl.column_roles import usable_columns
from workbench.runs.automl.preparation import prepare
from workbench.runs.automl.task_detection import as_samples, read_problem

NUM_ROWS = 60
RNG = np.random.default_rng(0)


def table(**columns: object) -> pd.DataFrame:
    size, label = RNG.normal(size=NUM_ROWS), np.arange(NUM_ROWS) % 2
    return pd.DataFrame({"size": size, **columns, "label": label})


def told(frame: pd.DataFrame) -> tuple[list[str], str]:
    problem = read_problem(frame, "label")
    return list(problem.samples.columns), " / ".join(problem.notes)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("id", range(1000, 1000 + NUM_ROWS)),
        ("customer_id", RNG.permutation(NUM_ROWS)),
        ("PassengerId", range(NUM_ROWS)),
        ("Unnamed: 0", range(NUM_ROWS)),
        ("Nr", range(1, NUM_ROWS + 1)),
        ("sample no", RNG.permutation(NUM_ROWS) + 1),
        ("house", np.arange(NUM_ROWS) + 500.0),
        ("who", [f"row-{row}" for row in range(NUM_ROWS)]),
        ("flat", [f"flat {row}" for row in range(NUM_ROWS)]),
    ],
)
def test_what_names_rows_is_left_out_and_that_is_said(name: str, values: object) -> None:
    columns, notes = told(table(**{name: list(values)}))  # type: ignore[call-overload]
    assert columns == ["size"]
    assert f"columns that differ in nearly every row are not used: {name} (such as " in notes


@pytest.mark.parametrize("are_classes", [True, False])
@pytest.mark.parametrize(
    ("step", "follows", "is_used"), [(40, True, True), (40, False, False), (1, True, False)]
)
def test_a_number_of_a_row_is_used_if_the_target_follows_it_and_it_does_not_count_rows(
    step: int, follows: bool, is_used: bool, are_classes: bool
) -> None:
    rng = np.random.default_rng(1)
    numbers = 5000 + step * rng.permutation(400)
    told_by = numbers if follows else rng.permutation(numbers)
    label = told_by / 1e4 + rng.normal(0, 0.1, 400) * step / 40
    frame = pd.DataFrame({"size": rng.normal(size=400), "record_id": numbers, "label": label})
    if are_classes:
        frame["label"] = np.where(frame["label"] > frame["label"].median(), "new", "old")
    columns, notes = told(frame)
    assert columns == (["size", "record_id"] if is_used else ["size"])
    assert ("leave it out: --drop record_id" in notes) == is_used


def test_a_running_number_is_one_also_where_rows_without_a_target_are_left_out() -> None:
    frame = table(place=range(7, 7 + NUM_ROWS))
    frame["label"] = frame["label"].astype(object).where(frame.index % 5 > 0)
    columns, notes = told(frame)
    assert columns == ["size"]
    assert "columns that differ in nearly every row are not used: place (such as 8)" in notes


def test_a_column_is_not_left_out_for_counting_where_it_is_the_only_one() -> None:
    frame = table(position=range(NUM_ROWS)).drop(columns="size")
    assert told(frame) == (["position"], "")


def test_columns_that_are_the_same_in_every_row_are_noted() -> None:
    _, notes = told(
        table(site=["Rome"] * NUM_ROWS, version=3, paid=[1, None, 1] * (NUM_ROWS // 3), remark=None)
    )
    assert (
        notes
        == "columns without any value: remark / columns that are the same in every row are not"
        " used: site (always 'Rome'), version (always 3)"
    )


def test_numbers_with_a_unit_are_kept() -> None:
    for unit in ("$", "coins"):
        columns, notes = told(
            table(price=[f"{row:,} {unit}" for row in range(1000, 1000 + NUM_ROWS)])
        )
        assert columns == ["size", "price"]
        assert f"read as numbers without their unit: price (such as '1,000 {unit}')" in notes


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("year", RNG.permutation(np.arange(1950, 1950 + NUM_ROWS))),
        ("elapsed_s", RNG.permutation(NUM_ROWS)),
        ("paid", range(0, 2 * NUM_ROWS, 2)),
        ("paid", RNG.permutation(NUM_ROWS)),
        ("height", np.sort(RNG.integers(150, 200, NUM_ROWS))),
        ("depth", np.arange(NUM_ROWS) + 0.5),
        ("nr", [*range(1, NUM_ROWS), 2]),
        ("id", [row // 2 for row in range(NUM_ROWS)]),
        ("valid", np.linspace(0, 1, NUM_ROWS)),
        ("city", ["Rome", "Oslo", "Bonn"] * (NUM_ROWS // 3)),
    ],
)
def test_what_might_tell_something_is_kept_without_a_word(name: str, values: object) -> None:
    assert told(table(**{name: list(values)})) == (["size", name], "")  # type: ignore[call-overload]


def test_texts_next_to_other_columns_are_used_and_that_is_said() -> None:
    good, bad = (f"it was {word} for several days" for word in ("good", "bad"))
    reviews = [f"{bad if row % 2 else good} {row}" for row in range(NUM_ROWS)]
    frame = table(review=reviews)
    columns, notes = told(frame)
    assert columns == ["size", "review"]
    assert notes == "read as texts, by their words and parts of words: review"
    problem = read_problem(frame, "label")
    assert (problem.kind, problem.text_columns) == ("table", ("review",))
    learning, held_out = prepare(problem, 0, (1, 2, 3, 4, 5))
    assert held_out.all_rows is not None
    for reader in (*held_out.interpreter.readers, held_out.all_rows.reader):
        encoded = reader.encoder.encode(frame[["review", "size"]])
        assert (encoded[1::2, -1] > encoded[::2, -1].max()).all()
    width = held_out.interpreter.readers[0].encoder.encode(frame).shape[1]
    assert learning.folds[0].train_inputs.shape[1] == width > 1


def test_texts_next_to_nothing_but_constant_columns_are_texts() -> None:
    frame = table(review=[f"I liked scene {row} most" for row in range(NUM_ROWS)])
    problem = read_problem(frame.assign(size=1), "label")
    assert (problem.kind, problem.text_columns) == ("texts", ("review",))


def test_texts_beside_nothing_but_names_of_rows_are_read_also_later() -> None:
    frame = pd.DataFrame(
        {
            "id": range(NUM_ROWS),
            "title": [f"it was film {row}" for row in range(NUM_ROWS)],
            "review": [None, *(f"I liked scene {row} most" for row in range(1, NUM_ROWS))],
            "label": [0, 1] * (NUM_ROWS // 2),
        }
    )
    problem = read_problem(frame, "label")
    assert problem.kind == "texts"
    assert problem.samples[0] == "it was film 0"
    assert problem.samples[1] == "it was film 1\nI liked scene 1 most"
    _, held_out = prepare(problem, 0, (1, 2, 3, 4, 5))
    assert held_out.interpreter.text_columns == ("title", "review")
    for later in (frame[:2], frame[["review", "title"]][:2]):
        assert list(as_samples("texts", later, ("title", "review"))) == list(problem.samples[:2])
    with pytest.raises(DataError, match="no column 'title'"):
        as_samples("texts", frame[["review"]], ("title", "review"))
    assert as_samples("texts", "just one text", ("title", "review")).tolist() == ["just one text"]


def test_dates_written_as_text_are_dates_and_the_form_is_said() -> None:
    days = pd.Series(pd.date_range("2023-01-01", periods=NUM_ROWS, freq="9D")).sample(
        frac=1, random_state=0, ignore_index=True
    )
    frame = table(sold=days.dt.strftime("%d/%m/%Y"), built=days.dt.strftime("%Y-%m-%d"))
    columns, notes = told(frame)
    assert columns == ["size", "sold", "built"]
    assert notes.endswith("read as dates: sold (day/month/year), built (year-month-day)")
    _, held_out = prepare(read_problem(frame, "label"), 0, (1, 2, 3, 4, 5))
    for reader in held_out.interpreter.readers:
        later = pd.DataFrame({"size": [0.0], "sold": ["28/02/2031"], "built": ["2031-02-28"]})
        encoded = reader.encoder.encode(later)
        half = (encoded.shape[1] - 1) // 2
        np.testing.assert_array_equal(encoded[0, 1 : 1 + half], encoded[0, 1 + half :])


def test_a_column_of_which_most_are_dates_says_which_value_is_none() -> None:
    days = [f"2024-03-{1 + row % 28:02}" for row in range(NUM_ROWS)]
    days[7] = "soon"
    columns, notes = told(table(sold=days))
    assert columns == ["size", "sold"]
    assert "sold is read as text: row 7 (from 0) holds 'soon'" in notes


def test_many_different_texts_become_numbers_and_that_is_said() -> None:
    columns, notes = told(table(street=[f"street {row % 40}" for row in range(NUM_ROWS)]))
    assert columns == ["size", "street"]
    assert notes == (
        "street has 40 distinct texts, too many for a column each: numbers such as their frequency"
        " are used"
    )


@pytest.mark.parametrize("num_values", [NUM_ROWS, 40, 5])
def test_numbers_with_decimal_commas_are_read_and_noted(num_values: int) -> None:
    columns, notes = told(
        table(price=["n/a", *(f"-{row % num_values},5" for row in range(1, NUM_ROWS))])
    )
    assert columns == ["size", "price"]
    assert "read as numbers with decimal commas: price (such as '-1,5')" in notes


def test_numbers_with_decimal_commas_beside_others_are_texts_and_a_note_says_what_to_do() -> None:
    _, notes = told(
        table(price=[f"{row}.5" if row < 6 else f"-{row},5" for row in range(NUM_ROWS)])
    )
    assert "decimal commas: price (such as '-6,5'). To have them read" in notes


def test_a_table_of_names_of_rows_alone_is_refused() -> None:
    with pytest.raises(
        DataError, match="no column is left to predict the target from: columns that differ"
    ):
        usable_columns(pd.DataFrame({"id": range(NUM_ROWS)}))


def test_a_question_mark_leaves_a_money_column_one_of_numbers() -> None:
    spend = [f"{10 + row}.5" for row in range(NUM_ROWS)]
    spend[::20] = ["?"] * 3
    columns, notes = told(table(**{"spend €": spend}))
    assert (columns, notes) == (["size", "spend €"], "")


def test_other_texts_among_numbers_are_noted_with_their_share_and_two_of_them() -> None:
    spend = [f"{10 + row}.5" for row in range(NUM_ROWS)]
    spend[7] = spend[9] = "unknown"
    columns, notes = told(table(spend=spend))
    assert columns == ["size", "spend"]
    assert (
        notes == "spend is read as numbers: 2 of 60 values (3.3%) are something else and count as"
        " missing, such as 'unknown' in row 7 (from 0)"
    )
    spend[9] = "closed"
    _, notes = told(table(other=spend))
    assert "other is read as numbers: 2 of 60 values (3.3%)" in notes
    assert "such as 'unknown' in row 7 and 'closed' in row 9 (from 0)" in notes
    spend[9] = "unknown"
    spend[10:18] = ["unknown"] * 8
    _, notes = told(table(spend=spend))
    assert "spend is read as numbers: 10 of 60 values (16.7%) are something else" in notes
    spend[10:18] = ["a lot"] * 8
    _, notes = told(table(spend=spend))
    assert (
        "spend is read as text: row 7 (from 0) holds 'unknown', although most others are numbers"
        in notes
    )


def test_two_numbers_in_a_cell_are_said() -> None:
    places = [f"47.{row:02}, 8.{row + 20}" for row in range(NUM_ROWS)]
    columns, notes = told(table(place=places))
    assert columns == ["size"]
    assert "two numbers in each cell, such as a latitude and a longitude: place" in notes
    codes = [f"47.{row:02}, x" for row in range(NUM_ROWS)]
    assert "two numbers" not in told(table(place=codes))[1]


def test_a_unit_that_only_some_numbers_have_is_noted() -> None:
    area = [f"{row}.5" if row % 4 == 0 else f"{row}.5 m²" for row in range(NUM_ROWS)]
    columns, notes = told(table(**{"area m2": area}))
    assert columns == ["size", "area m2"]
    assert (
        notes == "read as numbers without their unit: area m2 (such as '1.5 m²', but 15 of 60"
        " cells have none)"
    )
    columns, notes = told(table(area=[*area[:30], *(f"{row}.5 ft" for row in range(30))]))
    assert columns == ["size", "area"]
    assert "area is read as text: its numbers have no common unit (30 with ft, 22 with m²" in notes
    _, notes = told(
        table(flat=[f"{row} door{row}" for row in range(NUM_ROWS - 20)] + ["none"] * 20)
    )
    assert "unit" not in notes


def test_thousands_separators_are_read_and_noted() -> None:
    columns, notes = told(table(paid=[f"{990 + row:,}" for row in range(NUM_ROWS)]))
    assert columns == ["size", "paid"]
    assert notes == "read as numbers with thousands separators: paid (such as '1,000')"


def test_numbers_written_as_text_are_read_alike_in_learning_and_later() -> None:
    paid = [f"{990 + row:,}" for row in range(NUM_ROWS)]
    paid[3] = "unknown"
    _, held_out = prepare(read_problem(table(paid=paid), "label"), 0, (1, 2, 3, 4, 5))
    for reader in held_out.interpreter.readers:
        later = pd.DataFrame({"size": 0.0, "paid": ["1,000", "1000", 1000, "Unknown", None]})
        encoded = reader.encoder.encode(later)
        np.testing.assert_array_equal(encoded[0], encoded[1])
        np.testing.assert_array_equal(encoded[0], encoded[2])
        np.testing.assert_array_equal(encoded[3], encoded[4])

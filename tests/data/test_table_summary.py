from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.data import summary_of
from workbench.data.table_summary import TableSummary
from workbench.experiment.components import Component
from workbench.foundation.errors import DataError

NUM_ROWS = 60


def summary(
    folder: Path, columns: dict[str, object], target: str = "y", **options: object
) -> TableSummary:
    pd.DataFrame(columns).to_csv(folder / "table.csv", index=False)
    given = {"path": str(folder / "table.csv"), "target": target, **options}
    summarised = summary_of(Component(name="table", options=given))
    assert summarised is not None
    return summarised


def test_rows_columns_gaps_and_the_most_frequent_class_are_counted(tmp_path: Path) -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=NUM_ROWS)).dt.strftime("%d/%m/%Y")
    summarised = summary(
        tmp_path,
        {
            "spend": ["?", None, *map(str, range(2, NUM_ROWS))],
            "size": np.linspace(0, 1, NUM_ROWS),
            "since": days,
            "city": ["Rome", "Oslo", None] * (NUM_ROWS // 3),
            "street": [f"street {row % 40}" for row in range(NUM_ROWS)],
            "y": ["no", "no", "no", "yes"] * 15,
        },
    )
    assert summarised.lines() == [
        (
            "The table has 60 rows, 5 input columns (2 of numbers, 1 of dates, 1 of categories, 1"
            " of text); 22 of 300 values are missing."
        ),
        "y has 2 classes: no 75%, yes 25%. Always guessing no has an accuracy of 0.750.",
    ]
    assert summarised.notes == (
        "read as dates: since (day/month/year)",
        (
            "the rows are sorted by since, and validation rows are drawn from all of them, so"
            " scores say little about later rows. If you will predict these, set data: {validation:"
            " last}"
        ),
    )
    document = json.loads(json.dumps(summarised.to_json()))
    assert document["class_counts"] == {"no": 45, "yes": 15}
    assert document["majority_share"] == 0.75


def test_dates_that_are_written_in_another_form_are_counted(tmp_path: Path) -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=NUM_ROWS))
    mixed = days.dt.strftime("%d/%m/%Y")
    mixed.iloc[::4] = days.dt.strftime("%Y-%m-%d").iloc[::4]
    mixed.iloc[1] = None
    columns = {"since": mixed, "size": range(NUM_ROWS, 0, -1), "y": ["no", "yes"] * (NUM_ROWS // 2)}
    summarised = summary(tmp_path, columns)
    assert (
        summarised.notes[0]
        == "read as dates: since (day/month/year, but year-month-day in 15 of 59 cells)"
    )


def test_the_shares_of_two_classes_add_up() -> None:
    kinds = {"number": 1, "date": 0, "category": 0, "text": 0}
    for counts, shares in [
        ((101, 99), "ill 50.5%, well 49.5%"),
        ((181, 19), "ill 90.5%, well 9.5%"),
        ((9999, 1), "ill 100%, well <0.1%"),
        ((3, 1), "ill 75%, well 25%"),
    ]:
        classes = dict(zip(("ill", "well"), counts, strict=True))
        table_summary = TableSummary(sum(counts), 1, kinds, 0, "y", classes, None, ())
        assert f": {shares}. Always" in table_summary.lines()[1]


def test_a_column_that_holds_the_answer_is_noted(tmp_path: Path) -> None:
    columns = {
        "paid": [0, 1, 1] * 20,
        "age": [3, 1, 4, 1] * 15,
        "code": [f"x{row}" for row in range(NUM_ROWS)],
    }
    summarised = summary(tmp_path, columns | {"y": ["no", "yes", "yes"] * 20}, drop=["code"])
    assert summarised.notes == (
        (
            "`paid` alone predicts `y` with accuracy 1.00: if it is not known when a prediction is"
            " made, leave it out with data: {drop: [code, paid]}"
        ),
    )


def test_a_column_to_drop_that_does_not_exist_is_refused_with_the_closest(tmp_path: Path) -> None:
    columns = {"paid": range(NUM_ROWS), "age": range(NUM_ROWS), "y": ["no", "yes"] * 30}
    with pytest.raises(
        DataError, match=r"data\.drop: there is no column 'payed'.*Did you mean paid\?"
    ):
        summary(tmp_path, columns, drop=["payed"])


def test_a_target_of_numbers_has_a_range(tmp_path: Path) -> None:
    summarised = summary(
        tmp_path, {"x": range(NUM_ROWS), "y": [f"{row:,}.5" for row in range(980, 1040)]}
    )
    assert summarised.majority_share is None
    assert summarised.lines()[1] == "y is a number from 980.5 to 1040, 1010 in the mean."


def test_columns_that_identify_rows_are_named_with_what_leaves_them_out(tmp_path: Path) -> None:
    columns = {
        "Customer ID": range(5000, 5000 + NUM_ROWS),
        "code": [f"row-{row}" for row in range(NUM_ROWS)],
        "age": range(NUM_ROWS, 0, -1),
        "paid": [f"{row:,}" for row in range(980, 980 + NUM_ROWS)],
        "y": ["no", "yes"] * (NUM_ROWS // 2),
    }
    assert (
        summary(tmp_path, columns).notes[0]
        == "columns 'Customer ID', 'code' differ in nearly every row, as identifiers do. Leave them"
        " out with data: {drop: ['Customer ID', code]}"
    )
    assert (
        summary(tmp_path, columns, drop=["code"]).notes[0]
        == "column 'Customer ID' differs in nearly every row, as identifiers do. Leave it out with "
        "data: {drop: [code, 'Customer ID']}"
    )
    assert not any(
        "identifiers" in note
        for note in summary(tmp_path, columns, drop=["code", "Customer ID"]).notes
    )


def test_columns_that_are_the_same_in_every_row_are_noted_with_what_leaves_them_out(
    tmp_path: Path,
) -> None:
    columns = {
        "age": range(NUM_ROWS, 0, -1),
        "site": ["Rome"] * NUM_ROWS,
        "was paid": [None, *["yes"] * (NUM_ROWS - 1)],
        "y": ["no", "yes"] * (NUM_ROWS // 2),
    }
    assert summary(tmp_path, columns).notes == (
        (
            "'site' is always 'Rome': nothing can be learnt from this column. Leave it out with "
            "data: {drop: [site]}"
        ),
    )
    columns |= {"version": [3] * NUM_ROWS, "remark": [None] * NUM_ROWS}
    assert summary(tmp_path, columns, drop=["site"]).notes == (
        (
            "'remark' has no value, 'version' is always 3: nothing can be learnt from these"
            " columns. Leave them out with data: {drop: [site, remark, version]}"
        ),
    )
    assert not summary(tmp_path, columns, drop=["site", "remark", "version"]).notes


@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_other_data_has_no_such_summary(name: str) -> None:
    assert summary_of(Component(name=name)) is None


def test_one_text_among_the_numbers_of_a_target_is_noted_as_it_makes_classes_of_them(
    tmp_path: Path,
) -> None:
    prices: list[object] = [f"{row:,}" for row in range(980, 980 + NUM_ROWS)]
    summarised = summary(
        tmp_path, {"x": range(NUM_ROWS), "y": [*prices[:7], "on request", *prices[8:]]}
    )
    assert summarised.majority_share is not None
    assert (
        summarised.notes[0]
        == "y is taken as classes: row 7 (from 0) holds 'on request', although most others are"
        " numbers. To have a number predicted, remove such rows"
    )
    assert not summary(
        tmp_path, {"x": range(NUM_ROWS), "y": ["1", "2", "x"] * (NUM_ROWS // 3)}
    ).notes


def test_a_target_with_two_units_is_noted_as_it_makes_classes_of_numbers(tmp_path: Path) -> None:
    weights = [f"{row} {'kg' if row % 3 else 'lb'}" for row in range(NUM_ROWS)]
    assert summary(tmp_path, {"x": range(NUM_ROWS), "y": weights}).notes == (
        (
            "y is taken as classes: its numbers have no common unit (40 with kg, 20 with lb). Row 0"
            " (from 0) holds '0 lb'. To have a number predicted, write all with the same unit"
        ),
    )
    sizes = ["1 kg", "2 kg", "1 lb"] * (NUM_ROWS // 3)
    assert not summary(tmp_path, {"x": range(NUM_ROWS), "y": sizes}).notes


def test_a_target_of_numbers_with_a_currency_and_a_column_of_areas_are_read_as_numbers(
    tmp_path: Path,
) -> None:
    summarised = summary(
        tmp_path,
        {
            "area m2": [f"{row}.5 m2" if row % 4 else f"{row}.5" for row in range(NUM_ROWS)],
            "y": [f"CHF {row * row % 47 + 990:,}" for row in range(NUM_ROWS)],
        },
    )
    assert summarised.target_range is not None
    assert summarised.target_range[0] == 990.0
    assert summarised.notes == (
        "read as numbers with thousands separators: y (such as 'CHF 1,006')",
        "read as numbers without their unit: y (such as 'CHF 990')",
        (
            "read as numbers without their unit: area m2 (such as '1.5 m2', but 15 of 60 cells have"
            " none)"
        ),
    )


def test_units_are_left_out_and_noted_and_so_are_columns_without_a_common_one(
    tmp_path: Path,
) -> None:
    columns = {
        "share": [f"{row / 10}%" for row in range(NUM_ROWS)],
        "price": [f"$1,{100 + row}" for row in range(NUM_ROWS)],
        "mixed": [f"{row}%" if row % 2 else str(row) for row in range(NUM_ROWS)],
        "european": [f"{row},5 €" for row in range(NUM_ROWS)],
        "word": ["100% wool", "cotton", "cotton"] * (NUM_ROWS // 3),
        "y": ["no", "yes"] * (NUM_ROWS // 2),
    }
    summarised = summary(tmp_path, columns)
    assert summarised.num_of_kind["number"] == 3
    assert summarised.notes == (
        "read as numbers with thousands separators: price (such as '$1,100')",
        "read as numbers with decimal commas: european (such as '0,5 €')",
        (
            "read as numbers without their unit: share (such as '0.0%'), price (such as '$1,100'), "
            "european (such as '0,5 €')"
        ),
        (
            "mixed is read as text: its numbers have no common unit (30 without a unit, 30 with %)."
            " Row 1 (from 0) holds '1%'. To have them read as numbers, write all with the same unit"
        ),
    )


def test_the_columns_to_leave_out_are_one_list_in_all_notes(tmp_path: Path) -> None:
    columns = {
        "paid": [0, 1, 1] * 20,
        "age": [3, 1, 4, 1] * 15,
        "code": [f"x{row}" for row in range(NUM_ROWS)],
        "site": ["Rome"] * NUM_ROWS,
        "y": ["no", "yes", "yes"] * 20,
    }
    identifier, constant, leak = summary(tmp_path, columns).notes
    assert identifier.endswith("with data: {drop: [code, site]}")
    assert constant.endswith("with data: {drop: [code, site]}")
    assert leak.endswith("with data: {drop: [code, site, paid]}")

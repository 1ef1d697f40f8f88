from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.data.column_encoding import Column, learn_column, text_form_of
from workbench.data.plain_frames import column_of
from workbench.data.unusual_rows import (
    PREDICTION,
    as_learned,
    describe_unusual,
    numbers_in,
    ranges_of,
    unusual_values,
)
from workbench.deploy.card import Card, Input, Output
from workbench.deploy.feeds import category_reader, feeds_of
from workbench.deploy.predict_script import script
from workbench.foundation.errors import DataError


def learnt() -> pd.DataFrame:
    return pd.DataFrame(
        {"area": [20.0, 450.0, np.nan], "rooms": [1, 9, 3], "city": ["Rome", "Oslo", "Rome"]}
    )


def test_numbers_far_outside_are_found_by_row():
    ranges = ranges_of(learnt())
    assert ranges == {"area": (20.0, 450.0), "rooms": (1.0, 9.0)}
    new = pd.DataFrame({"area": [100.0, 9e6, 700.0, np.nan], "rooms": [2, 3, 40, 5]})
    numbers = {**numbers_in(new), PREDICTION: np.array([5e5, 2.59e8, 6e5, 4e5])}
    unusual = unusual_values(numbers, {**ranges, PREDICTION: (1e5, 3e6)})
    assert [(value.row, value.column) for value in unusual] == [
        (1, "area"),
        (1, "prediction"),
        (2, "rooms"),
    ]
    assert describe_unusual(unusual, 4) == (
        "2 rows of 4 are far outside of what was learned: row 1 (from 0) has prediction"
        " 259000000, learned were 100000 to 3000000. Do not rely on its prediction"
    )


def test_values_that_were_learned_and_other_samples_are_not_unusual():
    assert unusual_values(numbers_in(learnt()), ranges_of(learnt())) == []
    assert ranges_of(np.zeros((3, 4, 4))) == {}
    assert numbers_in(["a text"]) == {}


def trained() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "price": ["12 €", "15 €", "18 €", "21 €"],
            "city": ["Rome", "Oslo", "Rome", "oslo"],
            "day": ["31.01.2024", "01.02.2024", "03.02.2024", "04.02.2024"],
            "size": [1.0, 2.0, np.nan, 4.0],
        }
    )


def columns_of(table: pd.DataFrame) -> list[Column]:
    return [
        learn_column(values := column_of(table, name), max_categories=9, form=text_form_of(values))
        for name in table
    ]


def test_new_rows_are_read_as_learned_and_each_odd_value_is_said():
    columns = columns_of(trained())
    new = pd.DataFrame(
        {
            "price": ["13 €", "12 $", "9"],
            "city": [" ROME", "OSLO", None],
            "day": ["05.02.2024", "2024-02-06", "31.02.2024"],
            "size": [np.inf, np.nan, 3.0],
        }
    )
    read, notes = as_learned(new, columns)
    assert notes == [
        "column 'price' has '12 $' in row 1 (from 0), which is not a number: it counts as missing",
        "column 'price' is missing in row 1 (from 0), and was never missing in training: the mean"
        " of the training data is used",
        "column 'city' is missing in row 2 (from 0), and was never missing in training: it counts"
        " as an unknown category",
        "column 'day' has '31.02.2024' in row 2 (from 0), which is not a date: it counts as"
        " missing",
        "column 'day' is missing in row 2 (from 0), and was never missing in training: the mean of"
        " the training data is used",
        "column 'size' is infinite in row 0 (from 0): it counts as missing",
    ]
    assert read["city"][0] == "Rome"
    assert read["city"][1] in ("Oslo", "oslo"), "both are as frequent"
    np.testing.assert_array_equal(columns[0].numbers(read["price"]), [13.0, np.nan, 9.0])
    np.testing.assert_array_equal(read["size"], [np.nan, np.nan, 3.0])
    same, notes = as_learned(trained(), columns)
    assert notes == []
    for column in columns:
        np.testing.assert_array_equal(
            column.numbers(column_of(same, column.name)),
            column.numbers(column_of(trained(), column.name)),
        )


def test_a_text_means_the_most_frequent_of_categories_that_differ_in_capitals():
    grapes = ["Merlot"] * 3 + ["MERLOT"] * 2 + ["merlot rosé"]
    columns = columns_of(pd.DataFrame({"grape": grapes}))
    new = ["merlot", " MERLOT", "Merlot ", "mErLoT", "MERLOT ROSÉ", "Pinot"]
    read, notes = as_learned(pd.DataFrame({"grape": new}), columns)
    meant = ["Merlot", "MERLOT", "Merlot", "Merlot", "merlot rosé", "Pinot"]
    assert read["grape"].tolist() == meant
    assert [note.partition(" in row")[2].split(",")[0] for note in notes] == [" 5 (from 0)"]
    card_input = Input(
        name="grape",
        kind="category",
        dtype="string",
        categories=("Merlot", "MERLOT", "merlot rosé"),
    )
    assert list(map(category_reader(card_input), new)) == meant


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["12 $", "40", "41"], [np.nan, 40.0, 41.0]),
        (["12 $", 40.0, 41.0], [np.nan, 40.0, 41.0]),
        (["12 $", "40 $", "41"], [12.0, 40.0, 41.0]),
        (["$12"], [12.0]),
        (["$12", "40"], [12.0, 40.0]),
        (["12 kg", "40", "41"], [np.nan, 40.0, 41.0]),
    ],
)
def test_a_unit_of_few_new_numbers_is_not_left_out(cells: list[object], numbers: list[float]):
    columns = columns_of(pd.DataFrame({"price": [10.0, 20.0, 31.0, 44.0]}))
    read, notes = as_learned(pd.DataFrame({"price": pd.Series(cells, dtype=object)}), columns)
    np.testing.assert_array_equal(columns[0].numbers(read["price"]), numbers)
    card = card_of(Input(name="price", kind="number", dtype="float32"))
    feeds, said = feeds_of(card, {"price": cells})
    np.testing.assert_array_equal(feeds["price"].ravel(), numbers)
    assert len(notes) == len(said) >= 1


def card_of(taken: Input) -> Card:
    return Card(
        name="shop",
        run_id="shop-1",
        trained_on="shop.csv",
        task="regression",
        model="linear",
        inputs=(taken,),
        outputs=(Output(name="value", kind="values"),),
        opset=17,
    )


@pytest.mark.parametrize(
    ("unit", "cells", "rows"),
    [
        ("%", ["58 %", "0.58", "60%", 0.5, None], "rows 1, 3 (from 0)"),
        ("%", [58.0, np.nan, 60.0], "rows 0, 2 (from 0)"),
        ("k", ["1.2k", "950"], "row 1 (from 0)"),
        ("%", ["58 %", "n/a", "7%"], None),
        ("kg", ["58 kg", "60"], None),
        ("€", ["58", "60 €"], None),
    ],
)
def test_numbers_without_a_sign_that_changes_them_are_noted(
    unit: str, cells: list[object], rows: str | None
):
    columns = columns_of(pd.DataFrame({"part": [f"{number}{unit}" for number in (1.5, 20, 31)]}))
    read, notes = as_learned(pd.DataFrame({"part": cells}), columns)
    taken = Input(name="part", kind="number", dtype="float32", unit=unit)
    feeds, said = feeds_of(card_of(taken), {"part": cells})
    np.testing.assert_allclose(columns[0].numbers(read["part"]), feeds["part"].ravel())
    (parsed, of_script) = script_cells(taken, ["" if x is None else str(x) for x in cells])
    np.testing.assert_allclose(parsed, feeds["part"].ravel())
    assert notes == said == of_script
    assert [note.partition(", which")[0] for note in notes if "no " in note] == (
        [f"column 'part' has no {unit} in {rows}"] if rows else []
    )


@pytest.mark.parametrize(
    ("learned", "cells", "numbers", "note"),
    [
        (["2h 5m", "45m"], ["90", "1h"], [90, 3600], "in row 0 (from 0), seconds"),
        (["01:30:00", "0:10:05"], [90.0, "0:01:00"], [90, 60], "in row 0 (from 0), seconds"),
        (["14:30", "9:05"], ["214", "9:00"], [214, 32_400], "in row 0 (from 0), seconds"),
        (["1:32.5", "1:31.25"], ["92", "1:02:10"], [92, 3730], "in row 0 (from 0), seconds"),
        (["512 MB", "2 GB"], ["512", 7, None], [512, 7, np.nan], "in rows 0, 1 (from 0), bytes"),
        (["1.2k", "950", "3M"], ["512", "2k"], [512, 2000], None),
        (["47.3769° N", "46.25° S"], ["47.1", "8° S"], [47.1, -8], None),
    ],
)
def test_bare_numbers_among_durations_and_sizes_are_noted(
    learned: list[str], cells: list[object], numbers: list[float], note: str | None
):
    columns = columns_of(pd.DataFrame({"part": learned * 3}))
    read, notes = as_learned(pd.DataFrame({"part": cells}), columns)
    np.testing.assert_allclose(columns[0].numbers(read["part"]), numbers)
    form = columns[0].number_text
    taken = Input(name="part", kind="number", dtype="float32", notation=form.notation)
    feeds, said = feeds_of(card_of(taken), {"part": cells})
    np.testing.assert_allclose(feeds["part"].ravel(), numbers, rtol=1e-6)
    parsed, of_script = script_cells(taken, ["" if x is None else str(x) for x in cells])
    np.testing.assert_allclose(parsed, numbers)
    assert [text for text in notes if "no unit" in text] == [
        text for text in said if "no unit" in text
    ]
    assert len([text for text in of_script if "no unit" in text]) == (note is not None)
    if note is not None:
        rows, _, unit = note.rpartition(", ")
        [said_of_bare] = [text for text in notes if "no unit" in text]
        assert said_of_bare.startswith(f"column 'part' has no unit {rows}, which all")
        assert said_of_bare.endswith(f" {unit}")


def script_cells(taken: Input, texts: list[str]) -> tuple[np.ndarray, list[str]]:
    """Return what the script of a bundle reads in the cells of a column, and its notes."""
    text = script(taken, Output(name="value", kind="values"))
    _, defined = text.split("\nCARD = ", 1)
    imports = text.partition("import onnxruntime")[0]
    names: dict[str, Any] = {"CARD": {"inputs": []}, "__name__": "predict"}
    exec(imports + defined.partition("\n")[2], names)
    return names["cells_of"](taken.model_dump(), texts)


@pytest.mark.parametrize("cells", [["True", "maybe", "False"], [True, None, False]])
def test_true_and_false_are_numbers_where_training_had_them(cells: list[object]):
    columns = columns_of(pd.DataFrame({"flag": [True, False, True, True]}))
    read, notes = as_learned(pd.DataFrame({"flag": cells}), columns)
    np.testing.assert_array_equal(columns[0].numbers(read["flag"]), [1.0, np.nan, 0.0])
    assert any("missing in row 1 (from 0)" in note for note in notes)


def test_a_column_of_which_no_more_can_be_read_than_not_is_refused():
    columns = columns_of(trained())
    with pytest.raises(DataError, match=r"'price' held numbers .* row 0 \(from 0\) holds 'low'"):
        as_learned(trained().head(2).assign(price=["low", "12 €"]), columns)
    with pytest.raises(DataError, match="'day' held dates in the training data: numbers"):
        as_learned(trained().assign(day=[1, 2, 3, 4]), columns)


def test_a_category_that_only_one_model_knows_is_known():
    columns = [
        column
        for cities in (["Rome", "Oslo"], ["Bonn", "Bonn"])
        for column in columns_of(pd.DataFrame({"city": cities}))
    ]
    read, notes = as_learned(pd.DataFrame({"city": ["bonn", "Rome"]}), columns)
    assert (read["city"].tolist(), notes) == (["Bonn", "Rome"], [])

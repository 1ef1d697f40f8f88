from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow
import pytest
from pyarrow import parquet

from workbench.data import load, tables
from workbench.data.column_encoding import learn_column
from workbench.data.table_files import read_columns, read_noted_table, read_table
from workbench.data.tables import TableOptions, number_classes, read_targets
from workbench.foundation.errors import DataError, ExperimentError


def table(num_rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.normal(40, 12, num_rows)
    age[::10] = np.nan
    city = np.array(["Rome", "Oslo", "Bonn"], dtype=object)[rng.integers(0, 3, num_rows)]
    city[5] = None
    return pd.DataFrame(
        {
            "id": [f"row-{index}" for index in range(num_rows)],
            "age": age,
            "city": city,
            "member": rng.random(num_rows) > 0.5,
            "constant": 0.1,
            "price": rng.normal(1000, 100, num_rows),
            "label": rng.choice(["no", "yes", "perhaps"], num_rows, p=[0.6, 0.3, 0.1]),
        }
    )


def everything(split):
    return split.batch(np.arange(len(split)))


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet"])
def test_every_format_gives_the_same_numbers(tmp_path, ending):
    path, reference = tmp_path / f"table.{ending}", tmp_path / "reference.csv"
    table().to_csv(reference, index=False)
    if ending == "parquet":
        table().to_parquet(path)
    else:
        table().to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    loaded = load("table", {"path": str(path), "target": "label", "drop": ["id"]}, cache=tmp_path)
    expected = load(
        "table", {"path": str(reference), "target": "label", "drop": ["id"]}, cache=tmp_path
    )
    np.testing.assert_array_equal(everything(loaded.train)[0], everything(expected.train)[0])


def test_columns_are_encoded_with_what_train_tells(tmp_path):
    path = tmp_path / "table.csv"
    table().to_csv(path, index=False)
    loaded = load("table", {"path": str(path), "target": "label", "drop": ["id"]}, cache=tmp_path)
    inputs, targets = everything(loaded.train)
    # age and its mark, three cities and a missing one, member, constant, price
    assert loaded.input_shape == (9,)
    assert inputs.dtype == np.float32
    assert np.isfinite(inputs).all()
    np.testing.assert_allclose(inputs[:, [6, 8]].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(inputs[:, [6, 8]].std(axis=0), 1, atol=1e-4)
    np.testing.assert_allclose(inputs[:, 7], 0, atol=1e-12)
    assert set(np.unique(inputs[:, 1])) == {0, 1}
    assert (inputs[inputs[:, 1] == 1, 0] == 0).all()
    np.testing.assert_array_equal(inputs[:, 2:6].sum(axis=1), 1)
    assert loaded.class_names == ("no", "perhaps", "yes")
    shares = np.bincount(everything(loaded.validation)[1]) / np.bincount(
        np.concatenate([targets, everything(loaded.validation)[1]])
    )
    np.testing.assert_allclose(shares, 0.2, atol=0.03)


def test_many_categories_become_one_standardised_column_and_unseen_ones_its_mean(tmp_path):
    path = tmp_path / "table.csv"
    table().to_csv(path, index=False)
    loaded = load(
        "table",
        {
            "path": str(path),
            "target": "price",
            "drop": ["age", "city", "member", "constant", "label"],
        },
        cache=tmp_path,
    )
    assert loaded.input_shape == (1,)
    assert (everything(loaded.validation)[0] == 0).all()
    assert abs(everything(loaded.train)[0].std() - 1) < 1e-4


@pytest.mark.parametrize(
    ("values", "task", "num_outputs"),
    [
        (["a", "b"] * 20, "classification", 2),
        ([True, False] * 20, "classification", 2),
        ([3, 5, 10, 7] * 10, "classification", 4),
        (list(range(40)), "regression", 1),
        ([0.5, 1.5] * 20, "regression", 1),
    ],
)
def test_the_task_follows_from_the_target(tmp_path, values, task, num_outputs):
    path = tmp_path / "table.parquet"
    pd.DataFrame({"x": np.arange(40.0), "y": values}).to_parquet(path)
    loaded = load("table", {"path": str(path), "target": "y"}, cache=tmp_path)
    assert (loaded.task, loaded.num_outputs) == (task, num_outputs)


def test_classes_that_are_numbers_are_in_the_order_of_numbers(tmp_path):
    path = tmp_path / "table.csv"
    pd.DataFrame({"x": np.arange(40.0), "y": [3, 20, 10, 7] * 10}).to_csv(path, index=False)
    loaded = load("table", {"path": str(path), "target": "y"}, cache=tmp_path)
    assert loaded.class_names == ("3", "7", "10", "20")


def test_small_and_capital_letters_are_alike_in_the_order_of_classes():
    names, classes = number_classes(pd.Series(["Yes", "no", "Maybe", "no"]))
    assert (names, classes.tolist()) == (["Maybe", "no", "Yes"], [2, 1, 0, 1])


def test_a_regression_target_keeps_its_unit_when_told_to(tmp_path):
    path = tmp_path / "table.csv"
    table().to_csv(path, index=False)
    options = {"path": str(path), "target": "price", "drop": ["id"]}
    standardised = load("table", options, cache=tmp_path)
    kept = load("table", options | {"standardise_target": False}, cache=tmp_path)
    scaled, raw = everything(standardised.train)[1], everything(kept.train)[1]
    assert standardised.target_scale == pytest.approx(raw.std(), rel=1e-4)
    assert kept.target_scale == 1.0
    assert abs(scaled.mean()) < 1e-5
    assert 900 < raw.mean() < 1100
    np.testing.assert_allclose((raw - raw.mean()) / raw.std(), scaled, atol=1e-4)


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "table.csv"
    options = {"path": str(path), "target": "y"}
    for num_rows in (40, 60):
        pd.DataFrame({"x": np.arange(num_rows), "y": [0, 1] * (num_rows // 2)}).to_csv(
            path, index=False
        )
        loaded = load("table", options, cache=tmp_path)
        assert len(loaded.train) + len(loaded.validation) == num_rows


@pytest.mark.parametrize(
    ("options", "field", "part"),
    [
        (
            {"target": "lable"},
            "data.target",
            "allowed: id, age, city, member, constant, price, label",
        ),
        ({"target": "age"}, "data.target", "20 of 200 rows have no 'age'"),
        ({"target": "label", "drop": ["name"]}, "data.drop", "no column 'name'"),
        ({"target": "label", "task": "regression"}, "data.target", "is not numeric"),
        ({"target": "constant", "task": "classification"}, "data.target", "every row is of class"),
        (
            {"target": "label", "drop": ["id", "age", "city", "member", "constant", "price"]},
            "data.drop",
            "no column is left",
        ),
    ],
)
def test_a_table_that_does_not_fit_the_options_is_refused(tmp_path, options, field, part):
    path = tmp_path / "table.csv"
    table().to_csv(path, index=False)
    with pytest.raises(DataError) as caught:
        load("table", {"path": str(path), **options}, cache=tmp_path)
    assert caught.value.field == field
    assert part in str(caught.value)


def test_rows_without_a_target_are_left_out_where_that_is_chosen(tmp_path):
    frame = pd.DataFrame(
        {"x": range(40), "y": [None if row % 8 == 0 else f"{row + 0.5}" for row in range(40)]}
    )
    frame.loc[1, "y"] = "?"
    frame.to_csv(tmp_path / "t.csv", index=False)
    given = {"path": tmp_path / "t.csv", "target": "y"}
    with pytest.raises(
        DataError, match=r"6 of 40 rows have no 'y'.* set data\.drop_missing_targets to true"
    ):
        TableOptions(**given).check_source()
    options = TableOptions(**given, drop_missing_targets=True)
    options.check_source()
    loaded = options.load(seed=0, cache=tmp_path)
    assert (loaded.task, len(loaded.train) + len(loaded.validation)) == ("regression", 34)
    summary = options.summary()
    assert summary.num_rows == 34
    assert summary.notes[0] == "left out 6 of 40 rows without a 'y'"
    assert summary.target_range is not None
    assert summary.target_range[0] == 2.5
    assert len(options.reading(seed=0).columns) == 1


def test_a_summary_reads_the_file_once(tmp_path, monkeypatch):
    pd.DataFrame({"x": range(40), "y": [None, *range(39)]}).to_csv(tmp_path / "t.csv", index=False)
    read = []

    def count(path, *arguments, **options):
        read.append(path)
        return read_noted_table(path, *arguments, **options)

    monkeypatch.setattr(tables, "read_noted_table", count)
    options = TableOptions(path=tmp_path / "t.csv", target="y", drop_missing_targets=True)
    assert options.summary().num_rows == 39
    assert len(read) == 1


def test_an_infinite_number_is_told_with_the_file_the_column_and_the_row(tmp_path):
    path = tmp_path / "table.csv"
    pd.DataFrame({"x": [1.0, 2.0, np.inf, 3.0] * 5, "y": [0, 1] * 10}).to_csv(path, index=False)
    with pytest.raises(
        DataError, match=r"^data.path: the column 'x' is infinite in row 2, 6, 10, 14, 18"
    ):
        load("table", {"path": str(path), "target": "y"}, cache=tmp_path)
    left_out = {"path": str(path), "target": "y", "drop": ["x"]}
    with pytest.raises(DataError, match="no column is left"):
        load("table", left_out, cache=tmp_path)


def test_files_that_are_no_tables_are_refused(tmp_path):
    (tmp_path / "table.parquet").write_text("no table")
    (tmp_path / "table.xlsx").write_text("no table")
    (tmp_path / "empty.csv").write_text("")
    for name in ("table.parquet", "table.xlsx", "empty.csv", "missing.csv"):
        with pytest.raises(DataError) as caught:
            load("table", {"path": str(tmp_path / name), "target": "y"}, cache=tmp_path)
        assert caught.value.field == "data.path"
    with pytest.raises(ExperimentError) as refused:
        load("table", {"path": str(tmp_path / "empty.csv")})
    assert refused.value.field == "data.target"


def test_a_table_in_windows_1252_is_read_with_a_note(tmp_path):
    (tmp_path / "towns.csv").write_bytes("town,y\nK\u00f6ln,1\n".encode("latin-1"))
    read = read_noted_table(tmp_path / "towns.csv")
    assert read.table["town"].tolist() == ["K\u00f6ln"]
    assert "towns.csv is not UTF-8: it is read as Windows-1252" in read.notes[0]


def test_a_column_names_the_client_that_holds_a_row_and_is_no_input(tmp_path):
    rows, path = table(), tmp_path / "table.csv"
    rows["hospital"] = np.array(["north", "east", "west"], dtype=object)[np.arange(len(rows)) % 3]
    rows.to_csv(path, index=False)
    given = {"path": str(path), "target": "label", "validation_fraction": 0.25}
    loaded = load("table", {**given, "drop": ["city"], "client": "hospital"}, cache=tmp_path)
    without = load("table", {**given, "drop": ["city", "hospital"]}, cache=tmp_path)
    np.testing.assert_array_equal(everything(loaded.train)[0], everything(without.train)[0])
    assert loaded.owners is not None
    assert without.owners is None
    assert [len(part) for part in loaded.owners] == [len(loaded.train), len(loaded.validation)]
    held = np.bincount(np.concatenate(loaded.owners))
    assert held.tolist() == [67, 67, 66], "in the order of their names: east, north, west"

    with pytest.raises(DataError, match=r"no column 'clinic'") as caught:
        load("table", {**given, "client": "clinic"}, cache=tmp_path)
    assert caught.value.field == "data.client"
    with pytest.raises(DataError, match=r"1 of 200 rows have no 'city'") as caught:
        load("table", {**given, "client": "city"}, cache=tmp_path)
    assert caught.value.field == "data.client"


@pytest.mark.parametrize(
    ("file", "text"), [("mine.csv", "a|b\n1.5|2.5\n1|2\n"), ("mine.tsv", "a,b\n1.5,2.5\n1,2\n")]
)
def test_any_usual_separator_is_found(tmp_path, file, text):
    (tmp_path / file).write_text(text)
    assert read_table(tmp_path / file).to_dict("list") == {"a": [1.5, 1.0], "b": [2.5, 2.0]}


def test_a_table_with_semicolons_and_decimal_commas_is_read_as_one_with_commas_and_points(tmp_path):
    written = pd.DataFrame({"size, m2": np.arange(60) / 4, "town": ["Köln; Deutz", "Bonn"] * 30})
    written["price"] = written["size, m2"] * 2
    written.to_csv(tmp_path / "points.csv", index=False)
    written.to_csv(tmp_path / "commas.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig")
    written.to_csv(tmp_path / "packed.csv.gz", index=False, sep=";", decimal=",")
    tables = [
        load("table", {"path": str(tmp_path / name), "target": "price"}, cache=None)
        for name in ("points.csv", "commas.csv", "packed.csv.gz")
    ]
    assert [one.task for one in tables] == ["regression"] * 3
    for data in tables[1:]:
        for expected, read in zip(everything(tables[0].train), everything(data.train), strict=True):
            np.testing.assert_allclose(expected, read, rtol=1e-6)


@pytest.mark.parametrize("cell", ["?", "-", "none", "N/A", "NULL", "", "unknown"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_one_odd_cell_leaves_a_column_one_of_numbers(tmp_path, cell, ending):
    spend = np.random.default_rng(0).uniform(0, 40, 300).round(2)
    written = pd.Series(spend).astype(str)
    written[17] = cell
    frame = pd.DataFrame({"spend": written, "y": spend > 20})
    path = tmp_path / f"table.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    loaded = load("table", {"path": str(path), "target": "y"}, cache=tmp_path)
    inputs, targets = everything(loaded.train)
    known = ~inputs[:, 1:].any(axis=1)  # the mark of missing values, where train has the odd cell
    assert loaded.input_shape in ((1,), (2,))
    assert inputs[known & (targets == 1), 0].min() > inputs[known & (targets == 0), 0].max()


def test_thousands_separators_and_a_target_with_markers_are_read(tmp_path):
    path = tmp_path / "table.csv"
    sizes = np.arange(900, 1100)
    pd.DataFrame(
        {"size": [f"{size:,}" for size in sizes], "price": [f"{10 * size:,}" for size in sizes]}
    ).to_csv(path, index=False)
    loaded = load("table", {"path": str(path), "target": "price"}, cache=tmp_path)
    inputs, targets = everything(loaded.train)
    assert loaded.task == "regression"
    np.testing.assert_allclose(inputs[:, 0], targets, atol=1e-6)


def test_classes_keep_their_text_beside_markers():
    target = pd.Series(["0", "1", "?", "1"])
    assert read_targets(target, None).tolist()[:2] == ["0", "1"]
    assert read_targets(target, None).isna().tolist() == [False, False, True, False]
    assert read_targets(target, "regression").tolist()[:2] == [0.0, 1.0]
    assert read_targets(pd.Series(["a", "?"]), None).tolist() == ["a", "?"]


def test_a_repeated_name_of_a_column_is_refused_with_the_name(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,a,b,,,y\r\n" + "1,2,3,4,5,0\r\n1,2,3,4,5,1\r\n" * 10)
    with pytest.raises(
        DataError, match=r"^data.path: .* has more than one column named 'a'.* Rename or remove"
    ):
        TableOptions(path=path, target="y").check_source()
    path.write_text("a,a.1,b,,,y\r\n" + "1,2,3,4,5,0\r\n1,2,3,4,5,1\r\n" * 10)
    TableOptions(path=path, target="y").check_source()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b,y\n1,2,0,9\n" + "1,2,0\n" * 9, 2),
        ("a,b,y\n" + "row,1,2,0\n" * 9, 2),
        ("a,b,y\n1,2,0\n\n1,2,0,9\n", 4),
    ],
)
def test_a_row_with_more_fields_than_names_is_refused_with_its_line(tmp_path, text, line):
    path = tmp_path / "t.csv"
    path.write_text(text)
    for only in (None, "y") if line == 2 else (None,):
        with pytest.raises(
            DataError, match=rf"line {line} of .*t\.csv has 4 fields, and those before it have 3"
        ):
            read_table(path, only=only)


def test_a_parquet_file_with_a_repeated_name_is_refused_as_a_csv_is(tmp_path):
    path = tmp_path / "t.parquet"
    columns = [pyarrow.array(range(4)), pyarrow.array(range(4)), pyarrow.array([0, 1, 0, 1])]
    parquet.write_table(pyarrow.table(columns, names=["a", "a", "y"]), path)
    for read in (read_table, read_columns):
        with pytest.raises(
            DataError, match=r"has more than one column named 'a'.* Rename or remove"
        ):
            read(path)


def test_classes_that_are_whole_numbers_keep_their_names_beside_rows_without_a_target(tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": range(40), "y": [None, *["0", "1", "2"] * 13]}).to_csv(path, index=False)
    options = TableOptions(path=path, target="y", drop_missing_targets=True)
    assert options.load(seed=0, cache=tmp_path).class_names == ("0", "1", "2")
    assert options.summary().class_counts == {"0": 13, "1": 13, "2": 13}


def test_enormous_targets_stay_numbers_beside_rows_without_a_target(tmp_path):
    path = tmp_path / "t.csv"
    targets = [None, *(1e20 * number for number in range(1, 40))]
    pd.DataFrame({"x": range(40), "y": targets}).to_csv(path, index=False)
    summary = TableOptions(path=path, target="y", drop_missing_targets=True).summary()
    assert summary.class_counts is None
    assert summary.target_range == pytest.approx((1e20, 2e21, 3.9e21))


def written_in_german(path, shares, weights, prices):
    rows = [
        f"{share:.1f};{weight:.3f}".replace(".", ",") + f";{price:,}".replace(",", ".")
        for share, weight, price in zip(shares, weights, prices, strict=True)
    ]
    path.write_text("share;weight;price\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize("target", ["weight", "price"])
def test_one_column_with_decimal_commas_decides_what_the_others_of_its_file_mean(tmp_path, target):
    """Alone, 1,234 could be one thousand, and 1.200 beside 950 one and a fifth."""
    rng = np.random.default_rng(0)
    numbers = {
        "share": rng.uniform(0, 1, 60).round(1),
        "weight": rng.uniform(1, 9, 60).round(3),
        "price": rng.integers(800, 3000, 60),
    }
    written_in_german(tmp_path / "table.csv", *numbers.values())
    pd.DataFrame(numbers).to_csv(tmp_path / "points.csv", index=False)

    table_options = TableOptions(path=tmp_path / "table.csv", target=target, task="regression")
    expected = TableOptions(path=tmp_path / "points.csv", target=target, task="regression")

    read, plain = table_options.reading(seed=0), expected.reading(seed=0)
    assert read.target_mean == pytest.approx(plain.target_mean)
    assert read.target_scale == pytest.approx(plain.target_scale)
    for column, other in zip(read.columns, plain.columns, strict=True):
        assert (column.name, column.mean, column.deviation) == (
            other.name,
            pytest.approx(other.mean),
            pytest.approx(other.deviation),
        )
    notes = table_options.summary().notes
    assert "price has points between thousands, because other columns have decimal commas" in notes


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["1,234;a", "2,345;b"], [1.234, 2.345]),  # semicolons alone
        (["1,234;1.5", "2,345;2.5"], [1234, 2345]),  # points before decimals elsewhere
        (['1,234;"1,234,567"', '2,345;"2,000,000"'], [1234, 2345]),
    ],
)
def test_semicolons_between_columns_mean_decimal_commas_unless_another_column_says_no(
    tmp_path, rows, expected
):
    (tmp_path / "table.csv").write_text("y;other\n" + "\n".join(rows) + "\n")
    targets = read_targets(read_table(tmp_path / "table.csv")["y"], "regression")
    assert targets.tolist() == expected


def test_prices_with_commas_between_thousands_stay_thousands_in_a_table_with_commas(tmp_path):
    (tmp_path / "table.csv").write_text('y,other\n"1,234",3.5\n"2,345",4.5\n')
    assert read_targets(read_table(tmp_path / "table.csv")["y"], "regression").tolist() == [
        1234,
        2345,
    ]


def test_a_whole_number_is_the_same_category_with_and_without_a_point():
    learnt = learn_column(pd.Series([1, 2, 2], dtype="category", name="k"), max_categories=9)
    for same in ([2.0, 1.0], [2, 1], ["2", "1"]):
        assert learnt.encode(pd.Series(same, name="k")).tolist() == [[1, 0], [0, 1]]
    for truth in (
        pd.Series([True, True], name="k"),
        pd.Series(np.array([True, True], object), name="k"),
    ):
        assert learnt.encode(truth).tolist() == [[0, 0], [0, 0]]
    assert learnt.encode(pd.Series([1.5, 3.0], name="k")).tolist() == [[0, 0], [0, 0]]


def test_dates_that_can_be_read_in_two_ways_need_their_order(tmp_path):
    rows = [f"{month:02d}/{day:02d}/2024,{month}.5" for month in (1, 2, 3) for day in (4, 5, 6)]
    (tmp_path / "table.csv").write_text("day,y\n" + "\n".join(rows) + "\n")
    given = {"path": tmp_path / "table.csv", "target": "y", "task": "regression"}
    with pytest.raises(DataError, match=r"Set data\.dates, such as to day-first") as caught:
        TableOptions(**given).summary()
    assert caught.value.field == "data.dates"
    for order, form in (("month-first", "%m/%d/%Y"), ("day-first", "%d/%m/%Y")):
        (day,) = TableOptions(**given, dates=order).reading(seed=0).columns
        assert day.date_format == form

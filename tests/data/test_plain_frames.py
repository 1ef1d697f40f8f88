"""Every type of pandas and Arrow is used as it is meant, converted with a note, or refused by
name.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from workbench.data import load, summary_of
from workbench.data.column_encoding import learn_column, text_form_of
from workbench.data.plain_frames import plain_frame
from workbench.data.table_files import read_columns, read_table
from workbench.experiment import Component
from workbench.foundation.errors import DataError
from workbench.runs.automl.task_detection import read_problem

DAYS = [dt.date(2024, 1, 1), dt.date(2024, 6, 1), None]
MOMENTS = [dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 6, 1), None]
IN_ROME = dt.timezone(dt.timedelta(hours=2))

# By name: the values, the kind that they are read as, their numbers where they are some, and a
# note.
CASES: dict[str, tuple[Any, str, list[float] | None, str]] = {
    "Decimal": (
        [Decimal("1.5"), Decimal("-2"), None],
        "number",
        [1.5, -2, np.nan],
        "decimals, which",
    ),
    "Fraction": (
        [Fraction(1, 4), 2, None],
        "number",
        [0.25, 2, np.nan],
        "fractions, which are read",
    ),
    "mixed numbers": (np.array([1, 2.5, None], dtype=object), "number", [1, 2.5, np.nan], ""),
    "numpy scalars": (
        np.array([np.int8(1), np.float32(0.5), True], dtype=object),
        "number",
        [1, 0.5, 1],
        "",
    ),
    "truth with gaps": ([True, False, None], "number", [1, 0, np.nan], ""),
    "nothing": ([None, None, None], "number", [np.nan] * 3, ""),
    "whole beyond int64": (
        [2**70, 2**69, None],
        "number",
        [2.0**70, 2.0**69, np.nan],
        "beyond 2^53",
    ),
    "whole beyond floats": (
        np.array([2**53 + 2, 1, 0]),
        "number",
        [2.0**53 + 2, 1, 0],
        "beyond 2^53",
    ),
    "float16": (np.array([1, 2.5, np.nan], dtype=np.float16), "number", [1, 2.5, np.nan], ""),
    "longdouble": (np.array([1, 2.5, np.nan], dtype=np.longdouble), "number", [1, 2.5, np.nan], ""),
    "Int64": (pd.array([1, None, 3], dtype="Int64"), "number", [1, np.nan, 3], ""),
    "UInt8": (pd.array([1, None, 3], dtype="UInt8"), "number", [1, np.nan, 3], ""),
    "Float32": (pd.array([1, None, 2.5], dtype="Float32"), "number", [1, np.nan, 2.5], ""),
    "boolean": (pd.array([True, None, False], dtype="boolean"), "number", [1, np.nan, 0], ""),
    "Sparse": (pd.arrays.SparseArray([0.0, 0.0, 2.0]), "number", [0, 0, 2], ""),
    "time of day": (
        [dt.time(1), dt.time(0, 0, 30, 500_000), None],
        "number",
        [3600, 30.5, np.nan],
        "since",
    ),
    "timedelta": (
        [dt.timedelta(minutes=1), dt.timedelta(1), None],
        "number",
        [60, 86400, np.nan],
        "",
    ),
    "date": (DAYS, "time", None, ""),
    "datetime": (MOMENTS, "time", None, ""),
    "with a zone": (
        [dt.datetime(2024, 1, 1, tzinfo=IN_ROME), dt.datetime(2024, 6, 1, tzinfo=IN_ROME), None],
        "time",
        None,
        "",
    ),
    "Period": (pd.period_range("2024-01", periods=3, freq="M"), "time", None, "their first moment"),
    "Period objects": (
        [pd.Period("2024-01"), pd.Period("2024-02"), None],
        "time",
        None,
        "first moment",
    ),
    "Interval": (pd.interval_range(0, 3), "category", None, "intervals, which are read as text"),
    "Categorical": (pd.Categorical(["a", "b", None]), "category", None, ""),
    "ordered Categorical": (
        pd.Categorical(["low", "high", "low"], ["low", "high"], ordered=True),
        "category",
        None,
        "",
    ),
    "Categorical of numbers": (pd.Categorical([1, 2, 1]), "category", None, ""),
    "bytes": ([b"a", b"b", None], "category", None, "bytes, which are read as UTF-8"),
    "UUID": ([uuid.UUID(int=1), uuid.UUID(int=2), None], "category", None, ""),
    "text and numbers": (["a", 1, 2.5], "category", None, ""),
    "text and dates": (["a", dt.date(2024, 1, 1), None], "category", None, "date, str, which"),
}
ARROW: dict[str, tuple[pa.DataType, list[Any], str, list[float] | None]] = {
    "int8": (pa.int8(), [1, None, 3], "number", [1, np.nan, 3]),
    "uint64": (pa.uint64(), [1, 2, 3], "number", [1, 2, 3]),
    "float": (pa.float32(), [1.0, None, 2.5], "number", [1, np.nan, 2.5]),
    "half": (pa.float16(), [np.float16(1), None, np.float16(2.5)], "number", [1, np.nan, 2.5]),
    "bool": (pa.bool_(), [True, None, False], "number", [1, np.nan, 0]),
    "decimal32": (
        pa.decimal32(5, 2),
        [Decimal("1.5"), None, Decimal("2")],
        "number",
        [1.5, np.nan, 2],
    ),
    "decimal128": (
        pa.decimal128(9, 2),
        [Decimal("1.5"), None, Decimal("2")],
        "number",
        [1.5, np.nan, 2],
    ),
    "decimal256": (
        pa.decimal256(50, 2),
        [Decimal("1.5"), None, Decimal("2")],
        "number",
        [1.5, np.nan, 2],
    ),
    "time32": (pa.time32("s"), [dt.time(1), None, dt.time(0, 1)], "number", [3600, np.nan, 60]),
    "time64": (pa.time64("us"), [dt.time(1), None, dt.time(0, 1)], "number", [3600, np.nan, 60]),
    "duration": (
        pa.duration("ms"),
        [dt.timedelta(seconds=1), None, dt.timedelta(1)],
        "number",
        [1, np.nan, 86400],
    ),
    "null": (pa.null(), [None, None, None], "number", [np.nan] * 3),
    "date32": (pa.date32(), DAYS, "time", None),
    "date64": (pa.date64(), DAYS, "time", None),
    "timestamp": (pa.timestamp("us"), MOMENTS, "time", None),
    "timestamp with a zone": (pa.timestamp("ns", "Europe/Rome"), MOMENTS, "time", None),
    "string": (pa.string(), ["a", "b", None], "category", None),
    "large_string": (pa.large_string(), ["a", "b", None], "category", None),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None], "category", None),
    "binary": (pa.binary(), [b"a", b"b", None], "category", None),
}


def check(column: pd.Series, kind: str, numbers: list[float] | None) -> None:
    """Check what training makes of a column.

    Its kind, its numbers, and whether they can be encoded.
    """
    learnt = learn_column(column, max_categories=10, form=text_form_of(column))
    assert learnt.kind == kind
    encoded = learnt.encode(column)
    assert np.isfinite(encoded).all()
    if numbers is None:
        return
    decoded = encoded[:, 0] * learnt.deviation + learnt.mean
    known = ~np.isnan(numbers)
    assert decoded[known] == pytest.approx(np.array(numbers)[known], rel=1e-6)
    assert learnt.marks_missing == (not known.all())


@pytest.mark.parametrize("name", CASES)
def test_values_of_every_type_are_used_or_converted_with_a_note(name: str) -> None:
    values, kind, numbers, note = CASES[name]
    frame = pd.DataFrame({"x": pd.Series(values)})
    plain, notes = plain_frame(frame)
    check(plain["x"], kind, numbers)
    assert len(notes) == bool(note), notes
    assert note in "".join(notes)


@pytest.mark.parametrize("name", ARROW)
@pytest.mark.parametrize("is_file", [False, True])
def test_every_type_of_arrow_is_used_in_memory_and_in_a_file(
    name: str, is_file: bool, tmp_path: Path
) -> None:
    of, values, kind, numbers = ARROW[name]
    table = pa.table({"x": pa.array(values, type=of)})
    if is_file:
        if name == "half":
            pytest.skip("parquet files of this version hold no half precision")
        parquet.write_table(table, tmp_path / "t.parquet")
        column = read_table(tmp_path / "t.parquet")["x"]
    else:
        column = plain_frame(table.to_pandas(types_mapper=pd.ArrowDtype)).table["x"]
    check(column, kind, numbers)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([[1, 2], [3], None], "lists, of several values"),
        ([{"a": 1}, {}, None], "dicts, of several values"),
        ([np.ones(2), np.ones(3), None], "ndarrays, of several values"),
        ([(1, 2), (3, 4), None], "tuples, of several values"),
        (np.array([1j, 2, 3]), "complex numbers"),
        (np.array([1j, 2j, None], dtype=object), "complex numbers"),
        ([b"\xff\xfe", b"a", None], r"bytes that are no text \(row 0\)"),
        (pd.array([[1], [2], None], dtype=pd.ArrowDtype(pa.list_(pa.int8()))), "lists"),
        (
            pd.array([{"a": 1}, None, None], dtype=pd.ArrowDtype(pa.struct({"a": pa.int8()}))),
            "dicts",
        ),
    ],
)
def test_what_is_no_single_value_is_refused_by_name(values: Any, what: str) -> None:
    with pytest.raises(DataError, match=f"the column 'x' holds {what}"):
        plain_frame(pd.DataFrame({"x": pd.Series(values)}))


@pytest.mark.parametrize(
    ("index", "names", "note"),
    [
        (None, ["x"], ""),
        ([7, 3, 5], ["x"], ""),
        (pd.Index([7, 3, 5], name="customer"), ["customer", "x"], "used as the column customer"),
        (pd.date_range("2024-01-01", periods=3), ["index", "x"], "used as the column index"),
        (
            pd.MultiIndex.from_product([["a"], [1, 2, 3]], names=["town", "day"]),
            ["town", "day", "x"],
            "used as the columns town, day",
        ),
        (
            pd.Index([0.5, 1.5, 2.5], name="x"),
            ["x"],
            "not used, because a column has the same name",
        ),
    ],
)
def test_an_index_that_is_content_becomes_columns(
    index: Any, names: list[str], note: str, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=index)
    plain, notes = plain_frame(frame)
    assert list(plain.columns) == names
    assert note in "".join(notes)
    assert plain["x"].tolist() == [1, 2, 3]
    if "x" not in frame.index.names:  # which parquet files cannot hold
        frame.to_parquet(tmp_path / "t.parquet")
        assert sorted(read_table(tmp_path / "t.parquet").columns) == sorted(names)
        assert sorted(read_columns(tmp_path / "t.parquet")) == sorted(names)


def test_a_decimal_column_predicts_its_target(tmp_path: Path) -> None:
    prices = [Decimal(row) / 8 for row in range(200)]
    frame = pd.DataFrame({"price": prices, "y": [float(price) * 2 for price in prices]}).sample(
        frac=1, random_state=0, ignore_index=True
    )
    problem = read_problem(frame, "y")
    assert list(problem.samples.columns) == ["price"]
    assert any("price holds decimals, which are read as numbers" in note for note in problem.notes)
    parquet.write_table(
        pa.table({"price": pa.array(frame["price"], pa.decimal128(9, 3)), "y": frame["y"]}),
        tmp_path / "t.parquet",
    )
    options = {"path": str(tmp_path / "t.parquet"), "target": "y"}
    assert load("table", options).input_shape == (1,)
    summary = summary_of(Component(name="table", options=options))
    assert summary is not None
    assert any("price holds decimals" in note for note in summary.notes)


def test_rows_in_another_order_than_their_targets_are_refused() -> None:
    samples = pd.DataFrame({"x": np.arange(40.0)})
    targets = pd.Series(np.arange(40.0)).sample(frac=1, random_state=0)
    with pytest.raises(DataError, match="the same names in different orders"):
        read_problem((samples, targets))
    assert len(read_problem((samples, targets.reset_index(drop=True)))) == 40


def test_the_last_rows_can_be_held_out(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=100)
    pd.DataFrame({"day": days, "y": np.arange(100.0)}).to_csv(tmp_path / "t.csv", index=False)
    options = {"path": str(tmp_path / "t.csv"), "target": "y", "standardise_target": False}
    datasets = load("table", {**options, "validation": "last"})
    assert datasets.validation.batch(np.arange(20))[1].tolist() == list(range(80, 100))
    assert datasets.train.batch(np.arange(80))[1].tolist() == list(range(80))
    at_random = summary_of(Component(name="table", options=options))
    last = summary_of(Component(name="table", options={**options, "validation": "last"}))
    assert at_random is not None
    assert last is not None
    assert any("sorted by day" in note for note in at_random.notes)
    assert not any("sorted by" in note for note in last.notes)

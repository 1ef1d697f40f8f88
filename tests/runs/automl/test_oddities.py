"""Tables as people have them: each is read as it is meant, or an error says what to do.

Expected values are computed from the numbers that a table was written from, not by the readers.
"""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import sqlite3
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.data.column_encoding import learn_column
from workbench.data.dates import as_times
from workbench.data.number_texts import NumberText
from workbench.data.table_sources import read_source
from workbench.data.total_rows import without_total
from workbench.deploy.predict_script import samples_in
from workbench.foundation.errors import WorkbenchError
from workbench.runs.automl.task_detection import Problem, read_problem

NUM = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=NUM).round(3)
BIG = (X * 100_000).round(2)
LABELS = np.where(X + RNG.normal(size=NUM) * 0.3 > 0, "yes", "no")
TOWNS = RNG.choice(["Z\u00fcrich", "K\u00f6ln", "Gen\u00e8ve"], NUM)
DAYS = [
    datetime.datetime(2024, 1, 1) + datetime.timedelta(days=int(day))
    for day in RNG.permutation(NUM)
]


def table(**columns: Sequence[Any]) -> str:
    return written({**columns, "y": LABELS})


def written(columns: dict[str, Sequence[Any]], sign: str = ",") -> str:
    lines = [sign.join(columns)]
    lines += [sign.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def quoted(values: Sequence[Any]) -> list[str]:
    return [f'"{value}"' for value in values]


def numbers(problem: Problem, name: str) -> np.ndarray:
    """Return the numbers that a model learns from, without standardisation."""
    values = problem.samples[name]
    form = problem.text_forms.get(name)
    if isinstance(form, NumberText):
        return form.parse_all(values)
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def days_of(problem: Problem, name: str) -> list[datetime.datetime]:
    form = problem.text_forms.get(name, "ISO8601")
    assert isinstance(form, str)
    times_ns = as_times(problem.samples[name], form)
    return [datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=ns / 1e9) for ns in times_ns]


def read(path: Path, name: str, content: str | bytes, **options: Any) -> Problem:
    file = path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_problem(file, "y", **options)


# Files of text: what they contain, and the numbers of the column x.
TEXT_FILES: dict[str, tuple[str, str | bytes]] = {
    "UTF-8 with a mark": ("a.csv", table(town=TOWNS, x=X).encode("utf-8-sig")),
    "Windows-1252": ("a.csv", table(town=TOWNS, x=X).encode("cp1252")),
    "UTF-16": ("a.csv", table(town=TOWNS, x=X).encode("utf-16")),
    "UTF-16 without a mark": ("a.csv", table(town=TOWNS, x=X).encode("utf-16-le")),
    "UTF-32": ("a.csv", table(town=TOWNS, x=X).encode("utf-32")),
    "semicolons": ("a.csv", written({"town": TOWNS, "x": X, "y": LABELS}, ";")),
    "tabs in .csv": ("a.csv", written({"town": TOWNS, "x": X, "y": LABELS}, "\t")),
    "vertical bars": ("a.csv", written({"town": TOWNS, "x": X, "y": LABELS}, "|")),
    ".txt": ("a.txt", written({"town": TOWNS, "x": X, "y": LABELS}, "\t")),
    "sep= above": ("a.csv", "sep=;\n" + written({"town": TOWNS, "x": X, "y": LABELS}, ";")),
    "spaces behind commas": ("a.csv", table(town=TOWNS, x=X).replace(",", ", ")),
    "compressed": ("a.csv.gz", gzip.compress(table(town=TOWNS, x=X).encode("cp1252"), mtime=0)),
    "capital ending": ("A.CSV", table(town=TOWNS, x=X)),
    "title above": ("a.csv", "Report 2024\n\n" + table(town=TOWNS, x=X)),
    "title with commas": ("a.csv", "Report 2024,,\n,,\n" + table(town=TOWNS, x=X)),
    "title with commas above semicolons": (
        "a.csv",
        "Report, 2024, all shops, by town\n" + written({"town": TOWNS, "x": X, "y": LABELS}, ";"),
    ),
    "title with as many commas as decimals": (
        "a.csv",
        "Report, 2024\n" + written({"x": [str(v).replace(".", ",") for v in X], "y": LABELS}, ";"),
    ),
    "lists with semicolons": (
        "a.csv",
        table(tags=["p;q"] * (NUM // 2) + ["q;r"] * (NUM // 2), x=X),
    ),
    "lines of a bank above": (
        "a.csv",
        "Kontoauszug;;;\nIBAN;DE12;;\n\n"
        + written(
            {"who": ["M\u00fcller Gr\u00f6\u00dfe"] * NUM, "x": X, "u": X * 2, "y": LABELS}, ";"
        ),
    ),
    "comments above": ("a.csv", "# exported\n# by me, today\n" + table(town=TOWNS, x=X)),
    "blank lines": ("a.csv", "\n\n" + table(town=TOWNS, x=X).replace("\n", "\n\n")),
    "trailing separators": ("a.csv", table(town=TOWNS, x=X).replace("\n", ",\n")),
    "trailing below header": (
        "a.csv",
        table(town=TOWNS, x=X).replace("\n", ",\n").replace(",\n", "\n", 1),
    ),
    "units below header": ("a.csv", table(town=TOWNS, x=X).replace("\n", "\n,cm,\n", 1)),
    "spaces in names": ("a.csv", table(town=TOWNS, x=X).replace("town,x,y", " town , x, y ")),
    "total below": ("a.csv", table(town=TOWNS, x=X) + f"Total,{X.sum():.3f},\n"),
    "newlines in cells": ("a.csv", table(town=quoted([f'a ""b""\n{t}' for t in TOWNS]), x=X)),
    "decimal comma": (
        "a.csv",
        written({"x": [str(v).replace(".", ",") for v in X], "y": LABELS}, ";"),
    ),
    "percent": ("a.csv", table(x=[f"{v}%" for v in X])),
    "currency": ("a.csv", table(x=[f"CHF {v}" for v in X])),
    "unit": ("a.csv", table(x=[f"{v} kg" for v in X])),
    "parentheses": ("a.csv", table(x=[f"({-v})" if v < 0 else v for v in X])),
    "minus behind": ("a.csv", table(x=[f"{-v}-" if v < 0 else v for v in X])),
    "long minus": ("a.csv", table(x=[str(v).replace("-", "\u2212") for v in X])),
}


@pytest.mark.parametrize("case", TEXT_FILES)
def test_a_text_file_gives_the_numbers_it_was_written_from(tmp_path: Path, case: str) -> None:
    problem = read(tmp_path, *TEXT_FILES[case])
    np.testing.assert_allclose(numbers(problem, "x"), X)
    assert np.array(problem.class_names)[problem.targets].tolist() == LABELS.tolist()
    if "town" in problem.samples and case != "newlines in cells":
        assert problem.samples["town"].tolist() == TOWNS.tolist()


@pytest.mark.parametrize(
    ("mark", "sign"),
    [(",", "."), ("'", "."), ("\u2019", "."), (" ", "."), ("\u00a0", ","), ("\u202f", ",")],
)
def test_thousands_are_separated_in_any_language(tmp_path: Path, mark: str, sign: str) -> None:
    cells = [
        f"{value:,.2f}".replace(",", "#").replace(".", sign).replace("#", mark) for value in BIG
    ]
    problem = read(tmp_path, "a.csv", table(x=quoted(cells)))
    np.testing.assert_allclose(numbers(problem, "x"), BIG)


MISSING = ["NA", "-", "?", " ", "n/a", "--", "\u2014", "none", "NULL", ".", "k.A.", "unknown"]


@pytest.mark.parametrize("marker", [*MISSING, "#N/A", "#DIV/0!", "#VALUE!"])
def test_markers_among_numbers_are_missing(tmp_path: Path, marker: str) -> None:
    cells = [marker if place % 10 == 0 else value for place, value in enumerate(X)]
    values = numbers(read(tmp_path, "a.csv", table(x=cells)), "x")
    expected = np.where(np.arange(NUM) % 10 == 0, np.nan, X)
    np.testing.assert_array_equal(values, expected)


def test_codes_with_leading_zeros_are_text(tmp_path: Path) -> None:
    codes = [f"{RNG.integers(0, 5):05d}" for _ in range(NUM)]
    problem = read(tmp_path, "a.csv", table(zip=codes, x=X))
    assert problem.samples["zip"].tolist() == codes
    assert "zip is read as text, because it has leading zeros" in "\n".join(problem.notes)


TRUTH = [("true", "false"), ("TRUE", "FALSE"), ("yes", "no"), ("Ja", "Nein"), ("1", "0")]


@pytest.mark.parametrize("spelling", [*TRUTH, ("WAHR", "FALSCH"), ("on", "off"), ("t", "f")])
def test_truth_values_of_any_spelling_are_two_values(
    tmp_path: Path, spelling: tuple[str, str]
) -> None:
    truth = RNG.random(NUM) < 0.5
    problem = read(tmp_path, "a.csv", table(b=np.where(truth, *spelling), x=X))
    column = learn_column(problem.samples["b"], max_categories=10)
    encoded = column.encode(problem.samples["b"])[:, 0]
    assert len(set(encoded)) == 2
    assert abs(np.corrcoef(encoded, truth)[0, 1]) > 0.999


DATES = {
    "%d/%m/%Y": "28/01/2024",
    "%m/%d/%Y": "01/28/2024",
    "%Y-%m-%d": "2024-01-28",
    "%Y/%m/%d": "2024/01/28",
    "%d.%m.%Y": "28.01.2024",
    "%d.%m.%y": "28.01.24",
    "%y-%m-%d": "24-01-28",
    "%d %B %Y": "28 January 2024",
    "%b %d, %Y": "Jan 28, 2024",
    "%m/%d/%Y %I:%M %p": "with am and pm",
    "%Y-%m-%dT%H:%M:%SZ": "with a zone",
}


@pytest.mark.parametrize("form", DATES)
def test_dates_of_one_form_are_read_as_they_were_written(tmp_path: Path, form: str) -> None:
    problem = read(tmp_path, "a.csv", table(day=quoted([d.strftime(form) for d in DAYS]), x=X))
    assert days_of(problem, "day") == DAYS


def test_dates_of_several_zones_are_one_time_line(tmp_path: Path) -> None:
    hours = [(0, "Z"), (2, "+02:00"), (-5, "-05:00")]
    cells = [
        (day + datetime.timedelta(hours=hours[place % 3][0])).isoformat() + hours[place % 3][1]
        for place, day in enumerate(DAYS)
    ]
    assert days_of(read(tmp_path, "a.csv", table(day=cells, x=X)), "day") == DAYS


EARLY = [
    datetime.datetime(2024, int(month), int(day)) for month, day in RNG.integers(1, 13, (NUM, 2))
]


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%d/%m/%y", "%m/%d/%Y %H:%M"])
def test_dates_that_can_be_read_in_two_ways_are_asked_about(tmp_path: Path, form: str) -> None:
    content = table(day=[day.strftime(form) for day in EARLY], x=X)
    with pytest.raises(
        WorkbenchError, match=r"can be read in 2 ways: .*--dates day-first"
    ) as error:
        read(tmp_path, "a.csv", content)
    assert error.value.field == "dates"
    order: Any = "day-first" if form.startswith("%d") else "month-first"
    assert days_of(read(tmp_path, "a.csv", content, dates=order), "day") == EARLY
    assert "day" not in read(tmp_path, "a.csv", content, drop=["day"]).samples


def test_another_column_shows_the_order_of_dates(tmp_path: Path) -> None:
    content = table(
        first=[day.strftime("%m/%d/%Y") for day in DAYS],
        day=[day.strftime("%m/%d/%Y") for day in EARLY],
    )
    assert days_of(read(tmp_path, "a.csv", content), "day") == EARLY


def test_an_age_among_texts_is_a_number_and_no_group(tmp_path: Path) -> None:
    ages = np.random.default_rng(1).integers(18, 60, NUM)
    cells = ["prefer not to say" if place % 9 == 0 else age for place, age in enumerate(ages)]
    problem = read(tmp_path, "a.csv", table(age=cells, x=X))
    assert problem.roles.group is None
    expected = np.where(np.arange(NUM) % 9 == 0, np.nan, ages)
    np.testing.assert_array_equal(numbers(problem, "age"), expected)


def test_classes_that_differ_in_capitals_or_spaces_are_one(tmp_path: Path) -> None:
    spelt = [[f"{y}", f"{y.upper()} ", y][place % 3] for place, y in enumerate(LABELS)]
    problem = read(tmp_path, "a.csv", written({"x": X, "y": spelt}))
    assert problem.class_names == ("no", "yes")
    assert np.array(problem.class_names)[problem.targets].tolist() == LABELS.tolist()


def test_folders_of_images_and_texts_are_samples_with_classes(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    for name, colour in (("cat", (200, 0, 0)), ("dog", (0, 0, 200))):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "mails" / name).mkdir(parents=True)
        for number in range(12):
            pillow.new("RGB", (20, 30), colour).save(tmp_path / f"photos/{name}/{number}.png")
            (tmp_path / f"mails/{name}/{number}.txt").write_text(f"a {name} of {number}")
    photos = read_problem(tmp_path / "photos")
    assert (photos.kind, photos.class_names, photos.are_files) == ("images", ("cat", "dog"), True)
    assert photos.samples.shape == (24, 64, 64, 3)
    red = photos.samples[:, 0, 0, 0]
    assert red.tolist() == [200] * 12 + [0] * 12
    mails = read_problem(str(tmp_path / "mails"))
    assert (mails.kind, mails.class_names) == ("texts", ("cat", "dog"))
    assert mails.samples[0] == "a cat of 0"
    with pytest.raises(WorkbenchError, match="the classes are the names of the folders"):
        read_problem(tmp_path / "photos", "y")


def test_one_column_of_texts_is_learnt_from_alone(tmp_path: Path) -> None:
    messages = [f"my {y} is about a thing of {place}" for place, y in enumerate(LABELS)]
    problem = read(tmp_path, "a.csv", table(text=messages, x=X), text_column="text")
    assert (problem.kind, problem.text_columns) == ("texts", ("text",))
    assert list(problem.samples) == messages


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": X}).assign(**columns, y=LABELS)


DECIMALS = [decimal.Decimal(str(value)) for value in X]
FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "Decimal": lambda: frame(k=DECIMALS),
    "Decimal with gaps": lambda: frame(k=[None if v == 0 else v for v in DECIMALS]),
    "sparse": lambda: frame(k=pd.arrays.SparseArray(X)),
    "nullable": lambda: frame(k=pd.array(X, dtype="Float64")),
    "object": lambda: frame(k=pd.Series(list(X), dtype=object)),
    "texts": lambda: frame(k=[str(value) for value in X]),
    "named index": lambda: frame().set_index(pd.Index(X, name="k")),
    "several levels": lambda: frame().set_index(
        pd.MultiIndex.from_arrays([TOWNS, X], names=["town", "k"])
    ),
    "names of several levels": lambda: frame(k=X).set_axis(
        pd.MultiIndex.from_tuples([("x", ""), ("k", ""), ("y", "")]), axis=1
    ),
}


@pytest.mark.parametrize("case", FRAMES)
def test_columns_of_any_type_are_the_numbers_they_hold(case: str) -> None:
    problem = read_problem(FRAMES[case](), "y")
    np.testing.assert_allclose(numbers(problem, "k"), X)


def test_columns_of_arrow_and_its_tables_are_read() -> None:
    arrow = pytest.importorskip("pyarrow")
    typed = frame(k=pd.array(list(X), dtype=pd.ArrowDtype(arrow.float64())))
    np.testing.assert_allclose(numbers(read_problem(typed, "y"), "k"), X)
    np.testing.assert_allclose(numbers(read_problem(arrow.Table.from_pandas(frame()), "y"), "x"), X)


def test_frames_of_polars_are_read() -> None:
    polars = pytest.importorskip("polars")
    given = polars.DataFrame({"x": X, "y": LABELS.tolist()})
    for frame in (given, given.lazy()):
        np.testing.assert_allclose(numbers(read_problem(frame, "y"), "x"), X)


def test_rows_and_columns_of_python_are_read() -> None:
    rows = [{"x": x, "y": y} for x, y in zip(X, LABELS, strict=True)]
    for given in (rows, {"x": list(X), "y": list(LABELS)}):
        np.testing.assert_allclose(numbers(read_problem(given, "y"), "x"), X)


def test_periods_are_their_first_moment() -> None:
    months = pd.Series(pd.to_datetime(DAYS)).dt.to_period("M")
    expected = [day.replace(day=1) for day in DAYS]
    assert days_of(read_problem(frame(k=months), "y"), "k") == expected


def test_an_index_is_used_or_a_note_says_that_it_is_not() -> None:
    shuffled = read_problem(frame().sample(frac=1, random_state=0), "y")
    assert any(note.startswith("the index is not used") for note in shuffled.notes)
    named = read_problem(frame().set_index(pd.Index(TOWNS, name="town")), "y")
    assert "the index is used as the column town" in named.notes
    assert not any("index" in note for note in read_problem(frame(), "y").notes)


def test_intervals_and_categories_keep_their_values() -> None:
    cut = pd.cut(X, 4)
    problem = read_problem(frame(k=cut, c=pd.Categorical(TOWNS)), "y")
    assert problem.samples["k"].astype(str).tolist() == [str(interval) for interval in cut]
    assert problem.samples["c"].tolist() == TOWNS.tolist()


class Place:
    """A shape, as geopandas has them."""

    __geo_interface__ = {"type": "Point"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1, 2]] * NUM, "lists, of several values each"),
        ([{"a": 1}] * NUM, "dicts"),
        ([Place()] * NUM, "shapes"),
        ([1j] * NUM, "complex numbers"),
        ([b"\xff\xfe"] * NUM, "bytes that are no text"),
    ],
)
def test_columns_that_cannot_be_learnt_from_say_so_and_can_be_dropped(
    values: list[Any], expected: str
) -> None:
    with pytest.raises(WorkbenchError, match=f"'k' holds {expected}"):
        read_problem(frame(k=pd.Series(values, dtype=object)), "y")
    left = read_problem(frame(k=pd.Series(values, dtype=object)), "y", drop=["k"])
    assert list(left.samples.columns) == ["x"]


JSON: dict[str, Any] = {
    "records": [{"x": x, "y": y} for x, y in zip(X, LABELS, strict=True)],
    "columns": {"x": list(X), "y": list(LABELS)},
    "wrapped": {"data": [{"x": x, "y": y} for x, y in zip(X, LABELS, strict=True)], "page": 1},
    "split": {"columns": ["x", "y"], "data": [[x, y] for x, y in zip(X, LABELS, strict=True)]},
    "by row": json.loads(frame().to_json()),
}


@pytest.mark.parametrize("case", JSON)
def test_any_usual_form_of_json_is_read(tmp_path: Path, case: str) -> None:
    problem = read(tmp_path, "a.json", json.dumps(JSON[case]))
    np.testing.assert_allclose(numbers(problem, "x"), X)
    assert list(problem.samples.columns) == ["x"]


def test_records_in_records_and_different_keys_become_columns(tmp_path: Path) -> None:
    nested = [{"size": {"x": x, "w": 2 * x}, "y": y} for x, y in zip(X, LABELS, strict=True)]
    problem = read(tmp_path, "a.json", json.dumps(nested))
    np.testing.assert_allclose(numbers(problem, "size.w"), 2 * X)
    lines = [
        json.dumps({"x" if place % 2 else "z": x, "y": y})
        for place, (x, y) in enumerate(zip(X, LABELS, strict=True))
    ]
    for name in ("a.jsonl", "b.json"):
        problem = read(tmp_path, name, "\n".join(lines))
        np.testing.assert_array_equal(
            numbers(problem, "x"), np.where(np.arange(NUM) % 2, X, np.nan)
        )


def book(path: Path, change: Callable[[Any], None], rows: list[list[Any]] | None = None) -> Path:
    """Write a spreadsheet with the columns town, x and y, and change its first sheet."""
    openpyxl = pytest.importorskip("openpyxl")
    made = openpyxl.Workbook()
    default = [[str(t), float(x), str(y)] for t, x, y in zip(TOWNS, X, LABELS, strict=True)]
    for row in [["town", "x", "y"], *(rows or default)]:
        made.active.append(row)
    change(made)
    made.save(path / "a.xlsx")
    return path / "a.xlsx"


def hide_another(made: Any) -> None:
    sheet = made.create_sheet("Lists")
    sheet.append(["a", "b"])
    sheet.append([1, 2])
    sheet.sheet_state = "hidden"


def put_title(made: Any) -> None:
    made.active.insert_rows(1, 2)
    made.active["A1"] = "Report"
    made.active.merge_cells("A1:C1")


def store_as_text(made: Any) -> None:
    for (cell,) in made.active["B2" : f"B{NUM + 1}"]:
        cell.value = str(cell.value)


@pytest.mark.parametrize("change", [hide_another, put_title, store_as_text])
def test_a_spreadsheet_gives_the_numbers_in_it(tmp_path: Path, change: Any) -> None:
    problem = read_problem(book(tmp_path, change), "y")
    np.testing.assert_allclose(numbers(problem, "x"), X)
    assert problem.samples["town"].tolist() == TOWNS.tolist()


def test_merged_cells_all_have_their_value(tmp_path: Path) -> None:
    def merge(made: Any) -> None:
        for row in range(2, 40, 2):
            made.active.merge_cells(f"A{row}:A{row + 1}")

    problem = read_problem(book(tmp_path, merge), "y")
    expected = [TOWNS[place - place % 2] if place < 38 else TOWNS[place] for place in range(NUM)]
    assert problem.samples["town"].tolist() == expected


def test_formulas_without_results_are_an_error(tmp_path: Path) -> None:
    def compute(made: Any) -> None:
        for row in range(2, NUM + 2):
            made.active[f"B{row}"] = f"=LEN(A{row})"

    with pytest.raises(WorkbenchError, match=r"x of a\.xlsx has formulas, .* Open it in Excel"):
        read_problem(book(tmp_path, compute), "y")


def test_several_files_are_one_table(tmp_path: Path) -> None:
    half = NUM // 2
    parts = {
        "part-0.csv": written({"x": X[:half], "y": LABELS[:half]}),
        "part-1.csv": written(
            {"y": LABELS[half:], "x": [str(v).replace(".", ",") for v in X[half:]]}, ";"
        ),
    }
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as archive:
        for name, content in parts.items():
            (tmp_path / "folder" / name).write_text(content)
            archive.writestr(name, content)
    for source in (tmp_path / "folder", tmp_path / "parts.zip"):
        problem = read_problem(source, "y")
        np.testing.assert_allclose(numbers(problem, "x"), X)
        assert any("60 rows come from 2 files" in note for note in problem.notes)


def test_one_of_several_tables_in_an_archive_is_chosen_by_its_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", table(x=X))
        archive.writestr("b.csv", "p,q\n1,2\n")
    np.testing.assert_allclose(numbers(read_problem(f"{tmp_path / 'a.zip'}#a.csv", "y"), "x"), X)
    with pytest.raises(WorkbenchError, match=r"2 tables with different columns.*a\.zip#a\.csv"):
        read_problem(tmp_path / "a.zip", "y")


def test_bytes_of_a_database_can_be_dropped(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        database.execute("CREATE TABLE t (k, x, y)")
        rows = [(b"\xff\xfe", float(x), str(y)) for x, y in zip(X, LABELS, strict=True)]
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    database.close()
    problem = read_problem(tmp_path / "a.sqlite", "y", drop=["k"])
    np.testing.assert_allclose(numbers(problem, "x"), X)


@pytest.mark.parametrize("name", ["gr\u00f6\u00dfe", "\u540d\u524d", "\U0001f321 temp", "2024"])
def test_columns_may_have_any_name(tmp_path: Path, name: str) -> None:
    np.testing.assert_allclose(numbers(read(tmp_path, "a.csv", table(**{name: X})), name), X)


def test_accents_of_a_name_may_be_written_in_two_ways(tmp_path: Path) -> None:
    problem = read(
        tmp_path, "a.csv", table(**{"gro\u0308\u00dfe": X, "z": X}), drop=["gr\u00f6\u00dfe"]
    )
    assert list(problem.samples.columns) == ["z"]


def test_numbers_may_be_names_of_columns() -> None:
    given = pd.DataFrame({0: X, 2024: 2 * X, 7: LABELS})
    for target in (7, "7"):
        np.testing.assert_allclose(numbers(read_problem(given, target), "2024"), 2 * X)


def test_a_target_may_have_gaps_and_a_class_of_one_row() -> None:
    gaps = frame().assign(y=[None if place % 4 == 0 else y for place, y in enumerate(LABELS)])
    assert len(read_problem(gaps, "y")) == NUM * 3 // 4
    rare = frame().assign(y=["rare", *LABELS[1:]])
    assert read_problem(rare, "y").class_names == ("no", "yes")


def test_infinite_numbers_count_as_missing_and_are_said(tmp_path: Path) -> None:
    cells = ["inf", "-inf", "Infinity", "1e400", *X[4:]]
    problem = read(tmp_path, "a.csv", table(x=cells, z=["inf", *X[1:]], town=TOWNS))
    np.testing.assert_allclose(numbers(problem, "x"), [*[np.nan] * 4, *X[4:]])
    assert "infinite numbers count as missing: x (4 rows), z (1 row)" in problem.notes


@pytest.mark.parametrize("cell", ["12 \u20ac", "12 kg", "about 12"])
def test_a_target_of_numbers_names_the_cell_that_makes_it_classes(cell: str) -> None:
    amounts = [cell if place == 41 else str(value) for place, value in enumerate(BIG)]
    with pytest.raises(WorkbenchError, match=rf"[Rr]ow 41 \(from 0\) holds '{cell}'") as error:
        read_problem(frame().assign(y=amounts), "y")
    assert error.value.field == "target"
    assert str(error.value.next_step).startswith("To have a number predicted, ")
    several = [cell if place == 41 else str(place % 9) for place in range(NUM)]
    problem = read_problem(frame().assign(y=several), "y")
    assert any(f"ow 41 (from 0) holds {cell!r}" in note for note in problem.notes)


def test_infinite_numbers_above_a_total_cause_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = read(tmp_path, "a.csv", table(x=["inf", *X[1:]]) + f"Total,{X.sum():.3f}\n")
    assert len(problem) == NUM


def test_words_for_a_missing_number_are_read_even_if_training_had_none() -> None:
    column = learn_column(pd.Series(X, name="x"), max_categories=9)
    given = pd.Series(["unknown", "k.A.", "1.5"], name="x")
    np.testing.assert_array_equal(column.numbers(given), [np.nan, np.nan, 1.5])


REFUSALS: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("a.csv", "", r"a\.csv is empty"),
    "blank": ("a.csv", "\n\n", r"a\.csv is empty"),
    "header only": ("a.csv", "x,y\n", "0 samples .* are too few"),
    "one row": ("a.csv", "x,y\n1,no\n", "1 samples .* are too few"),
    "repeated name": ("a.csv", "x,x,y\n1,2,no\n", "more than one column named 'x'"),
    "ragged row": ("a.csv", table(x=X) + "1,2,3\n", "line 62 .* has 3 fields"),
    "header of two rows": (
        "a.csv",
        "size,,y\nw,h,\n" + "1.5,2.5,no\n" * 9,
        "header of a.csv seems to have two rows",
    ),
    "no header": ("a.csv", table(x=X).split("\n", 1)[1], "there is no column 'y'"),
    "one class": ("a.csv", "x,y\n" + "1.5,no\n" * NUM, "is 'no' in every sample"),
    "gzip": (
        "a.csv",
        gzip.compress(b"x,y\n", mtime=0),
        r"compressed with gzip.*Rename it to \.csv\.gz",
    ),
    "spreadsheet": ("a.csv", b"PK\x03\x04\0\0", r"Rename it to \.xlsx"),
    "no spreadsheet": (
        "a.xlsx",
        table(x=X),
        r"not a spreadsheet\. Rename it to \.csv",
    ),
    "old spreadsheet": ("a.xls", b"\xd0\xcf", r"Save it as \.xlsx or \.csv"),
    "Cyrillic": (
        "a.csv",
        "\u0433\u043e\u0440\u043e\u0434,y\n".encode("cp1251"),
        "Save it as UTF-8",
    ),
    "not gzip": ("a.csv.gz", table(x=X), "Not a gzipped file"),
    "unknown ending": ("a.dat", table(x=X), r"rename it to \.csv or \.txt"),
    "no records": ("a.jsonl", "1\n2\n", "each row must be a record"),
    "no database": ("a.db", "no database" * 99, "SQLite says"),
    "statistics": ("a.sav", "x", "pass a data frame"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_read_says_what_to_do(tmp_path: Path, case: str) -> None:
    *given, expected = REFUSALS[case]
    with pytest.raises(WorkbenchError, match=expected) as error:
        read(tmp_path, *given)
    assert ".." not in str(error.value)
    assert error.value.next_step or error.value.allowed


def test_a_total_also_counts_what_is_missing_above() -> None:
    values = np.arange(100.0, 160.0)
    cells = [str(value) for value in values]
    cells[7] = "-"
    table = pd.DataFrame({"town": ["Bern"] * 60 + ["Total"], "x": [*cells, str(values.sum())]})
    rows, notes = without_total(table)
    assert (len(rows), notes) == (
        60,
        ["the last row is not used, because it sums up the others ('Total')"],
    )
    far = table.assign(x=[*cells, "130.5"]).replace({"town": {"Total": "Summerton"}})
    assert without_total(far)[1] == []


SALES = [12.0, 40.0, 41.0, 17.0, 25.0]


@pytest.mark.parametrize(
    ("ends", "num_rows", "part"),
    [
        ([("Total", 135.0)], 5, "the last row is not used"),
        ([("Total", 135.0), ("Average", 27.0)], 5, "the last 2 rows are not used"),
        ([("Total", 400.0)], 5, "the last row is not used"),  # of rows that were filtered out
        ([("Total", 50.0)], 6, "the last row says 'Total', but it is neither"),
        ([("Average", 27.0), ("Lyon", 30.0)], 7, None),
        ([("Totality", 135.0)], 6, None),
    ],
)
def test_rows_of_totals_at_the_end_are_left_out_or_said_at_every_door(
    ends: list[tuple[str, float]], num_rows: int, part: str | None
) -> None:
    rows = [*zip("abcde", SALES, strict=True), *ends]
    table = pd.DataFrame(rows, columns=["town", "sales"])
    kept, notes = without_total(table)
    assert len(kept) == num_rows
    written = [{"town": town, "sales": str(number)} for town, number in rows]
    samples, said = samples_in(written, {"sales": float})
    assert (len(samples), said) == (num_rows, notes)
    assert [note for note in notes if part is not None and note.startswith(part)] == notes


def test_a_word_that_other_rows_have_is_no_total() -> None:
    table = pd.DataFrame({"kind": ["Sum", "A", "B", "A", "Sum"], "x": [1.0, 2.0, 3.0, 4.0, 10.0]})
    assert (len(without_total(table)[0]), without_total(table)[1]) == (5, [])


def test_rows_that_are_shorter_than_the_header_are_said(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("Offers\n\na,b,c\n1,2,3\n\n4,5\n6\n7,8,\n" + "1,2,3\n" * 20)
    read = read_source(path)
    assert "rows 1, 2 (from 0) have fewer cells than the header: the others count as missing" in (
        read.notes
    )
    assert read.table["c"].isna().to_numpy().nonzero()[0].tolist() == [1, 2, 3]
    path.write_text("a,b,c\n1,2,3\n7,8,\n" + "1,2,3\n" * 20)
    assert read_source(path).notes == ()

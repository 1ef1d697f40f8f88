"""The same rows come from every format, and what cannot be read says what to do."""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from workbench.data.table_files import read_columns, read_table
from workbench.data.table_sources import name_of_source, read_source
from workbench.foundation.errors import ArgumentError, DataError

ROWS = pd.DataFrame(
    {"size": [1.5, 2.0, 3.25], "town": ["Bern", "Genève", None], "code": ["007", "010", "099"]}
)


def as_spreadsheet(path: Path) -> Path:
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(path / "rows.xlsx") as book:
        ROWS.to_excel(book, sheet_name="rows", index=False)
        pd.DataFrame().to_excel(book, sheet_name="Sheet2", index=False)
    return path / "rows.xlsx"


def as_lines(path: Path) -> Path:
    ROWS.to_json(path / "rows.jsonl", orient="records", lines=True)
    return path / "rows.jsonl"


def as_json(path: Path) -> Path:
    ROWS.to_json(path / "rows.json", orient="records")
    return path / "rows.json"


def as_feather(path: Path) -> Path:
    ROWS.to_feather(path / "rows.feather")
    return path / "rows.feather"


def as_database(path: Path) -> Path:
    with sqlite3.connect(path / "rows.sqlite") as database:
        ROWS.to_sql("rows", database, index=False)
    database.close()
    return path / "rows.sqlite"


def as_archive(path: Path) -> Path:
    with zipfile.ZipFile(path / "rows.zip", "w") as archive:
        archive.write(as_feather(path), "inside/rows.feather")
        archive.writestr("__MACOSX/._rows.feather", b"")
        archive.writestr("README.txt", b"about")
    return path / "rows.zip"


def as_folder(path: Path) -> Path:
    (path / "many").mkdir()
    ROWS[:2].to_feather(path / "many" / "1.feather")
    ROWS[2:].reset_index(drop=True).to_json(path / "many" / "2.jsonl", orient="records", lines=True)
    return path / "many"


FORMS = [as_spreadsheet, as_lines, as_json, as_feather, as_database, as_archive, as_folder]


@pytest.mark.parametrize("write", FORMS, ids=lambda write: write.__name__)
def test_every_format_gives_the_same_rows(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    read = read_source(write(tmp_path)).table
    assert list(read.columns) == ["size", "town", "code"]
    assert read["size"].tolist() == [1.5, 2.0, 3.25]
    assert read["town"].isna().tolist() == [False, False, True]
    assert read["town"].tolist()[:2] == ["Bern", "Genève"]
    assert read["code"].astype(str).tolist() == ["007", "010", "099"]


@pytest.mark.parametrize("write", FORMS[:5], ids=lambda write: write.__name__)
def test_a_file_of_every_format_gives_its_columns_and_a_part_of_its_rows(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    path = write(tmp_path)
    assert read_columns(path) == ["size", "town", "code"]
    assert read_table(path, 2, only="size").to_dict("list") == {"size": [1.5, 2.0]}


def test_a_sheet_or_a_table_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = as_database(tmp_path)
    with sqlite3.connect(path) as database:
        pd.DataFrame({'a "b"': [1]}).to_sql("my table", database, index=False)
    database.close()
    assert read_source(f"{path}#my table").table.to_dict("list") == {'a "b"': [1]}
    assert read_columns(Path(f"{path}#rows")) == ["size", "town", "code"]
    with pytest.raises(DataError, match=r"has 2 tables.*my table, rows.*rows\.sqlite#my table"):
        read_source(path)
    with pytest.raises(DataError, match="has no table 'other'"):
        read_source(f"{path}#other")


def test_a_query_selects_from_a_database(tmp_path: Path) -> None:
    address = f"sqlite:///{as_database(tmp_path)}"
    read = read_source(address, query="SELECT code, size FROM rows WHERE size > 1.6").table
    assert read.to_dict("list") == {"code": ["010", "099"], "size": [2.0, 3.25]}


def test_the_password_of_a_database_is_never_shown() -> None:
    address = "postgresql+psycopg://me:hunter2@127.0.0.1:1/shop"
    with pytest.raises(DataError) as raised:
        read_source(address, query="SELECT 1")
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert name_of_source(address) is None


def test_what_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "broken.zip").write_bytes(b"no archive")
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "mixed" / "2.csv").write_text("a,c\n1,2\n")
    wrong = {
        "empty": "has no table",
        "broken.sqlite": "cannot be read as a table",
        "broken.zip": "Extract it",
        "mixed": r"2\.csv and 1\.csv have different columns: b, c",
    }
    for name, message in wrong.items():
        with pytest.raises(DataError, match=message):
            read_source(tmp_path / name)
    with pytest.raises(ArgumentError, match="needs a query"):
        read_source("sqlite:///x.sqlite")
    with pytest.raises(ArgumentError, match="only a database takes a query"):
        read_source(tmp_path / "mixed", query="SELECT 1")
    with pytest.raises(DataError, match="did not answer the query: no such table: nowhere"):
        read_source(f"sqlite:///{as_database(tmp_path)}", query="SELECT * FROM nowhere")

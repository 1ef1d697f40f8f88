"""Reads tables that are neither text nor Parquet: spreadsheets, JSON, Feather and SQLite files.

A spreadsheet and a database may hold several tables. `sales.xlsx#2024` is the sheet 2024, and
`shop.sqlite#orders` the table orders.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.data.number_texts import MISSING_TEXTS, has_leading_zeros
from workbench.data.text_layout import plain_name
from workbench.foundation.errors import DataError, MissingDependencyError, install_command
from workbench.foundation.text_tables import check_repeated

if TYPE_CHECKING:
    import pandas as pd

_PART = "#"
NOTES = "notes_of_format"
"""The attribute of a table with what the user should know about its file."""
_ERRORS = frozenset({"#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!"})
_TEXT_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")


@dataclass(frozen=True)
class Request:
    """What to read.

    Attributes:
        path: The file, without the part.
        part: The sheet or the table in it, or None for the only one.
        num_rows: Maximum number of rows, or None for all.
        columns: The only columns to read, or None for all.
    """

    path: Path
    part: str | None = None
    num_rows: int | None = None
    columns: Sequence[str] | None = None


def split_part(path: Path) -> tuple[Path, str | None]:
    """Return a file, and which of its tables is meant.

    Args:
        path: A path such as sales.xlsx#2024. A file whose own name contains # is left as it is.
    """
    name, sign, part = path.name.rpartition(_PART)
    if not sign or path.exists():
        return path, None
    return path.with_name(name), part


def is_known(path: Path) -> bool:
    """Return whether a file has the ending of one of these formats."""
    return split_part(path)[0].suffix.lower() in FORMATS


def read(path: Path, num_rows: int | None, columns: Sequence[str] | None) -> pd.DataFrame:
    """Read a table.

    Args:
        path: A file with the ending of one of `FORMATS`, perhaps with a part.
        num_rows: Maximum number of rows, or None for all.
        columns: The only columns to read, or None for all.

    Raises:
        DataError: If the file holds several tables and the path does not say which.
        MissingDependencyError: If a package that reads the format is not installed.
    """
    file, part = split_part(path)
    return FORMATS[file.suffix.lower()](Request(file, part, num_rows, columns))


def _read_spreadsheet(wanted: Request) -> pd.DataFrame:
    if not zipfile.is_zipfile(wanted.path):
        raise ValueError(
            "it is not a spreadsheet. Rename it to .csv if it is text, and save it without a"
            " password if it has one"
        )
    try:
        import openpyxl
    except ImportError as error:
        raise MissingDependencyError(
            f"{wanted.path.name} is a spreadsheet, which openpyxl reads",
            next_step=f"Install it: {install_command('tables')}",
        ) from error
    try:
        with contextlib.closing(openpyxl.load_workbook(wanted.path, data_only=True)) as book:
            sheets = {sheet.title: sheet for sheet in book.worksheets}
            # New books have empty sheets, and hidden ones hold lists for menus. Nobody means these.
            usual = [
                name
                for name, sheet in sheets.items()
                if sheet.sheet_state == "visible" and _has_rows(sheet)
            ]
            name = _chosen(wanted, usual or list(sheets)[:1], list(sheets), "sheet")
            table = _table_in(sheets[name], wanted)
    except KeyError as error:
        raise ValueError(f"it is an archive, but not a spreadsheet: {error}") from error
    empty = [str(column) for column, values in table.items() if values.isna().all()]
    if empty and len(table):
        _check_computed(wanted.path, name, empty)
    return table


def _has_rows(sheet: Any) -> bool:
    """Return whether a sheet has a header and a row."""
    filled = (row for row in sheet.iter_rows(values_only=True) if _is_filled(row))
    return len(list(itertools.islice(filled, 2))) == 2


def _is_filled(row: Sequence[Any]) -> bool:
    return any(cell is not None for cell in row)


def _check_computed(path: Path, sheet: str, columns: Sequence[str]) -> None:
    """Reject columns of formulas whose results are not in the file.

    Programs that write spreadsheets do not compute them.
    """
    import openpyxl

    with contextlib.closing(openpyxl.load_workbook(path, read_only=True)) as book:
        places: dict[int, str] = {}
        for row in book[sheet].iter_rows(values_only=True):
            if not places and {_name_in(cell) for cell in row} >= set(columns):
                places = {
                    place: _name_in(cell)
                    for place, cell in enumerate(row)
                    if _name_in(cell) in columns
                }
            for place, column in places.items():
                cell = row[place]
                if isinstance(cell, str) and cell.startswith("="):
                    raise DataError(
                        f"{column} of {path.name} has formulas, and their results are not stored",
                        field="data.path",
                        next_step="Open it in Excel or LibreOffice and save it.",
                    )


def _table_in(sheet: Any, wanted: Request) -> pd.DataFrame:
    """Return the table in a sheet, from the header on."""
    import pandas as pd

    num_merged = _fill_merged(sheet)
    rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    filled = [place for place, row in enumerate(rows) if _is_filled(row)]
    if not filled:
        return pd.DataFrame()
    header, titles = _header_in(rows, filled)
    names = [_name_in(cell) for cell in rows[header]]
    body = rows[header + 1 :][: wanted.num_rows]
    kept = [
        place
        for place, name in enumerate(names)
        if name or any(row[place] is not None for row in body)
    ]
    check_repeated(wanted.path, [names[place] for place in kept], field="data.path")
    table = pd.DataFrame(
        [[_known(row[place]) for place in kept] for row in body],
        columns=[names[place] or f"Unnamed: {place}" for place in kept],
        dtype=object,
    ).dropna(how="all", ignore_index=True)
    notes = []
    if titles:
        lines = "row is" if len(titles) == 1 else f"{len(titles)} rows are"
        notes.append(f"the first {lines} above the table and skipped: {titles[0]!r}")
    if num_merged:
        notes.append("the cells of a merged area all have its value")
    for column in table.columns:
        if _is_of_text_numbers(table[column]):
            table[column] = pd.to_numeric(table[column])
            notes.append(f"{column} is read as numbers, although its cells are text")
    table = table.infer_objects()
    if wanted.columns is not None:
        table = table[list(wanted.columns)]
    table.attrs[NOTES] = tuple(notes)
    return table


def _header_in(rows: Sequence[Sequence[Any]], filled: Sequence[int]) -> tuple[int, list[str]]:
    """Return the place of the header among the rows, and the titles above it.

    A title is alone in its row.

    Args:
        rows: The rows.
        filled: The places of those that are not empty.
    """
    titles = []
    for place in filled:
        known = [cell for cell in rows[place] if cell is not None]
        if len(known) > 1:
            return place, titles
        titles.append(str(known[0]))
    return filled[0], []


def _fill_merged(sheet: Any) -> int:
    """Write the value of each merged area below the first row into all of its cells."""
    areas = list(sheet.merged_cells.ranges)
    num_filled = 0
    for area in areas:
        value = sheet.cell(area.min_row, area.min_col).value
        is_title = area.min_row == area.max_row
        sheet.unmerge_cells(str(area))
        if is_title or value is None:
            continue
        for row, column in itertools.product(
            range(area.min_row, area.max_row + 1), range(area.min_col, area.max_col + 1)
        ):
            sheet.cell(row, column).value = value
        num_filled += 1
    return num_filled


def _name_in(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return "" if cell is None else plain_name(str(cell))


def _known(cell: Any) -> Any:
    """Return the value of a cell, with None for the errors of formulas, such as #DIV/0!."""
    if isinstance(cell, str) and (
        (cell.startswith("#") and cell in _ERRORS) or cell in MISSING_TEXTS
    ):
        return None
    return cell


def _is_of_text_numbers(values: pd.Series) -> bool:
    """Return whether all values are text, and each is a number without leading zeros."""
    known = values.dropna()
    if not len(known) or not all(isinstance(value, str) for value in known):
        return False
    return all(map(_TEXT_NUMBER.fullmatch, known)) and not has_leading_zeros(known)


def _read_database(wanted: Request) -> pd.DataFrame:
    import pandas as pd

    address = f"{wanted.path.resolve().as_uri()}?mode=ro"  # a reader must not create the file
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
            query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
            names = [name for (name,) in database.execute(query)]
            table = _chosen(wanted, names, names, "table")
            columns = "*"
            if wanted.columns is not None:
                columns = ", ".join(map(_quoted, wanted.columns))
            command = f"SELECT {columns} FROM {_quoted(table)}"
            if wanted.num_rows is not None:
                command += f" LIMIT {wanted.num_rows:d}"
            return pd.read_sql_query(command, database)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"SQLite says: {error}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _chosen(wanted: Request, usual: Sequence[str], names: Sequence[str], kind: str) -> str:
    """Return the table that the path means.

    Args:
        wanted: The file and the part.
        usual: The tables to choose from if the path does not say which.
        names: All tables of the file.
        kind: What a table is called in this format.
    """
    if wanted.part in names:
        return str(wanted.part)
    if wanted.part is None and len(usual) == 1:
        return usual[0]
    problem = f"{wanted.path.name} has {len(usual) or 'no'} {kind}s"
    if wanted.part is not None:
        problem = f"{wanted.path.name} has no {kind} {wanted.part!r}"
    step = "Is this the right file? Write a row into it."
    if usual:
        step = f"Say which one, such as {wanted.path.name}{_PART}{usual[0]}"
    raise DataError(problem, field="data.path", allowed=list(names) or None, next_step=step)


def _read_json_lines(wanted: Request) -> pd.DataFrame:
    records = []
    with wanted.path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if wanted.num_rows is not None and len(records) > wanted.num_rows:
                break
            try:
                records += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from error
    return _table_of(records, wanted)


def _read_json(wanted: Request) -> pd.DataFrame:
    """Read a list of records, an object with one, or an object with a list for each column."""
    import pandas as pd

    text = wanted.path.read_text(encoding="utf-8-sig")
    try:
        content = json.loads(text)
    except ValueError as error:
        if "Extra data" in str(error):  # it has a record in each line
            return _read_json_lines(wanted)
        raise
    if isinstance(content, dict):
        if set(content) >= {"columns", "data"} and isinstance(content["columns"], list):
            content = [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]
        elif lists := [value for value in content.values() if _are_records(value)]:
            if len(lists) > 1:
                raise ValueError(f"it has {len(lists)} lists of records. Write one of them alone")
            content = lists[0]
            if all("properties" in record and "geometry" in record for record in content):
                content = [record["properties"] for record in content]  # GeoJSON
    if isinstance(content, list):
        return _table_of(content, wanted)
    table = pd.DataFrame(content)
    if list(map(str, table.index)) == list(map(str, range(len(table)))):
        table = table.reset_index(drop=True)
    return _only(table, wanted)


def _are_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _table_of(records: Sequence[Any], wanted: Request) -> pd.DataFrame:
    """Return records as a table. A record in a record gives columns such as size.width."""
    import pandas as pd

    if not records:
        raise ValueError("it has no records")
    if not all(isinstance(record, dict) for record in records):
        raise ValueError('each row must be a record, such as {"size": 1.5, "town": "Bern"}')
    if any(isinstance(value, dict) for record in records for value in record.values()):
        return _only(pd.json_normalize(list(records)), wanted)
    return _only(pd.DataFrame(records), wanted)


def _read_feather(wanted: Request) -> pd.DataFrame:
    import pandas as pd

    columns = None if wanted.columns is None else list(wanted.columns)
    return _first(pd.read_feather(wanted.path, columns=columns), wanted)


def _only(read: pd.DataFrame, wanted: Request) -> pd.DataFrame:
    if wanted.columns is not None:
        read = read.reindex(columns=list(wanted.columns))
    return _first(read, wanted)


def _first(read: pd.DataFrame, wanted: Request) -> pd.DataFrame:
    if wanted.num_rows is None:
        return read
    return read.head(wanted.num_rows)


FORMATS: dict[str, Callable[[Request], pd.DataFrame]] = {
    ".xlsx": _read_spreadsheet,
    ".xlsm": _read_spreadsheet,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".feather": _read_feather,
    ".arrow": _read_feather,
    ".sqlite": _read_database,
    ".sqlite3": _read_database,
    ".db": _read_database,
}
"""What reads a table, by the ending of its file."""

"""Reads tables that are neither text nor Parquet: spreadsheets, JSON, Feather and SQLite files.

A spreadsheet and a database may hold several tables. `sales.xlsx#2024` is the sheet 2024, and
`shop.sqlite#orders` the table orders.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.foundation.errors import DataError, MissingDependencyError, install_command

if TYPE_CHECKING:
    import pandas as pd

_PART = "#"


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
    import pandas as pd

    try:
        with pd.ExcelFile(wanted.path) as book:
            names = [str(name) for name in book.sheet_names]
            filled = names
            if wanted.part is None:  # new books have empty sheets, which nobody means
                filled = [name for name in names if not pd.read_excel(book, name, nrows=1).empty]
            sheet = _chosen(wanted, filled or names[:1], names, "sheet")
            # As objects, so that a cell with the text 007 stays a text.
            cells = pd.read_excel(
                book, sheet, nrows=wanted.num_rows, usecols=wanted.columns, dtype=object
            )
            return cells.infer_objects()
    except ImportError as error:
        raise MissingDependencyError(
            f"{wanted.path.name} is a spreadsheet, which openpyxl reads",
            next_step=f"Install it: {install_command('tables')}",
        ) from error


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
    problem = f"{wanted.path.name} has {len(usual)} {kind}s"
    if wanted.part is not None:
        problem = f"{wanted.path.name} has no {kind} {wanted.part!r}"
    step = "Write a row into it."
    if usual:
        step = f"Say which one, such as {wanted.path.name}{_PART}{usual[0]}"
    raise DataError(problem, field="data.path", allowed=list(names) or None, next_step=step)


def _read_json_lines(wanted: Request) -> pd.DataFrame:
    import pandas as pd

    records = []
    with wanted.path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if wanted.num_rows is not None and len(records) > wanted.num_rows:
                break
            try:
                records += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from error
    return _only(pd.DataFrame(records), wanted)


def _read_json(wanted: Request) -> pd.DataFrame:
    """Read a list of records, or an object with a list for each column."""
    import pandas as pd

    content = json.loads(wanted.path.read_text(encoding="utf-8-sig"))
    return _only(pd.DataFrame(content), wanted)


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

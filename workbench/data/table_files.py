"""Reads the files of tables: the names of their columns, and their rows.

`columns` decides what the values mean.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from workbench.data.cache import file_stamp
from workbench.data.number_texts import DECIMAL_COMMA, may_be_thousands, shows_decimal_commas
from workbench.data.options import existing_path
from workbench.data.plain_frames import PlainFrame, plain_frame
from workbench.data.table_formats import FORMATS, is_known, read, split_part
from workbench.foundation.errors import DataError, MissingDependencyError, WorkbenchError
from workbench.foundation.files import encoding_in_words
from workbench.foundation.refusals import closest
from workbench.foundation.text_tables import (
    PARQUET_ENDINGS,
    SIGNS,
    check_repeated,
    check_separator,
    separator_in,
)

if TYPE_CHECKING:
    import pandas as pd

TABLE_ENDINGS = (*SIGNS, *PARQUET_ENDINGS, *FORMATS)
"""The endings of the files that `read_table` can read."""

_NUM_FIELDS = re.compile(
    r"Expected (?P<expected>\d+) fields in line (?P<line>\d+), saw (?P<found>\d+)"
)
"""How pandas reports that a row has more fields than the rows before it."""
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
"""How pandas calls an index without a name in a parquet file."""
_INDEX = "index"
_MAX_ROWS_OF_COMMAS, _NUM_CELLS_OF_COMMAS = 1_000, 200_000
"""How many of the first rows, and of their cells, show whether a file writes decimal commas."""


def read_table(path: Path, num_rows: int | None = None, *, only: str | None = None) -> pd.DataFrame:
    """Read a table by the ending of its file, with plain columns as in `plain_frames`.

    Args:
        path: A file with one of `TABLE_ENDINGS`. Semicolons may separate the columns of a .csv
            file. sales.xlsx#2024 is the sheet 2024 of a book, and shop.sqlite#orders the table
            orders of a database.
        num_rows: Maximum number of rows to read from text, or None for all.
        only: The only column to read, or None for all.

    Raises:
        DataError: If it cannot be read, or its ending is unknown.
    """
    return read_noted_table(path, num_rows, only=only).table


def read_noted_table(
    path: Path, num_rows: int | None = None, *, only: str | None = None
) -> PlainFrame:
    """Read a table as `read_table` does, and return it with notes on what was converted."""
    import pandas as pd

    endings = [ending.lower() for ending in path.suffixes]
    signs = next((SIGNS[ending] for ending in endings if ending in SIGNS), None)
    wanted = None if only is None else [only]
    try:
        if signs is not None:
            read_texts = functools.partial(
                pd.read_csv, path, header=None, dtype=str, keep_default_na=False
            )
            # As a row, since pandas renames repeated names.
            heads = {
                sign: [str(name) for name in read_texts(nrows=1, sep=sign).to_numpy(object)[0]]
                for sign in signs
            }
            separator = separator_in(heads)
            names = heads[separator]
            check_separator(path, names, separator, field="data.path")
            check_repeated(path, names, field="data.path")
            # Fails if the next row has more fields, whose first one pandas would take for the name
            # of the row.
            read_texts(nrows=2, sep=separator)
            rows = pd.read_csv(path, sep=separator, nrows=num_rows, usecols=wanted)
            num_first = min(_MAX_ROWS_OF_COMMAS, _NUM_CELLS_OF_COMMAS // len(names))
            first_rows = read_texts(nrows=1 + num_first, sep=separator).iloc[1:]
            texts = (column.tolist() for _, column in first_rows.items())
            shown = shows_decimal_commas(texts, are_usual=separator == ";")
            notes: tuple[str, ...] = ()
            if shown:
                read_again = functools.partial(
                    pd.read_csv, path, sep=separator, nrows=num_rows, dtype=str
                )
                rows, notes = _with_points_between_thousands(rows, read_again)
            plain = plain_frame(rows, field="data.path")
            # Excel writes semicolons between columns if its decimals have commas.
            if shown or (shown is None and separator == ";"):
                plain.table.attrs[DECIMAL_COMMA] = True
            return plain._replace(notes=(*plain.notes, *notes))
        if endings and endings[-1] in PARQUET_ENDINGS:
            check_repeated(path, _names_in_parquet(path), field="data.path")
            plain = plain_frame(pd.read_parquet(path, columns=wanted), field="data.path")
            if wanted is not None:
                plain = plain._replace(table=plain.table[wanted])
            return plain
        if is_known(path):
            rows = read(path, num_rows, wanted)
            check_repeated(path, [str(name) for name in rows.columns], field="data.path")
            return plain_frame(rows, field="data.path")
    except MissingDependencyError:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise _unreadable(path, error) from error
    raise DataError(
        f"{path.name} has an unknown file extension",
        field="data.path",
        allowed=[*TABLE_ENDINGS],
    )


def _with_points_between_thousands(
    read: pd.DataFrame, read_again: Callable[..., pd.DataFrame]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return a table with decimal commas in which 1.200 is text if other cells are like 950.

    Args:
        read: The table, in which pandas took these points for decimal points.
        read_again: Reads the columns `usecols` as text.

    Returns:
        The table, and notes on such columns.
    """
    may_be = [
        name
        for name, column in read.items()
        if column.dtype.kind == "f"
        and np.allclose(of_1000 := column.dropna() * 1000, np.round(of_1000), rtol=1e-9, atol=1e-6)
    ]
    if not may_be:
        return read, ()
    texts = read_again(usecols=may_be)
    written = {name: column_of(texts, str(name)) for name in may_be}
    thousands = {
        str(name): column for name, column in written.items() if may_be_thousands(column.dropna())
    }
    return read.assign(**thousands), tuple(
        f"{name} has points between thousands, because other columns have decimal commas"
        for name in thousands
    )


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, UnicodeDecodeError):
        problem, step = f"{path} is not UTF-8: {encoding_in_words(error)}", "Save it as UTF-8."
    elif (fields := _NUM_FIELDS.search(str(error))) is not None:
        problem = (
            f"line {fields['line']} of {path} has {fields['found']} fields, and those before it"
            f" have {fields['expected']}"
        )
        step = (
            "Remove the separator that is too many, quote texts that contain it, or name every"
            " column."
        )
    else:
        problem = f"{path} cannot be read as a table: {error}"
        step = "Open it in an editor, or write it again from its source."
    return DataError(problem, field="data.path", next_step=step)


def _names_in_parquet(path: Path) -> list[str]:
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    # An index of pandas is also a column of the file. Whole numbers without a name only count the
    # rows.
    names = []
    for column in schema:
        if not _UNNAMED_INDEX.fullmatch(column.name):
            names.append(column.name)
        elif not str(column.type).startswith(("int", "uint")):
            names.append(_INDEX)
    return names


def read_columns(path: Path) -> list[str]:
    """Return the names of the columns of a table, without reading its rows.

    Args:
        path: A file that `read_table` can read. ~ is the home folder.

    Raises:
        DataError: If it is missing or cannot be read.
    """
    file, part = split_part(path.expanduser())
    existing = existing_path(file)
    try:
        return _columns_of(*file_stamp(existing), part)
    except (OSError, ValueError, ImportError) as error:
        raise _unreadable(existing, error) from error


def columns_of(path: str) -> list[str]:
    """Return the names of the columns of a table, or none if it cannot be read.

    Args:
        path: A file that `read_table` can read. ~ is the home folder.
    """
    try:
        return read_columns(Path(path))
    except (OSError, ValueError, WorkbenchError):  # loading it reports this
        return []


@functools.lru_cache(maxsize=32)
def _columns_of(
    path: str, _size_bytes: int, _changed_ns: int, part: str | None = None
) -> list[str]:
    """Return the columns of one version of a file."""
    if part is not None:
        path = f"{path}#{part}"
    if Path(path).suffix.lower() in PARQUET_ENDINGS:
        names = _names_in_parquet(Path(path))
        check_repeated(Path(path), names, field="data.path")
        return names
    return [str(name) for name in read_table(Path(path), 0).columns]


def column_of(table: pd.DataFrame, name: str) -> pd.Series:
    """Return one column of a table."""
    return cast("pd.Series", table[name])


def check_columns(
    existing: Iterable[object], named: Mapping[str, Iterable[str]], *, section: str = "data."
) -> None:
    """Reject options with a column that a table does not have.

    Args:
        existing: The columns of the table.
        named: The columns in each option.
        section: The prefix of the options in the error.

    Raises:
        DataError: If one is missing. The message shows `data.<option>` and the closest column.
    """
    columns = [str(name) for name in existing]
    for option, names in named.items():
        for name in names:
            if name not in columns:
                allowed, meant = closest(name, columns)
                raise DataError(
                    f"there is no column {name!r}",
                    field=f"{section}{option}",
                    allowed=allowed,
                    next_step=meant,
                )

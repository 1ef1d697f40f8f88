"""Reads the files of tables: the names of their columns, and their rows.

`columns` decides what the values mean.
"""

from __future__ import annotations

import csv
import functools
import itertools
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.cache import file_stamp
from workbench.data.number_texts import (
    DECIMAL_COMMA,
    MISSING_WORDS,
    has_decimal_points,
    has_leading_zeros,
    is_marker,
    may_be_thousands,
    number_text_of,
    shows_decimal_commas,
)
from workbench.data.options import existing_path
from workbench.data.plain_frames import PlainFrame, column_of, plain_frame
from workbench.data.table_formats import FORMATS, NOTES, is_known, read, split_part
from workbench.data.text_layout import TextLayout, is_text_table, layout_of
from workbench.data.unusual_rows import notes_of_short
from workbench.foundation.errors import (
    DataError,
    MissingDependencyError,
    WorkbenchError,
    missing_part,
)
from workbench.foundation.files import encoding_in_words
from workbench.foundation.text_tables import (
    PARQUET_ENDINGS,
    SIGNS,
    check_repeated,
)
from workbench.foundation.validation_errors import closest

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
FEWEST_BELOW_UNITS, MOST_ROWS_OF_UNITS = 3, 2
"""How many rows must be below those of units, and how many of these there may be."""
WORDS_WITH_DIGITS = r"\{.*\}|.* .*\?"
"""The pattern of an identifier or a question above a column, which may have digits."""
_MAX_UNITS = 3
_STEPS = {
    **dict.fromkeys((".xls", ".ods", ".xlsb", ".numbers"), "Save it as .xlsx or .csv."),
    **dict.fromkeys(
        (".dta", ".sav", ".sas7bdat", ".rds", ".rdata", ".pkl", ".pickle", ".h5", ".hdf5", ".orc"),
        "Read it with its own program and save it as .csv or .parquet, or pass a data frame.",
    ),
    ".gz": "Name it after what it contains, such as table.csv.gz.",
    ".pdf": "Export the table in it as .csv.",
}
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
    path: Path,
    num_rows: int | None = None,
    *,
    only: str | None = None,
    decimal_commas: Collection[str] = (),
) -> PlainFrame:
    """Read a table as `read_table` does, and return it with notes on what was converted.

    Args:
        path: As in `read_table`.
        num_rows: As in `read_table`.
        only: As in `read_table`.
        decimal_commas: Columns that are known to have decimal commas: 1.200 in one of them is 1200,
            even if no other number of the file shows it. They stay text.

    Raises:
        DataError: As in `read_table`.
    """
    import pandas as pd

    wanted = None if only is None else [only]
    ending = path.suffix.lower()
    try:
        if is_text_table(path):
            return _read_text(path, num_rows, wanted, decimal_commas)
        if ending in PARQUET_ENDINGS:
            check_repeated(path, _names_in_parquet(path), field="data.path")
            plain = plain_frame(
                pd.read_parquet(path, columns=wanted), field="data.path", keeps_others=True
            )
            if wanted is not None:
                plain = plain._replace(table=plain.table[wanted])
            return plain
        if is_known(path):
            rows = read(path, num_rows, wanted)
            check_repeated(path, [str(name) for name in rows.columns], field="data.path")
            notes = rows.attrs.pop(NOTES, ())
            rows, of_units = without_units_below_header(rows, path.name)
            plain = plain_frame(rows, field="data.path", keeps_others=True)
            return plain._replace(notes=(*notes, *of_units, *plain.notes))
    except MissingDependencyError:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise _unreadable(path, error) from error
    raise _unknown_ending(path)


def _read_text(
    path: Path,
    num_rows: int | None,
    wanted: Sequence[str] | None,
    decimal_commas: Collection[str],
) -> PlainFrame:
    """Read a text table.

    Args:
        path: The file.
        num_rows: Maximum number of rows, or None for all.
        wanted: The only columns to read, or None for all.
        decimal_commas: As in `read_noted_table`.
    """
    layout = layout_of(path)
    read_texts = functools.partial(_read_csv, path, layout, dtype=str, keep_default_na=False)
    if not layout.has_trailing:
        # Fails if the next row has more fields, whose first one pandas would take for the name of
        # the row.
        read_texts(num_rows=2, header=None)
    rows = _read_csv(path, layout, num_rows=num_rows, columns=wanted)
    num_first = min(_MAX_ROWS_OF_COMMAS, _NUM_CELLS_OF_COMMAS // len(layout.names))
    texts = (column.tolist() for _, column in read_texts(num_rows=num_first).items())
    shown = shows_decimal_commas(texts, are_usual=layout.separator == ";")
    notes = layout.notes
    if wanted is None and rows.iloc[:, -1].isna().any():
        notes += tuple(notes_of_short(_short_rows(path, layout, num_rows)))
    read_again = functools.partial(_read_csv, path, layout, num_rows=num_rows, dtype=str)
    if layout.may_have_codes:
        rows, of_codes = _with_leading_zeros(rows, read_again)
        notes += of_codes
    # Excel writes semicolons between columns if its decimals have commas.
    has_decimal_commas = bool(shown or (shown is None and layout.separator == ";"))
    if has_decimal_commas:
        rows, of_points = _with_points_between_thousands(rows, read_again, is_shown=bool(shown))
        notes += of_points
    if known := [name for name in rows.columns if name in decimal_commas]:
        texts = read_again(columns=known)
        if not has_decimal_points(texts.fillna("").to_numpy().ravel(), layout.separator):
            rows = rows.assign(**{name: texts[name] for name in known})
    if has_decimal_commas:
        rows.attrs[DECIMAL_COMMA] = True
    rows, of_units = without_units_below_header(rows, path.name)
    plain = plain_frame(rows, field="data.path")
    if has_decimal_commas:
        plain.table.attrs[DECIMAL_COMMA] = True
    return plain._replace(notes=(*notes, *of_units, *plain.notes))


def _read_csv(
    path: Path,
    layout: TextLayout,
    *,
    num_rows: int | None = None,
    columns: Sequence[str] | None = None,
    header: int | None = 0,
    **options: Any,
) -> pd.DataFrame:
    """Read a text table with the names of its layout."""
    import pandas as pd

    names = [name or f"Unnamed: {place}" for place, name in enumerate(layout.names)]
    wanted = None if columns is None else sorted(map(names.index, columns))
    with warnings.catch_warnings():  # cells behind a trailing separator are lost, as they should be
        warnings.simplefilter("ignore", pd.errors.ParserWarning)
        rows = pd.read_csv(
            path,
            sep=layout.separator,
            encoding=layout.encoding,
            skiprows=layout.num_skipped,
            skipinitialspace=True,
            nrows=num_rows,
            usecols=wanted,
            header=header,
            index_col=False if layout.has_trailing else None,
            **options,
        )
    if header is None:
        return rows
    return rows.set_axis([names[place] for place in wanted or range(len(names))], axis=1)


def _short_rows(path: Path, layout: TextLayout, num_rows: int | None) -> list[int]:
    """Return the numbers of the rows that end before the last column."""
    with layout.open(path) as file:
        reader = csv.reader(file, delimiter=layout.separator, skipinitialspace=True)
        rows = itertools.islice(filter(None, reader), 1, None if num_rows is None else num_rows + 1)
        return [number for number, cells in enumerate(rows) if len(cells) < len(layout.names)]


def _with_leading_zeros(
    read: pd.DataFrame, read_again: Callable[..., pd.DataFrame]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return a table in which numbers such as 00501 are text, and notes on such columns.

    Args:
        read: The table, in which pandas took them for numbers.
        read_again: Reads the columns `columns` as text.
    """
    whole = [
        str(name)
        for name, column in read.items()
        if column.dtype.kind in "iuf" and not (column.dropna() % 1).any()
    ]
    if not whole:
        return read, ()
    texts = read_again(columns=whole)
    codes = {name: texts[name] for name in whole if has_leading_zeros(texts[name].dropna())}
    notes = []
    for name, column in codes.items():
        example = next(text for text in column.dropna() if has_leading_zeros([text]))
        notes.append(f"{name} is read as text, because it has leading zeros (such as {example!r})")
    return read.assign(**codes), tuple(notes)


def without_units_below_header(
    table: pd.DataFrame, name: str
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return a table without first rows of units, such as cm and kg, or words, and a note on them.

    Exports of surveys have the question in such a row, and some an identifier in another one.

    Args:
        table: The table, as it was read.
        name: What to call the file.

    Raises:
        DataError: If this row completes the header, which then has columns without a name.
    """
    for num_rows in range(1, MOST_ROWS_OF_UNITS + 1):
        units, numbers = _units_above_numbers(table, num_rows)
        others = table.drop(columns=list(units)).head(num_rows)
        if len(units) > 1 or (units and not bool(others.notna().to_numpy().any())):
            break
    else:
        return table, ()
    shown = ", ".join(list(units.values())[:_MAX_UNITS])
    if any(column.startswith("Unnamed: ") for column in units):
        raise DataError(
            f"the header of {name} seems to have two rows: columns without a name have {shown}"
            " below",
            field="data.path",
            allowed="one row with a name for each column",
            next_step="Write both names into one row.",
        )
    rest = table.iloc[num_rows:].assign(**numbers).reset_index(drop=True)
    skipped = "the row below the header is skipped, because it has"
    if num_rows > 1:
        skipped = f"the {num_rows} rows below the header are skipped, because they have"
    return rest, (f"{skipped} units or words: {shown}",)


def _units_above_numbers(
    table: pd.DataFrame, num_rows: int
) -> tuple[dict[str, str], dict[str, pd.Series]]:
    """Return the first text of each column that has only texts in some rows, and then numbers.

    Args:
        table: The table, as it was read.
        num_rows: How many rows have texts.

    Returns:
        These texts, and the numbers that are written plainly, both by column. Nothing if one of
        these rows has a number.
    """
    import pandas as pd
    from pandas.api import types

    numbers: dict[str, pd.Series] = {}
    units: dict[str, str] = {}
    if len(table) < FEWEST_BELOW_UNITS + num_rows:
        return units, numbers
    for column in map(str, table.columns):
        values = table[column]
        firsts, below = values.iloc[:num_rows], values.iloc[num_rows:]
        if types.is_numeric_dtype(values):
            if firsts.notna().any():
                return {}, {}
        elif all(isinstance(first, str) and _is_word(first) for first in firsts) and len(
            known := below.dropna()
        ):
            converted = np.asarray(pd.to_numeric(known, errors="coerce"), dtype=np.float64)
            if not np.isnan(converted).any():
                numbers[column] = pd.Series(pd.to_numeric(below))
                units[column] = firsts.iloc[0].strip()
            elif number_text_of(known, min_share=1.0) is not None:  # such as 12,5
                units[column] = firsts.iloc[0].strip()
    return units, numbers


def _is_word(text: str) -> bool:
    bare = text.strip().lower()
    return (
        bool(bare)
        and (not re.search(r"\d", bare) or re.fullmatch(WORDS_WITH_DIGITS, bare) is not None)
        and not is_marker(bare)
        and (bare not in MISSING_WORDS)
    )


def _unknown_ending(path: Path) -> DataError:
    step = _STEPS.get(path.suffix.lower())
    if step is None:
        step = "If it is a table as text, rename it to .csv or .txt."
    return DataError(
        f"{path.name} has an unknown file extension",
        field="data.path",
        allowed=[*TABLE_ENDINGS],
        next_step=step,
    )


def _with_points_between_thousands(
    read: pd.DataFrame, read_again: Callable[..., pd.DataFrame], *, is_shown: bool
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return a table with decimal commas in which 1.200 is text if other cells are like 950.

    Args:
        read: The table, in which pandas took these points for decimal points.
        read_again: Reads the columns `columns` as text.
        is_shown: Whether another column shows that the file has decimal commas.

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
    texts = read_again(columns=list(map(str, may_be)))
    written = {name: column_of(texts, str(name)) for name in may_be}
    thousands = {
        str(name): column
        for name, column in written.items()
        if may_be_thousands(known := column.dropna())
        # Else 1.125 and 2 might be decimals, and 1.125 alone is written with three of them.
        and (is_shown or known.str.fullmatch(r"\d{3}").any())
    }
    why = "other columns have decimal commas" if is_shown else "the file has semicolons"
    return read.assign(**thousands), tuple(
        f"{name} has points between thousands, because {why}" for name in thousands
    )


def _unreadable(path: Path, error: Exception) -> WorkbenchError:
    # The file is fine where only the library that reads it is missing.
    if isinstance(error, ModuleNotFoundError) and (missing := missing_part(error)) is not None:
        return missing
    if isinstance(error, UnicodeDecodeError):
        problem, step = f"{path} is not UTF-8: {encoding_in_words(error)}", "Save it as UTF-8."
    elif path.is_file() and not path.stat().st_size:
        problem, step = f"{path} is empty", "Write it again from its source."
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
        problem = f"{path} cannot be read as a table: {str(error).rstrip('.')}"
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
        MissingDependencyError: If a library that reads it is not installed.
    """
    file, part = split_part(path.expanduser())
    existing = existing_path(file)
    try:
        return _columns_of(*file_stamp(existing), part)
    except MissingDependencyError:
        raise
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

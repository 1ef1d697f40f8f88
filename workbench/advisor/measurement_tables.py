"""Reads CSV tables of measurements strictly. Errors contain the line and the column."""

from __future__ import annotations

import csv
import difflib
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from workbench.foundation.errors import DataError
from workbench.foundation.files import encoding_in_words
from workbench.foundation.text_tables import check_separator

_Made = TypeVar("_Made")
# The similarity from which an unknown column counts as a misspelling of a missing one.
_MISSPELT = 0.85


@dataclass(frozen=True)
class Column:
    """A column that a table must or may have.

    Attributes:
        name: The header.
        parse: Parses one cell. It raises a ValueError that says what is allowed.
        required: Whether a table without this column is an error. The cells of a missing optional
            column are None.
    """

    name: str
    parse: Callable[[str], Any]
    required: bool = True


def read_table(path: Path, *columns: Column) -> list[dict[str, Any]]:
    """Read the rows of a CSV file.

    Unknown columns are skipped with a warning.

    Args:
        path: The file. Its first line contains the names of the columns.
        columns: The required and optional columns.

    Returns:
        One mapping per row, with all of `columns` as keys.

    Raises:
        DataError: If the file cannot be read or is not separated by commas, a column is missing,
            appears twice or seems to be misspelt, or a cell has a wrong value.
    """
    return read_objects(path, dict, *columns)


def read_objects(
    path: Path, make: Callable[[dict[str, Any]], _Made], *columns: Column
) -> list[_Made]:
    """Read the rows of a CSV file as `read_table` does, and convert each row to an object.

    Args:
        path: The file. Its first line contains the names of the columns.
        make: Converts a row. If it raises a DataError with a column as its field, the line is added
            to the error.
        columns: The required and optional columns.

    Returns:
        One object per row.

    Raises:
        DataError: For the reasons of `read_table`, or if a row contradicts itself.
    """
    with _reading(path) as (reader, heads):
        _check_heads(path, heads, columns)
        return [
            _make_of(path, reader.line_num, make, _read_row(path, reader.line_num, row, columns))
            for row in reader
        ]


def read_heads(path: Path) -> list[str]:
    """Read the names of a CSV file's columns.

    Raises:
        DataError: If the file cannot be read.
    """
    with _reading(path) as (_, heads):
        return heads


@contextmanager
def _reading(path: Path) -> Iterator[tuple[csv.DictReader[str], list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            heads = [head.strip() for head in reader.fieldnames or ()]
            reader.fieldnames = heads
            yield reader, heads
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8: {encoding_in_words(error)}", next_step="Save it as UTF-8."
        ) from error
    except (OSError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _make_of(
    path: Path, line: int, make: Callable[[dict[str, Any]], _Made], row: dict[str, Any]
) -> _Made:
    try:
        return make(row)
    except DataError as error:
        raise DataError(
            f"{path}, line {line}, column {error.field}: {error.problem}",
            field=error.field,
            allowed=error.allowed,
        ) from error


def _check_heads(path: Path, heads: list[str], columns: tuple[Column, ...]) -> None:
    """Raise an error if a column is missing, appears twice, or seems to be misspelt."""
    check_separator(path, heads)
    allowed = ", ".join(
        column.name + ("" if column.required else " (optional)") for column in columns
    )
    if not any(heads):
        raise DataError(f"{path} is empty", allowed=f"a line with the columns {allowed}")
    names = {column.name for column in columns}
    missing = [column for column in columns if column.name not in heads]
    for column in missing:
        if column.required:
            raise DataError(
                f"{path} has no column {column.name}",
                field=column.name,
                allowed=allowed,
                next_step=_suggest_name(column.name, [head for head in heads if head not in names]),
            )
    if len(missing) == len(columns):
        raise DataError(f"{path} has none of the expected columns", allowed=allowed)
    for head in heads:
        is_known = head in names
        if is_known and heads.count(head) > 1:
            raise DataError(f"{path} has the column {head} more than once", field=head)
        close = difflib.get_close_matches(
            _plain(head), [column.name for column in missing], 1, _MISSPELT
        )
        if close and not is_known:
            raise DataError(
                f"{path} has an unknown column {head}",
                field=head,
                next_step=f"Did you mean {close[0]}? Rename the column.",
            )
    if unread := [head for head in heads if head not in names]:
        warnings.warn(
            f"{path} has unknown columns, which are ignored: {', '.join(unread)}", stacklevel=4
        )


def _plain(head: str) -> str:
    return "_".join(head.lower().split())


def _suggest_name(name: str, heads: list[str]) -> str | None:
    """Suggest which existing column to rename, even if its case or unit differs."""
    by_plain = {_plain(head): head for head in heads}
    close = difflib.get_close_matches(name, by_plain, 1, _MISSPELT)
    if not close:
        return None
    meant = by_plain[close[0]]
    condition = "" if close[0] == name else ", if it has that meaning and unit"
    return f"Did you mean {meant!r}? Rename it to {name}{condition}."


def _read_row(
    path: Path, line: int, row: dict[Any, Any], columns: tuple[Column, ...]
) -> dict[str, Any]:
    if None in row:
        raise DataError(f"{path}, line {line} has more cells than the {len(row) - 1} columns")
    read: dict[str, Any] = {}
    for column in columns:
        cell = row.get(column.name)
        if cell is None and column.name in row:
            raise DataError(f"{path}, line {line}, column {column.name}: the line ends before it")
        try:
            read[column.name] = None if cell is None else column.parse(cell.strip())
        except ValueError as error:
            raise DataError(
                f"{path}, line {line}, column {column.name}: {cell!r} is not valid",
                field=column.name,
                allowed=str(error),
            ) from error
    return read


def check_has_plans(path: Path, plans: list[_Made]) -> list[_Made]:
    """Return the plans of a file.

    Raises:
        DataError: If there are none.
    """
    if not plans:
        raise DataError(f"{path} contains no plans to predict", allowed="at least one row")
    return plans


def truth_value(cell: str) -> bool:
    """Read true or false, also written as yes or no, or as 1 or 0."""
    truth_values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if cell.lower() not in truth_values:
        raise ValueError("true or false")
    return truth_values[cell.lower()]


def positive_number(cell: str) -> float:
    """Read a finite number greater than 0."""
    number = _number(cell)
    if number is None or number <= 0:
        raise ValueError("a number greater than 0")
    return number


def number_between(low: float, high: float, unit: str = "") -> Callable[[str], float]:
    """Return a function that reads a number in a range.

    Args:
        low: The lowest number, > 0.
        high: The highest number.
        unit: What the number counts, as errors say it, such as "billion parameters".
    """

    def read(cell: str) -> float:
        number = _number(cell)
        if number is None or not low <= number <= high:
            raise ValueError(f"a number from {low:g} to {high:,g} {unit}".strip())
        return number

    return read


def whole_number_to(high: int) -> Callable[[str], int]:
    """Return a function that reads a whole number from 1 to another one."""

    def read(cell: str) -> int:
        number = _number(cell)
        if number is None or not 1 <= number <= high or number != int(number):
            raise ValueError(f"a whole number, up to {high:,}")
        return int(number)

    return read


def number_from_zero(cell: str) -> float:
    """Read a finite number that is not negative."""
    number = _number(cell)
    if number is None or number < 0:
        raise ValueError("a number greater than or equal to 0")
    return number


def finite_number(cell: str) -> float:
    """Read a finite number of either sign."""
    number = _number(cell)
    if number is None:
        raise ValueError("a finite number")
    return number


def positive_whole_number(cell: str) -> int:
    """Read a whole number greater than 0. 8.0 is one."""
    number = _number(cell)
    if number is None or number <= 0 or number != int(number):
        raise ValueError("a whole number greater than 0")
    return int(number)


def written_number(cell: str) -> float:
    """Read a number, nan or inf. Unlike `float`, it refuses 0.9_1, which is a slip of the pen.

    Raises:
        ValueError: If it is not a number.
    """
    if "_" in cell:
        raise ValueError("a number")
    return float(cell)


def _number(cell: str) -> float | None:
    try:
        number = written_number(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

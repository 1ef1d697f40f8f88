"""Checks the columns of a text table: their separator, repeated names and missing ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.foundation.errors import DataError

GROUPED_DIGITS = r"[1-9][0-9]{0,2}(?:,[0-9]{3})+"
"""The pattern of a whole number with commas between thousands."""
SIGNS = {
    ".csv": (",", ";", "\t", "|"),
    ".tsv": ("\t", ",", ";", "|"),
    ".txt": ("\t", ",", ";", "|"),
}
"""Possible separators of a text table by the ending of its file, the usual one first.

Excel writes semicolons if decimal numbers have commas.
"""
PARQUET_ENDINGS = (".parquet", ".pq")
"""The endings of tables that are not text."""
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def separator_in(heads: Mapping[str, Sequence[str]]) -> str:
    """Return the sign that separates the columns of a table.

    It is the sign that gives the first row the most names. Other rows do not count, because their
    texts may contain semicolons.

    Args:
        heads: The names of the columns for each possible sign, with the usual sign first.

    Example:
        >>> from workbench.foundation.text_tables import separator_in
        >>> separator_in({",": ["size;price", " CHF;town"], ";": ["size", "price, CHF", "town"]})
        ';'
    """
    return max(heads, key=lambda sign: len(heads[sign]))


def check_separator(
    path: Path, heads: Sequence[str], expected: str = ",", *, field: str | None = None
) -> None:
    """Reject a table whose columns were read as one, because they have another separator.

    Args:
        path: The file, for the message.
        heads: The names of its columns, as they were read.
        expected: The separator with which they were read.
        field: The field of the experiment with the file.

    Raises:
        DataError: If there is one column, and its name has another separator in it.
    """
    if len(heads) != 1:
        return
    for separator, name in _NAMES.items():
        if separator != expected and separator in heads[0]:
            next_step = f"Save it with {_NAMES[expected]} between the columns"
            if separator == ";":  # then Excel writes decimal numbers with commas
                next_step += ", and points in decimal numbers"
            raise DataError(
                f"the columns of {path} are separated by {name}",
                field=field,
                allowed=_NAMES[expected],
                next_step=f"{next_step}.",
            )


def check_repeated(path: Path | str, heads: Sequence[str], *, field: str | None = None) -> None:
    """Reject a table in which two columns have the same name.

    Args:
        path: The file, or another word for the table, for the message.
        heads: The names of its columns, as they are written there.
        field: The field of the experiment with the file.

    Raises:
        DataError: If a name is repeated. Empty names may be.
    """
    repeated = [name for name, count in Counter(heads).items() if count > 1 and name]
    if repeated:
        names = ", ".join(map(repr, repeated))
        raise DataError(
            f"{path} has more than one column named {names}",
            field=field,
            allowed="a different name for each column",
            next_step="Rename or remove all but one of them.",
        )


_MAX_NAMED = 5
MAX_LISTED = 20
"""The most names that an error lists."""


def some_names(names: Sequence[str]) -> str:
    """Return names with commas, at most twenty of them."""
    if len(names) <= MAX_LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:MAX_LISTED])} and {len(names) - MAX_LISTED} more"


def absent_columns(absent: Sequence[str], needed: Sequence[str]) -> DataError:
    """Return the error that lists the missing columns of a table, the first five if there are more.

    Args:
        absent: The missing columns, at least one.
        needed: All columns that the model needs.
    """
    *first, last = [repr(name) for name in absent[:_MAX_NAMED]]
    if len(absent) > _MAX_NAMED:
        first, last = [*first, last], f"{len(absent) - _MAX_NAMED} more"
    problem = f"there is no column {last}"
    if first:
        problem = f"there are no columns {', '.join(first)} and {last}"
    return DataError(
        f"{problem}; needed: {some_names(needed)}",
        next_step="Give the columns with which the model was trained.",
    )

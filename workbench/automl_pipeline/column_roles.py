"""Find the columns of a table to learn from, and recognise dates written as text, identifiers and prose.

Only the form of a column counts: how its values are written and how many differ. What is left out is noted.
Encoders are learnt elsewhere, from train rows only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from workbench.absent_columns import absent_columns
from workbench.data.dates import date_format_of, in_words, is_text, no_dates
from workbench.data.encoders import MAX_CATEGORIES
from workbench.data.tables import column_of
from workbench.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_WORDS_OF_A_TEXT = 3.0
# A text column with this fraction of distinct values identifies rows.
_IDENTIFIER_FRACTION = 0.9
# From this fraction of dates on, the other values are reported.
_NEARLY_DATES = 0.8
_IDENTIFIER = re.compile(r"(^|[^a-z])(id|uuid|guid|index|key)$|^unnamed: \d+$", re.IGNORECASE)
_CAMEL_IDENTIFIER = re.compile(r"[a-z](Id|ID)$")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
# From this fraction of such numbers on, a column of texts is likely one of numbers.
_NEARLY_NUMBERS = 0.8
_MAX_NAMED = 5


@dataclass(frozen=True)
class UsableColumns:
    """The columns to learn from.

    Attributes:
        names: The columns that are used.
        are_texts: Whether these are texts, which are joined into one.
        date_formats: The formats of dates written as text, by column.
        notes: What the user should know about the other columns.
    """

    names: tuple[str, ...]
    are_texts: bool
    date_formats: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def usable_columns(table: pd.DataFrame) -> UsableColumns:
    """Find the columns to learn from.

    Args:
        table: The columns to predict from; their names are strings.

    Raises:
        DataError: If there are none.
    """
    columns = {str(name): column_of(table, name) for name in table.columns}
    empty = [name for name, column in columns.items() if column.isna().all()]
    if len(empty) == len(columns):
        raise DataError("every value of every column is missing", field="data")
    formats = {name: form for name, column in columns.items() if (form := date_format_of(column))}
    others = {name: column for name, column in columns.items() if name not in formats}
    texts = [name for name, column in others.items() if _is_prose(column)]
    named = [name for name, column in others.items() if name not in texts and _is_identifier(name, column)]
    used = [name for name in columns if name not in texts and name not in named]
    notes = [f"columns without any value: {_listed(empty)}"] if empty else []
    notes += [*_notes_of_identifiers(named, others), *_notes_of_decimal_commas(others)]
    if texts and not used:
        return UsableColumns(tuple(texts), True, {}, tuple(notes))
    if not used:
        raise DataError(
            f"no column is left to predict the target from: {'; '.join(notes)}",
            field="data",
            next_step="Add columns that describe a row.",
        )
    if texts:
        listed = _listed(texts)
        notes.append(f"left out texts of several words, as there are other columns: {listed}; to learn from "
                     f"one alone, pass it as X: wb.automl((table[{texts[0]!r}], y))")  # fmt: skip
    if formats:
        notes.append(
            "read as dates: " + _listed([f"{name} ({in_words(form)})" for name, form in formats.items()])
        )
    notes += [note for name in used if name not in formats for note in _notes_of_text(name, columns[name])]
    return UsableColumns(tuple(used), False, formats, tuple(notes))


def joined_texts(table: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Return the texts of some columns, those of one row joined by line breaks; missing ones are empty.

    Args:
        table: The table.
        names: The columns.

    Raises:
        DataError: If the table lacks one of them.
    """
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise absent_columns(missing, names)
    columns = [column_of(table, name) for name in names]
    texts = [column.astype(object).where(column.notna(), "").astype(str) for column in columns]
    return np.array(["\n".join(row).strip() for row in zip(*texts, strict=True)], dtype=object)


def _is_prose(column: pd.Series) -> bool:
    """Return whether a column holds sentences rather than categories."""
    known = column.dropna()
    if not len(known) or not all(isinstance(value, str) for value in known):
        return False
    num_words = np.mean([len(value.split()) for value in known])
    return bool(num_words >= _WORDS_OF_A_TEXT and known.nunique() > len(known) / 2)


def _is_identifier(name: str, column: pd.Series) -> bool:
    known = column.dropna()
    if not len(known):
        return False
    if is_text(column):
        return known.astype(str).nunique() > _IDENTIFIER_FRACTION * len(known)
    if not (_IDENTIFIER.search(name) or _CAMEL_IDENTIFIER.search(name)) or column.dtype.kind not in "iuf":
        return False
    return bool(known.is_unique and np.array_equal(known, np.round(known)))


def _notes_of_identifiers(names: Sequence[str], columns: dict[str, pd.Series]) -> list[str]:
    if not names:
        return []
    first = {name: columns[name].dropna().iloc[0] for name in names}
    items = [
        f"{name} (such as {value!r})" if isinstance(value, str) else f"{name} (such as {value})"
        for name, value in first.items()
    ]
    return [f"left out columns that differ in nearly every row: {_listed(items)}"]


def _notes_of_decimal_commas(columns: dict[str, pd.Series]) -> list[str]:
    found = []
    for name, column in columns.items():
        values = column.dropna().astype(str).unique() if is_text(column) else ()
        numbers = [value for value in values if _DECIMAL_COMMA.fullmatch(value)]
        if numbers and len(numbers) >= _NEARLY_NUMBERS * len(values):
            found.append(f"{name} (such as {numbers[0]!r})")
    if not found:
        return []
    return [f"texts, as their numbers have decimal commas: {_listed(found)}; write them with points to have "
            "them read as numbers"]  # fmt: skip


def _notes_of_text(name: str, column: pd.Series) -> list[str]:
    if not is_text(column):
        return []
    form = date_format_of(column, min_share=_NEARLY_DATES)
    if form is not None:
        row = int(no_dates(column, form)[0])
        stray = f"row {column.index[row]} (from 0) holds {column.iloc[row]!r}"
        return [f"{name} is used as categories: {stray}, although most others are dates ({in_words(form)}); "
                "leave such cells empty to have them read as dates"]  # fmt: skip
    num_values = column.dropna().astype(str).nunique()
    if num_values <= MAX_CATEGORIES:
        return []
    return [f"{name} has {num_values} distinct texts: only the frequency of each is used"]


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items[:_MAX_NAMED]) + ", ..." * (len(items) > _MAX_NAMED)

"""Which columns of a table can be learnt from: dates written as text, names of rows, texts of several words.

It looks at form alone, how values are written and how many there are, and says what it leaves out. What a
column tells is learnt elsewhere, from train rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from workbench.data.dates import date_format_of, in_words, is_text, no_dates
from workbench.data.encoders import MAX_CATEGORIES
from workbench.data.tables import column_of
from workbench.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_WORDS_OF_A_TEXT = 3.0
# Text that differs in so large a share of the rows names them.
_NAMES_ROWS = 0.9
# Where so many values are dates, the others are worth a word.
_NEARLY_DATES = 0.8
_IDENTIFIER = re.compile(r"(^|[^a-z])(id|uuid|guid|index|key)$|^unnamed: \d+$", re.IGNORECASE)
_CAMEL_IDENTIFIER = re.compile(r"[a-z](Id|ID)$")
_MOST_NAMED = 5


@dataclass(frozen=True)
class Usable:
    """What can be learnt from.

    Attributes:
        names: The columns that are used.
        are_texts: Whether these are texts, which are read as one.
        date_formats: How columns write dates as text, by name.
        notes: What a person should know about the others.
    """

    names: tuple[str, ...]
    are_texts: bool
    date_formats: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def usable_columns(table: pd.DataFrame) -> Usable:
    """Find the columns that can be learnt from.

    Args:
        table: The columns to predict from, under names that are text.

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
    named = [name for name, column in others.items() if name not in texts and _names_rows(name, column)]
    used = [name for name in columns if name not in texts and name not in named]
    notes = [f"columns without any value: {_listed(empty)}"] if empty else []
    notes += _notes_of_identifiers(named, others)
    if texts and not used:
        return Usable(tuple(texts), True, {}, tuple(notes))
    if not used:
        raise DataError(
            f"no column is left to predict the target from: {'; '.join(notes)}",
            field="data",
            next_step="Add columns that tell something about a row.",
        )
    if texts:
        listed = _listed(texts)
        notes.append(f"left out texts of several words beside other columns: {listed}; to learn from one "
                     f"alone, give it as X: wb.automl((table[{texts[0]!r}], y))")  # fmt: skip
    if formats:
        notes.append(
            "read as dates: " + _listed([f"{name} ({in_words(form)})" for name, form in formats.items()])
        )
    notes += [note for name in used if name not in formats for note in _notes_of_text(name, columns[name])]
    return Usable(tuple(used), False, formats, tuple(notes))


def joined_texts(table: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Return the texts of some columns, those of one row joined by a line break; a missing one is empty.

    Args:
        table: Any table.
        names: The columns.

    Raises:
        DataError: If it has no such column.
    """
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise DataError(
            f"the table has no column {', '.join(map(repr, missing))}",
            next_step="Give the columns that the model was trained with.",
        )
    columns = [column_of(table, name) for name in names]
    texts = [column.astype(object).where(column.notna(), "").astype(str) for column in columns]
    return np.array(["\n".join(row).strip() for row in zip(*texts, strict=True)], dtype=object)


def _is_prose(column: pd.Series) -> bool:
    """Tell whether a column holds sentences rather than categories."""
    known = column.dropna()
    if not len(known) or not all(isinstance(value, str) for value in known):
        return False
    num_words = np.mean([len(value.split()) for value in known])
    return bool(num_words >= _WORDS_OF_A_TEXT and known.nunique() > len(known) / 2)


def _names_rows(name: str, column: pd.Series) -> bool:
    known = column.dropna()
    if not len(known):
        return False
    if is_text(column):
        return known.astype(str).nunique() > _NAMES_ROWS * len(known)
    if not (_IDENTIFIER.search(name) or _CAMEL_IDENTIFIER.search(name)) or column.dtype.kind not in "iuf":
        return False
    return bool(known.is_unique and np.array_equal(known, np.round(known)))


def _notes_of_identifiers(names: Sequence[str], columns: dict[str, pd.Series]) -> list[str]:
    if not names:
        return []
    said = [f"{name} (such as {columns[name].dropna().iloc[0]!r})" for name in names]
    return [f"left out what is different in nearly every row: {_listed(said)}"]


def _notes_of_text(name: str, column: pd.Series) -> list[str]:
    if not is_text(column):
        return []
    form = date_format_of(column, least_share=_NEARLY_DATES)
    if form is not None:
        row = int(no_dates(column, form)[0])
        stray = f"row {column.index[row]} (from 0) holds {column.iloc[row]!r}"
        return [f"{name} is used as categories, as {stray} and most others are dates ({in_words(form)}); "
                "leave such cells empty to have dates"]  # fmt: skip
    num_values = column.dropna().astype(str).nunique()
    if num_values <= MAX_CATEGORIES:
        return []
    return [f"{name} has {num_values} different texts: only how often each occurs is used"]


def _listed(said: Sequence[str]) -> str:
    return ", ".join(said[:_MOST_NAMED]) + ", ..." * (len(said) > _MOST_NAMED)

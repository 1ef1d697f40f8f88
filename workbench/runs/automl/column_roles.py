"""Find the columns of a table to learn from: numbers, categories, dates, and prose.

Only the form of a column counts: how its values are written and how many differ. A note says which
columns are not used. Encoders are learnt elsewhere, from train rows only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from workbench.data.column_encoding import TextForm, text_form_of
from workbench.data.column_notes import (
    constant_columns,
    empty_columns,
    identifiers_in,
    listed,
    notes_of_columns,
)
from workbench.data.dates import is_text
from workbench.data.encoders import MAX_CATEGORIES
from workbench.data.plain_frames import MISSING, column_of, distinct_values
from workbench.foundation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_WORDS_OF_A_TEXT = 3.0
# A part of the rows of a table with a running number has a larger share of its numbers.
_DENSEST = 0.1
_PAIR = re.compile(r"\(?\s*[+-]?\d+[.]\d+\s*[,;\s]\s*[+-]?\d+[.]\d+\s*\)?", re.ASCII)
"""Two numbers in a cell, such as a latitude and a longitude."""


@dataclass(frozen=True)
class UsableColumns:
    """The columns to learn from.

    Attributes:
        names: The columns that are used.
        texts: Those that hold sentences. If all do, a sample is a text rather than a row.
        text_forms: How columns write dates or numbers as text.
        notes: What the user should know about the other columns.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...] = ()
    text_forms: dict[str, TextForm] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def are_texts(self) -> bool:
        """Whether all columns are texts, which are joined into one."""
        return bool(self.texts) and len(self.texts) == len(self.names)


def usable_columns(
    table: pd.DataFrame, is_followed: Callable[[np.ndarray], bool] = lambda _: False
) -> UsableColumns:
    """Find the columns to learn from.

    A number that identifies rows is used if the target follows it, as if it were a time. A running
    number is not: the order of the rows may follow the target.

    Args:
        table: The columns to predict from. Their names are strings.
        is_followed: Whether rows with similar numbers have similar targets.

    Raises:
        DataError: If there are none.
    """
    columns = {str(name): column_of(table, name) for name in table.columns}
    empty = empty_columns(columns)
    if len(empty) == len(columns):
        raise DataError("every value of every column is missing", field="data")
    forms = {
        name: form for name, column in columns.items() if (form := text_form_of(column)) is not None
    }
    texts = [name for name, column in columns.items() if name not in forms and _is_prose(column)]
    named = identifiers_in(columns, forms, texts=texts)
    followed = [
        name
        for name in named
        if _is_sparse(columns[name]) and is_followed(columns[name].to_numpy(dtype=np.float64))
    ]
    named = [name for name in named if name not in followed]
    used = {
        name: column for name, column in columns.items() if name not in texts and name not in named
    }
    notes: list[str] = []
    if empty:
        notes.append(f"columns without any value: {listed(empty)}")
    constant = constant_columns({name: columns[name] for name in used})
    if constant:
        items = [f"{name} (always {value})" for name, value in constant.items()]
        notes.append(f"columns that are the same in every row are not used: {listed(items)}")
    notes += _notes_of_identifiers(named, columns)
    notes += [
        f"{name} differs in nearly every row, but rows with similar numbers have similar targets,"
        f" so it is used. If new rows have numbers beyond these, leave it out: --drop"
        f" {shlex.quote(name)}, or drop=[{name!r}] in Python"
        for name in followed
    ]
    if texts and used.keys() <= {*constant, *empty}:
        return UsableColumns(tuple(texts), tuple(texts), {}, tuple(notes))
    if not used:
        raise DataError(
            f"no column is left to predict the target from: {'; '.join(notes)}",
            field="data",
            next_step="Add columns that describe a row.",
        )
    if texts:
        notes.append(f"read as texts, by their words and parts of words: {listed(texts)}")
    notes += notes_of_columns({name: columns[name] for name in columns if name not in texts}, forms)
    notes += [
        note for name in used if name not in forms for note in _notes_of_many(name, columns[name])
    ]
    names = tuple(name for name in columns if name in used or name in texts)
    return UsableColumns(names, tuple(texts), forms, tuple(notes))


def _is_sparse(column: pd.Series) -> bool:
    """Return whether a column has whole numbers with far more gaps than a running number."""
    if column.dtype.kind not in "iuf" or column.isna().any():
        return False
    return len(column) <= _DENSEST * float(np.ptp(column.to_numpy(dtype=np.float64)))


def _is_prose(column: pd.Series) -> bool:
    """Return whether a column holds sentences rather than categories."""
    codes, distinct = distinct_values(column)
    known = codes[codes != MISSING]
    if not len(known) or not all(isinstance(value, str) for value in distinct):
        return False
    num_words = np.array([len(value.split()) for value in distinct])[known].mean()
    return bool(num_words >= _WORDS_OF_A_TEXT and len(distinct) > len(known) / 2)


def _notes_of_identifiers(names: Sequence[str], columns: dict[str, pd.Series]) -> list[str]:
    if not names:
        return []
    first = {name: columns[name].dropna().iloc[0] for name in names}
    items, pairs = [], []
    for name, value in first.items():
        if isinstance(value, str):
            if _PAIR.fullmatch(value.strip()):
                pairs.append(name)
            value = repr(value)
        items.append(f"{name} (such as {value})")
    notes = [f"columns that differ in nearly every row are not used: {listed(items)}"]
    if pairs:
        notes.append(
            f"two numbers in each cell, such as a latitude and a longitude: {listed(pairs)}. To"
            " use them, write each number in a column of its own"
        )
    return notes


def _notes_of_many(name: str, column: pd.Series) -> list[str]:
    num_values = 0
    if is_text(column):
        num_values = column.dropna().astype(str).nunique()
    if num_values <= MAX_CATEGORIES:
        return []
    return [
        f"{name} has {num_values} distinct texts, too many for a column each: numbers such as their"
        " frequency are used"
    ]

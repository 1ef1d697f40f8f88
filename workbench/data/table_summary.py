"""A summary of a table before training: its columns, gaps, classes and risks.

`columns` decides how a column is read, and `column_notes` writes notes on its form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench.data.column_encoding import TextForm, text_form_of
from workbench.data.column_notes import (
    constant_columns,
    empty_columns,
    identifiers_in,
    listed,
    notes_of_classes,
    notes_of_columns,
    sorted_by_time,
)
from workbench.data.dates import is_text
from workbench.data.leaks import find_leaks
from workbench.data.number_texts import NumberText
from workbench.foundation.formatting import format_count, format_number, format_percent

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["number", "date", "category", "text"]

_CONTENTS: dict[Kind, str] = {
    "number": "numbers",
    "date": "dates",
    "category": "categories",
    "text": "text",
}


@dataclass(frozen=True)
class TableSummary:
    """What a table consists of.

    Attributes:
        num_rows: Number of rows.
        num_columns: Number of columns that are inputs.
        num_of_kind: How many of these hold numbers, dates, categories, or text of too many
            categories.
        num_missing: Values of these columns that are missing.
        target: The name of the target.
        class_counts: Number of rows of each class, the most frequent first, or None for a
            regression.
        target_range: The least, the mean and the largest target, or None for a classification.
        notes: What the user should know.
    """

    num_rows: int
    num_columns: int
    num_of_kind: Mapping[Kind, int]
    num_missing: int
    target: str
    class_counts: Mapping[str, int] | None
    target_range: tuple[float, float, float] | None
    notes: tuple[str, ...]

    @property
    def majority_share(self) -> float | None:
        """The share of the most frequent class: the accuracy of always guessing it."""
        if self.class_counts is None:
            return None
        return max(self.class_counts.values()) / sum(self.class_counts.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain values by attribute, without the notes."""
        values = asdict(self) | {"majority_share": self.majority_share}
        del values["notes"]
        return values

    def lines(self) -> list[str]:
        """Return the summary as text, without the notes."""
        kinds = [
            f"{self.num_of_kind[kind]} of {content}"
            for kind, content in _CONTENTS.items()
            if self.num_of_kind[kind]
        ]
        size = (
            f"{format_count(self.num_rows, 'row')},"
            f" {format_count(self.num_columns, 'input column')}"
        )
        gaps = "none missing"
        if self.num_missing:
            total = self.num_rows * self.num_columns
            gaps = f"{self.num_missing:,} of {total:,} values are missing"
        lines = [f"The table has {size} ({', '.join(kinds)}); {gaps}."]
        if self.class_counts is not None and self.majority_share is not None:
            named = list(self.class_counts.items())
            shares = [
                f"{name} {format_percent(count / self.num_rows, has_tenths=True)}"
                for name, count in named
            ]
            lines.append(
                f"{self.target} has {format_count(len(named), 'class', 'classes')}:"
                f" {listed(shares)}. Always guessing {named[0][0]} has an accuracy of"
                f" {self.majority_share:.3f}."
            )
        if self.target_range is not None:
            least, mean, most = map(format_number, self.target_range)
            lines.append(f"{self.target} is a number from {least} to {most}, {mean} in the mean.")
        return lines


def summarise(
    columns: Mapping[str, pd.Series],
    target: pd.Series,
    *,
    is_classification: bool,
    max_categories: int,
    dropped: Sequence[str],
    notes: Sequence[str] = (),
    is_split_at_random: bool = True,
) -> TableSummary:
    """Summarise a table.

    Args:
        columns: The inputs, by name.
        target: The column to predict, none missing, as numbers in a regression.
        is_classification: Whether the target is one of classes.
        max_categories: Maximum number of categories that get a column each.
        dropped: The columns that are dropped already.
        notes: What the user should know about how the table is read.
        is_split_at_random: Whether validation rows are drawn at random.
    """
    forms = {
        name: form for name, column in columns.items() if (form := text_form_of(column)) is not None
    }
    kinds = [_kind_of(column, forms.get(name), max_categories) for name, column in columns.items()]
    class_counts: dict[str, int] | None = None
    target_range: tuple[float, float, float] | None = None
    target_notes: list[str] = []
    if is_classification:
        counts = target.astype(str).value_counts()
        class_counts = {str(name): int(count) for name, count in counts.items()}
        targets = np.unique(target.astype(str), return_inverse=True)[1]
        target_notes = notes_of_classes(target)
    else:
        targets = target.to_numpy(dtype=np.float64)
        target_range = (float(targets.min()), float(targets.mean()), float(targets.max()))
    named = identifiers_in(columns, forms)
    others = {name: column for name, column in columns.items() if name not in named}
    leaks = find_leaks(others, targets, forms, is_classification=is_classification)
    order_notes: list[str] = []
    if is_split_at_random:
        order_notes = _notes_of_order(columns, forms)
    # Each option includes the columns of the notes before it, so that following one note does not
    # undo another.
    empty, constant = empty_columns(others), constant_columns(others)
    to_drop = [*dropped, *named, *empty, *constant]
    option = _option_to_drop(to_drop)
    with_leaks = _option_to_drop(list(dict.fromkeys([*to_drop, *(leak.name for leak in leaks)])))
    return TableSummary(
        num_rows=len(target),
        num_columns=len(columns),
        num_of_kind={kind: kinds.count(kind) for kind in _CONTENTS},
        num_missing=sum(_num_missing(column, forms.get(name)) for name, column in columns.items()),
        target=str(target.name),
        class_counts=class_counts,
        target_range=target_range,
        notes=(
            *notes,
            *target_notes,
            *_notes_of_identifiers(named, option),
            *_notes_of_constants(empty, constant, option),
            *notes_of_columns(columns, forms),
            *order_notes,
            *(leak.note(f"`{target.name}`", with_leaks) for leak in leaks),
        ),
    )


def _kind_of(column: pd.Series, form: TextForm | None, max_categories: int) -> Kind:
    from pandas.api import types

    if isinstance(form, str) or types.is_datetime64_any_dtype(column):
        return "date"
    if isinstance(form, NumberText) or not is_text(column):
        return "number"
    return "category" if column.nunique(dropna=False) <= max_categories else "text"


def _num_missing(column: pd.Series, form: TextForm | None) -> int:
    if isinstance(form, NumberText):
        return int(np.isnan(form.parse_all(column)).sum())
    return int(column.isna().sum())


def _notes_of_order(columns: Mapping[str, pd.Series], forms: Mapping[str, TextForm]) -> list[str]:
    if (name := sorted_by_time(columns, forms)) is None:
        return []
    return [
        f"the rows are sorted by {name}, and validation rows are drawn from all of them, so scores"
        " say little about later rows. If you will predict these, set data: {validation: last}"
    ]


def _notes_of_identifiers(names: Sequence[str], option: str) -> list[str]:
    if not names:
        return []
    columns, verb, pronoun = "column", "differs", "it"
    if len(names) > 1:
        columns, verb, pronoun = "columns", "differ", "them"
    return [
        f"{columns} {listed([repr(name) for name in names])} {verb} in nearly every row, as"
        f" identifiers do. Leave {pronoun} out with {option}"
    ]


def _notes_of_constants(
    empty: Sequence[str], constant: Mapping[str, str], option: str
) -> list[str]:
    """Return a note on columns that are the same in every row, which no model can learn from."""
    if not (names := [*empty, *constant]):
        return []
    reasons = [f"{name!r} has no value" for name in empty]
    reasons += [f"{name!r} is always {value}" for name, value in constant.items()]
    which, pronoun = "this column", "it"
    if len(names) > 1:
        which, pronoun = "these columns", "them"
    return [
        f"{listed(reasons)}: nothing can be learnt from {which}. Leave {pronoun} out with {option}"
    ]


def _option_to_drop(names: Sequence[str]) -> str:
    return (
        "data: {drop:"
        f" [{', '.join(name if name.isidentifier() else repr(name) for name in names)}]}}"
    )

"""Columns of a table as numbers: learns an encoding from the train rows and applies it to any rows.

A column is learnt once, from rows that the caller chooses, and then encodes unseen rows.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.data.dates import ISO, Cycle, as_times, cycles_of, date_format_of, is_text, place_in
from workbench.data.number_texts import PLAIN_NUMBERS, NumberText, number_text_of, text_of_category
from workbench.data.splits import divisor
from workbench.foundation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

ColumnKind = Literal["number", "time", "category", "frequency"]
TextForm = str | NumberText
"""How a column writes its values as text: the format of dates, or how numbers are written."""

_MAX_ROWS = 5


@dataclass(frozen=True)
class Column:
    """The learnt encoding of one column.

    Attributes:
        name: Its name in the table.
        kind: Numbers and times are standardised, and times have their place in `cycles`. A
            category has a column for each value. A frequency is the rank of how often a value
            occurs.
        mean: Mean of the known values, or ranks, of the train rows.
        deviation: The divisor of the difference from the mean.
        marks_missing: Whether an extra column marks missing values.
        ranks: Number of each category, the most frequent first. The key None is a missing value.
        date_format: The format of times in text.
        cycles: The cycles in which a time also has its place, as two numbers each.
        number_text: How numbers are written where they come as text.
    """

    name: str
    kind: ColumnKind
    mean: float = 0.0
    deviation: float = 1.0
    marks_missing: bool = False
    ranks: dict[str | None, int] = field(default_factory=dict, repr=False)
    date_format: str = ISO
    cycles: tuple[Cycle, ...] = ()
    number_text: NumberText = PLAIN_NUMBERS

    @property
    def width(self) -> int:
        """The number of encoded numbers per value."""
        if self.kind == "category":
            return len(self.ranks)
        # A place in a cycle is a sine and a cosine.
        return 1 + self.marks_missing + 2 * len(self.cycles)

    def encode(self, values: pd.Series) -> np.ndarray:
        """Return rows as (rows, width) numbers, with zeros for an unknown category.

        Args:
            values: The column in any table that has it.

        Raises:
            DataError: If a number is infinite, or a value is not a number or date as in training.
                Rows are numbered by the index of the column.
        """
        numbers = self._numbers(values)
        if self.kind == "category":
            return (numbers[:, None] == np.arange(len(self.ranks))).astype(np.float64)
        missing = np.isnan(numbers)
        columns = [np.where(missing, 0.0, (numbers - self.mean) / self.deviation)]
        if self.marks_missing:
            columns.append(missing.astype(np.float64))
        for cycle in self.cycles:
            columns += [np.where(missing, 0.0, place) for place in place_in(cycle, numbers)]
        return np.stack(columns, axis=1)

    def _numbers(self, values: pd.Series) -> np.ndarray:
        """Return the numbers, or the rank of each category with NaN for unknown ones."""
        if self.kind == "time":
            return as_times(values, self.date_format)
        if self.kind == "number":
            return _as_numbers(values, self.number_text)
        known = {text for text in self.ranks if text is not None}
        ranks = [self.ranks.get(text, -1) for text in _as_texts(values, known)]
        return np.where(np.array(ranks) < 0, np.nan, np.array(ranks, dtype=np.float64))


def text_form_of(values: pd.Series) -> TextForm | None:
    """Return how a column writes dates or numbers as text, or None for other columns.

    Args:
        values: The column, all rows of it.
    """
    return date_format_of(values) or number_text_of(values)


def learn_column(values: pd.Series, *, max_categories: int, form: TextForm | None = None) -> Column:
    """Learn a column from the train rows.

    Args:
        values: The train rows.
        max_categories: Maximum number of categories that get a column each, at least 1.
        form: How the column writes dates or numbers as text, as `text_form_of` returns it.

    Raises:
        DataError: If a number is infinite.
    """
    from pandas.api import types

    name = str(values.name)
    if isinstance(form, str) or types.is_datetime64_any_dtype(values):
        date_format = form if isinstance(form, str) else ISO
        times = as_times(values, date_format)
        learnt = _standardised(name, "time", times, {})
        return replace(learnt, date_format=date_format, cycles=cycles_of(times[~np.isnan(times)]))
    if form is not None:
        return replace(
            _standardised(name, "number", _as_numbers(values, form), {}), number_text=form
        )
    if types.is_numeric_dtype(values) or types.is_timedelta64_dtype(values):
        return _standardised(name, "number", _as_numbers(values), {})
    counts: dict[str | None, int] = {}
    texts = _as_texts(values)
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    ordered = sorted(counts, key=lambda text: (-counts[text], text is None, text or ""))
    ranks = {text: number for number, text in enumerate(ordered)}
    if len(ranks) <= max_categories:
        return Column(name, "category", ranks=ranks)
    return _standardised(name, "frequency", np.array([float(ranks[text]) for text in texts]), ranks)


def _standardised(
    name: str, kind: ColumnKind, numbers: np.ndarray, ranks: dict[str | None, int]
) -> Column:
    missing = np.isnan(numbers)
    known = numbers[~missing]
    mean, deviation = 0.0, 0.0
    if len(known):
        mean, deviation = known.mean(), known.std()
    scale = divisor(np.asarray(mean), np.asarray(deviation))
    return Column(name, kind, float(mean), float(scale), bool(missing.any()), ranks)


def check_numbers(table: pd.DataFrame) -> None:
    """Reject infinite numbers.

    Args:
        table: Any columns.

    Raises:
        DataError: If some are infinite. It shows the column, and rows by the index.
    """
    from pandas.api import types

    for place in range(len(table.columns)):
        if types.is_numeric_dtype(table.dtypes.iloc[place]):
            _as_numbers(table.iloc[:, place])


def _as_numbers(values: pd.Series, form: NumberText | None = None) -> np.ndarray:
    from pandas.api import types

    try:
        if types.is_datetime64_any_dtype(values):
            raise TypeError("dates are not numbers")
        if types.is_timedelta64_dtype(values):
            values = values.dt.total_seconds()
        numbers = _parsed(values, form)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the column {values.name!r} held numbers in the training data: {error}",
            next_step="Convert the column to the type that it had there.",
        ) from error
    wrong = np.flatnonzero(np.isinf(numbers))
    if len(wrong):
        rows = ", ".join(map(str, values.index[wrong[:_MAX_ROWS]])) + ", ..." * (
            len(wrong) > _MAX_ROWS
        )
        raise DataError(
            f"the column {values.name!r} is infinite in row {rows} (from 0)",
            allowed="finite numbers, or none where a value is missing",
            next_step="Correct it, or leave the column out.",
        )
    return numbers


def _parsed(values: pd.Series, form: NumberText | None) -> np.ndarray:
    if form is not None and form.has_decimal_comma and is_text(values):
        return form.parse_all(values)  # 1.200 would be 1.2 otherwise
    try:
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        if form is None or not is_text(values):
            raise
        return form.parse_all(values)


def _as_texts(values: pd.Series, known: Container[str] = ()) -> list[str | None]:
    # A missing value is a separate category, under a key that no text can equal.
    return [
        None if missing else text_of_category(value, known)
        for value, missing in zip(values, values.isna(), strict=True)
    ]

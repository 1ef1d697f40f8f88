"""New rows that are unlike what a model learned, and what is said about them.

A column of numbers is compared with its range in the rows to learn from, and so is the prediction:
nobody has tested the model far outside. Values that cannot be read, or that training never saw, are
accepted with a note, because the model has an answer for them. `predict.py` of a bundle has copies
of the functions that write notes, so that it says the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.data.dates import is_text, no_dates
from workbench.data.number_texts import (
    MISSING_TEXTS,
    NEW_FACTORS,
    category_in,
    known_texts,
    new_unit,
    spellings,
    text_of_category,
)
from workbench.data.plain_frames import MISSING, column_of, distinct_values
from workbench.foundation.errors import DataError
from workbench.foundation.formatting import format_count, format_number

if TYPE_CHECKING:
    import pandas as pd

    from workbench.data.column_encoding import Column

# A number is far outside if it is further out than the learned range is wide.
WIDTHS = 1.0
PREDICTION = "prediction"
TRUTHS = {"true": 1.0, "false": 0.0}
"""The texts of truth values, in small letters, and their numbers."""
_MISSING_TEXT = "\0"
"""Takes the place of a missing category, which no category can have."""


class UnusualValue(NamedTuple):
    """A number far outside of the range that was learned."""

    row: int
    column: str
    value: float
    low: float
    high: float


def ranges_of(samples: Any) -> dict[str, tuple[float, float]]:
    """Return the range of each column of numbers of a table.

    Args:
        samples: The samples to learn from. Other samples than tables have no ranges.
    """
    ranges = {}
    for name, numbers in numbers_in(samples).items():
        known = numbers[np.isfinite(numbers)]
        if len(known):
            ranges[name] = (float(known.min()), float(known.max()))
    return ranges


def numbers_in(samples: Any) -> dict[str, np.ndarray]:
    """Return the columns of a table that hold numbers. Other samples have none.

    Args:
        samples: Samples of any kind.
    """
    columns = {str(name): column_of(samples, name) for name in getattr(samples, "columns", ())}
    return {
        name: column.to_numpy(dtype=np.float64, na_value=np.nan)
        for name, column in columns.items()
        if column.dtype.kind in "iuf"
    }


def unusual_values(
    numbers: Mapping[str, np.ndarray], ranges: Mapping[str, tuple[float, float]]
) -> list[UnusualValue]:
    """Return the numbers that are far outside of what was learned, by row.

    Args:
        numbers: The columns of numbers, and the predicted numbers as PREDICTION.
        ranges: The range of each in the rows to learn from.
    """
    unusual = []
    for name, ends in ranges.items():
        if name in numbers:
            unusual += far_outside(name, numbers[name], ends)
    return sorted(unusual)


def describe_unusual(values: Sequence[UnusualValue], num_rows: int) -> str:
    """Return a note on unusual values, at least one.

    Args:
        values: As `unusual_values` returns them.
        num_rows: Number of rows that were predicted.
    """
    rows = {value.row for value in values}
    # A wild prediction says more than the value that led to it.
    first = next((value for value in values if value.column == PREDICTION), values[0])
    subject = "are" if len(rows) > 1 else "is"
    low, high = format_number(first.low), format_number(first.high)
    return (
        f"{format_count(len(rows), 'row')} of {num_rows} {subject} far outside of what was learned:"
        f" row {first.row} (from 0) has {first.column} {format_number(first.value)}, learned were"
        f" {low} to {high}. Do not rely on its prediction"
    )


def far_outside(name: str, numbers: np.ndarray, ends: tuple[float, float]) -> list[UnusualValue]:
    """Return the numbers of a column that are further outside of a range than it is wide."""
    low, high = ends
    margin = WIDTHS * (high - low)
    far = np.flatnonzero((numbers < low - margin) | (numbers > high + margin))
    return [UnusualValue(int(row), name, float(numbers[row]), low, high) for row in far]


def rows_named(rows: Sequence[int] | np.ndarray) -> str:
    """Return the numbers of some rows in words, at least one."""
    listed = ", ".join(str(int(row)) for row in rows[:5])
    if len(rows) > 5:
        listed += f" and {len(rows) - 5} more"
    return f"{'row' if len(rows) == 1 else 'rows'} {listed} (from 0)"


def note_of_unit(name: str, unit: str) -> str:
    """Return a note on the unit that only new rows write next to the numbers of a column."""
    return (
        f"column {name!r} has {unit} next to its numbers, which it had not in training: they are"
        " read without it"
    )


def notes_of_bare(
    name: str, unit: str, notation: str, values: Sequence[object], numbers: np.ndarray
) -> list[str]:
    """Return a note on numbers without the sign or word of training, if it changes what they mean.

    In a column of shares such as 58%, 0.58 may mean the same. Next to durations such as 2h 5m, 90
    may be minutes.

    Args:
        name: The column.
        unit: The sign or word next to its numbers in training, or "".
        notation: Its notation, as in `NumberText`.
        values: The values as they were given.
        numbers: What they are read as, NaN for missing ones, shape [values].
    """
    read_in = "bytes" if notation == "bytes" else ""
    if notation in ("durations", "clock", "laps"):
        read_in = "seconds"
    if unit and (unit in NEW_FACTORS or unit in "%\u2030"):
        read_in = unit
    if not read_in:
        return []
    rows = []
    for row in np.flatnonzero(np.isfinite(numbers)).tolist():
        text = str(values[row]).strip()
        is_bare = unit not in text if unit else re.fullmatch(r"[+-]?[0-9.,]+", text)
        if is_bare:
            rows.append(row)
    if not rows:
        return []
    text, lost = str(values[rows[0]]).strip(), unit or "unit"
    return [
        f"column {name!r} has no {lost} in {rows_named(rows)}, which all its numbers had in"
        f" training: {text} is read as {text} {read_in}"
    ]


def notes_of_short(rows: Sequence[int]) -> list[str]:
    """Return a note on rows of a file that end before the last column that the model needs."""
    if not rows:
        return []
    have = "has" if len(rows) == 1 else "have"
    return [f"{rows_named(rows)} {have} fewer cells than the header: the others count as missing"]


def notes_of_unreadable(
    name: str, kind: str, texts: Mapping[int, str], num_read: int, error: Exception
) -> list[str]:
    """Return a note on texts that are not what a column holds, and therefore count as missing.

    Args:
        name: The column.
        kind: What it holds: number or date.
        texts: The texts that are something else, by row. At least one.
        num_read: The number of values that can be read.
        error: Is raised if no more values than texts can be read: this may be another column.
    """
    if len(texts) >= num_read:
        raise error
    row, text = next(iter(texts.items()))
    if len(texts) == 1:
        return [
            f"column {name!r} has {text!r} in row {row} (from 0), which is not a {kind}: it counts"
            " as missing"
        ]
    return [
        f"column {name!r} has values that are not {kind}s in {rows_named(list(texts))}, such as"
        f" {text!r}: they count as missing"
    ]


def notes_of_numbers(name: str, numbers: np.ndarray, has_missing: bool) -> list[str]:
    """Return notes on the numbers of a column. Infinite ones become missing ones.

    `has_missing` is whether some were missing in training.
    """
    notes = []
    if len(rows := np.flatnonzero(np.isinf(numbers))):
        notes.append(f"column {name!r} is infinite in {rows_named(rows)}: it counts as missing")
        numbers[rows] = np.nan
    if not has_missing and len(rows := np.flatnonzero(np.isnan(numbers))):
        note = f"column {name!r} is missing in {rows_named(rows)}, and was never missing in"
        notes.append(f"{note} training: the mean of the training data is used")
    return notes


def notes_of_empty(name: str, texts: Sequence[str]) -> list[str]:
    """Return a note on missing texts of a column that was never empty in training."""
    if not (rows := [row for row, text in enumerate(texts) if not text]):
        return []
    note = f"column {name!r} is missing in {rows_named(rows)}, and was never missing in training"
    return [f"{note}: it counts as an empty text"]


def notes_of_unknown(
    name: str, texts: Sequence[str], known: set[str], missing: set[str]
) -> list[str]:
    """Return notes on texts of a column that are not known. Some of them mean a missing value."""
    unknown = [row for row, text in enumerate(texts) if text not in known]
    absent = [row for row in unknown if texts[row] in missing]
    new = [row for row in unknown if texts[row] not in missing]
    notes = []
    if absent:
        note = f"column {name!r} is missing in {rows_named(absent)}, and was never missing in"
        notes.append(f"{note} training: it counts as an unknown category")
    if new:
        notes.append(
            f"column {name!r} contains values that did not occur in training in {rows_named(new)},"
            f" such as {texts[new[0]]!r}: they count as unknown categories"
        )
    return notes


def as_learned(table: pd.DataFrame, columns: Iterable[Column]) -> tuple[pd.DataFrame, list[str]]:
    """Return new rows as the columns were learned, and notes on values that training never saw.

    Categories have the spelling of training. Texts are the numbers or dates that they mean, so that
    several models need not read them again, and those that cannot be read are missing.

    Args:
        table: The new rows. Columns that they lack are skipped.
        columns: The learned columns of all models. Several may have the same name, because each
            model has its own train rows.

    Raises:
        DataError: If a column holds values of another kind.
    """
    learned: dict[str, list[Column]] = {}
    for column in columns:
        learned.setdefault(column.name, []).append(column)
    names = {str(name): name for name in table.columns}
    changed: dict[Any, pd.Series] = {}
    notes: list[str] = []
    for name, alike in learned.items():
        if name not in names:
            continue
        values = column_of(table, names[name])
        convert = _as_categories if alike[0].ranks else _as_readable
        converted, own_notes = convert(values, alike)
        notes += own_notes
        if converted is not values:
            changed[names[name]] = converted
    if changed:
        table = table.copy(deep=False)
        for name, converted in changed.items():
            table[name] = converted
    return table, notes


def _as_categories(values: pd.Series, columns: Sequence[Column]) -> tuple[pd.Series, list[str]]:
    import pandas as pd

    ranks = [column.ranks for column in columns]
    codes, distinct = distinct_values(values)
    texts = [text_of_category(value, ranks[0]) for value in distinct]
    has_missing = any(None in known for known in ranks)
    is_complete = has_missing or (codes != MISSING).all()
    if is_complete and all(any(text in known for known in ranks) for text in texts):
        return values, []
    ordered = dict.fromkeys(text for texts in ranks for text in texts if text is not None)
    known, spelled = set(ordered), spellings(ordered)
    texts = [text_of_category(value, known) for value in distinct]
    meant = [text if text in known else category_in(text, spelled) for text in texts]
    # The last place is that of missing values. The others are missing in bundles as well.
    cells = [*(None if text in MISSING_TEXTS - known else text for text in meant), None]
    if cells != [*texts, None]:
        given = np.array(cells, dtype=object)[codes]
        values = pd.Series(given, index=values.index, name=values.name)
    shown = np.array([_MISSING_TEXT if text is None else text for text in cells], dtype=object)
    known |= {_MISSING_TEXT} if has_missing else set()
    return values, notes_of_unknown(str(values.name), shown[codes].tolist(), known, {_MISSING_TEXT})


def _as_readable(values: pd.Series, columns: Sequence[Column]) -> tuple[pd.Series, list[str]]:
    import pandas as pd

    column, name = columns[0], str(values.name)
    text = column.number_text
    has_missing = any(alike.marks_missing for alike in columns)
    if column.kind == "number" and values.dtype.kind in "iufb":
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        infinite = np.isinf(numbers)
        notes = notes_of_bare(name, text.unit, text.notation, values.tolist(), numbers)
        if infinite.any():
            values = values.mask(infinite)
        return values, [*notes, *notes_of_numbers(name, numbers.copy(), has_missing)]
    if column.kind == "number" and is_text(values):
        values = _with_truths(values)
    notes = []
    try:
        numbers = column.numbers(values)
    except DataError as error:
        rows = _unreadable(values, column)
        if not len(rows):
            raise
        kept = values.astype(object)
        kept.iloc[rows] = None
        numbers = column.numbers(kept)
        texts = {int(row): str(values.iloc[row]) for row in rows}
        kind = "date" if column.kind == "time" else "number"
        num_read = int((~np.isnan(numbers)).sum())
        notes += notes_of_unreadable(name, kind, texts, num_read, error)
    has_sign = text.unit or text.notation
    if column.kind == "number" and is_text(values) and not has_sign:
        unit = new_unit(known_texts(values))
        notes += [note_of_unit(name, unit)] if unit else []
    if column.kind == "number":
        notes += notes_of_bare(name, text.unit, text.notation, values.tolist(), numbers)
    notes += notes_of_numbers(name, numbers, has_missing)
    if column.kind == "time":
        numbers = (numbers / 1000.0).astype("datetime64[us]")
    return pd.Series(numbers, index=values.index, name=values.name), notes


def _with_truths(values: pd.Series) -> pd.Series:
    """Return a column in which true and false are numbers, also as texts, as bundles read them."""

    def number_of(value: object) -> float:
        text = value if isinstance(value, str | bool | np.bool_) else ""
        return TRUTHS.get(str(text).strip().lower(), math.nan)

    truths = values.map(number_of).astype(float)
    return values.where(truths.isna(), truths)


def _unreadable(values: pd.Series, column: Column) -> np.ndarray:
    """Return the positions of the texts of a column that are neither missing nor what it holds."""
    if not is_text(values):
        return np.empty(0, dtype=np.int64)
    if column.kind == "time":
        return no_dates(values, column.date_format)
    form = column.number_text
    if not form.has_decimal_comma:
        form = form.for_new(known_texts(values))
    return form.unreadable(values)

"""Notes for users on how the columns of a table are read: texts, units, identifiers, constants.

Only the form of a column counts: how its values are written and how many differ. The caller
decides what to do about it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.data.column_encoding import TextForm, are_infinite
from workbench.data.dates import (
    ISO,
    as_times,
    date_format_of,
    in_words,
    is_text,
    no_dates,
    num_in_iso,
)
from workbench.data.number_texts import (
    NumberText,
    known_texts,
    number_text_of,
    plain_signs,
    units_of,
    without_factor,
    without_units,
)
from workbench.foundation.formatting import format_count

if TYPE_CHECKING:
    import pandas as pd

# A text column with this fraction of distinct values identifies rows.
_IDENTIFIER_FRACTION = 0.9
# From this fraction of dates or numbers on, the other values are reported.
_NEARLY = 0.8
_IDENTIFIER = re.compile(r"(^|[^a-z])(id|uuid|guid|index|key)$|^unnamed: \d+$", re.IGNORECASE)
_CAMEL_IDENTIFIER = re.compile(r"[a-z](Id|ID)$")
_RUNNING_NUMBER = re.compile(
    r"(^|[^a-z])(nr|no|num|number|row|line|record|serial|seq|sequence)\.?$|^#$", re.I
)
_TIME = re.compile(
    r"(year|month|week|day|date|hour|minute|second|time|quarter|period|step|epoch)s?$|(^|[_"
    r" ])(t|h|min|m?s)$",
    re.IGNORECASE,
)
# With fewer rows, numbers in steps of 1 may as well be what was measured, such as doses.
_FEWEST_COUNTED = 20
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_NOTATIONS = {
    "factors": "numbers with words such as k and M, which multiply them",
    "bytes": "bytes",
    "durations": "durations, in seconds",
    "clock": "hours and minutes, in seconds",
    "laps": "minutes and seconds, in seconds",
    "angles": "degrees, where south and west are negative",
}
_MAX_NAMED = 5
# A column of numbers has few units: with more, the words are parts of codes, such as 12A and 7C.
_MAX_UNITS = 3
# Up to this many different texts are sizes or codes, so they are classes whatever units they have.
_MAX_CLASSES = 20


def identifiers_in(
    columns: Mapping[str, pd.Series], forms: Mapping[str, TextForm], *, texts: Container[str] = ()
) -> list[str]:
    """Return the names of the columns that identify rows.

    These are texts that differ nearly everywhere, numbers with such a name, and columns that count
    the rows. If every column were one of these, the columns that count are kept as inputs.

    Args:
        columns: The columns, by name.
        forms: How columns write dates or numbers as text. Columns without either are missing.
        texts: The columns that hold sentences, which identify nothing.
    """
    named = [
        name
        for name, column in columns.items()
        if name not in texts and _is_identifier(name, column, forms.get(name))
    ]
    counting = [
        name for name, column in columns.items() if name not in named and _counts_rows(name, column)
    ]
    if len(named) + len(counting) == len(columns):
        counting = []
    return [name for name in columns if name in named or name in counting]


def _is_identifier(name: str, column: pd.Series, form: TextForm | None) -> bool:
    known = column.dropna()
    if form is not None or not len(known):
        return False
    if is_text(column):
        if _units_apart(column) or _decimal_comma_in(column):
            return False  # these are also numbers
        return known.astype(str).nunique() > _IDENTIFIER_FRACTION * len(known)
    if (
        not (_IDENTIFIER.search(name) or _CAMEL_IDENTIFIER.search(name))
        or column.dtype.kind not in "iuf"
    ):
        return False
    return bool(known.is_unique and np.array_equal(known, np.round(known)))


def _counts_rows(name: str, column: pd.Series) -> bool:
    """Return whether a column is a running number: 1, 2, 3 in the order of the rows, not a time.

    A column with a name such as `row` may be in any order, as in a table that was shuffled.
    """
    if column.dtype.kind not in "iuf" or len(column) < _FEWEST_COUNTED or column.isna().any():
        return False
    if _TIME.search(name):
        return False
    numbers = column.to_numpy(dtype=np.float64)
    if not numbers[0].is_integer():
        return False
    if column.index.dtype.kind == "i" and np.ptp(numbers - column.index.to_numpy()) == 0:
        return True  # rows in between may have been removed
    if _RUNNING_NUMBER.search(name):
        numbers = np.sort(numbers)
    return bool(np.all(np.diff(numbers) == 1))


def sorted_by_time(columns: Mapping[str, pd.Series], forms: Mapping[str, TextForm]) -> str | None:
    """Return the column of times by which rows are sorted in either direction, or None.

    Args:
        columns: The columns, by name.
        forms: How columns write dates or numbers as text. Columns without either are missing.
    """
    for name, column in columns.items():
        form = forms.get(name)
        if isinstance(form, str):
            times = as_times(column, form)
        elif column.dtype.kind == "M":
            times = as_times(column, ISO)
        elif column.dtype.kind in "iuf" and _TIME.search(name):
            times = column.to_numpy(dtype=np.float64)
        else:
            continue
        known = times[~np.isnan(times)]
        steps = np.diff(known)
        num_changes = np.count_nonzero(steps)
        if num_changes >= _FEWEST_COUNTED and ((steps >= 0).all() or (steps <= 0).all()):
            return name
    return None


def empty_columns(columns: Mapping[str, pd.Series]) -> list[str]:
    """Return the names of the columns without any value."""
    return [name for name, column in columns.items() if column.isna().all()]


def constant_columns(columns: Mapping[str, pd.Series]) -> dict[str, str]:
    """Return the columns whose value is known and the same in every row, with how it is written."""
    return {
        name: repr(value) if isinstance(value := column.iloc[0], str) else str(value)
        for name, column in columns.items()
        if column.notna().all() and _are_same(column)
    }


def _are_same(column: pd.Series) -> bool:
    """Return whether all values are written in the same way. Most columns differ in two rows."""
    first = str(column.iloc[0])
    return all(str(value) == first for value in column)


def notes_of_columns(columns: Mapping[str, pd.Series], forms: Mapping[str, TextForm]) -> list[str]:
    """Return notes on columns of text that are read as numbers or dates, or nearly would be.

    Args:
        columns: The columns.
        forms: How columns write dates or numbers as text. Columns without either are missing.
    """
    notes = []
    dates = [
        f"{name} ({_dates_in_words(columns[name], form)})"
        for name, form in forms.items()
        if isinstance(form, str)
    ]
    if dates:
        notes.append(f"read as dates: {listed(dates)}")
    numbers = {name: form for name, form in forms.items() if isinstance(form, NumberText)}
    for what, of_kind in (
        ("thousands separators", [name for name, form in numbers.items() if form.has_thousands]),
        ("decimal commas", [name for name, form in numbers.items() if form.has_decimal_comma]),
    ):
        if of_kind:
            shown = listed([_example_with_sign(name, columns[name]) for name in of_kind])
            notes.append(f"read as numbers with {what}: {shown}")
    for notation, what in _NOTATIONS.items():
        if noted := [
            f"{name} (such as {_first_in(notation, columns[name])!r})"
            for name, form in numbers.items()
            if form.notation == notation
        ]:
            notes.append(f"read as {what}: {listed(noted)}")
    if with_unit := [
        _example_of_unit(name, columns[name], form) for name, form in numbers.items() if form.unit
    ]:
        notes.append(f"read as numbers without their unit: {listed(with_unit)}")
    notes += [
        _note_of_others(name, columns[name], form) for name, form in numbers.items() if form.missing
    ]
    others = {
        name: column for name, column in columns.items() if name not in forms and is_text(column)
    }
    with_commas = {
        name: number for name, column in others.items() if (number := _decimal_comma_in(column))
    }
    if with_commas:
        named = listed([f"{name} (such as {number!r})" for name, number in with_commas.items()])
        notes.append(
            f"texts, as their numbers have decimal commas: {named}. To have them read as numbers,"
            " write them with points"
        )
    return notes + [
        note
        for name, column in others.items()
        if name not in with_commas
        for note in _notes_of_text(name, column)
    ]


def _first_in(notation: str, column: pd.Series) -> str:
    """Return the first text of a column that has a notation."""
    texts = known_texts(column)
    return next(text for text in texts if without_factor(text, notation)[0] != text)


def notes_of_numeric_target(target: pd.Series, name: str) -> list[str]:
    """Return notes on how a target writes its numbers as text, or none for other targets.

    Args:
        target: The column to predict, as it was given.
        name: What to call it.
    """
    form = number_text_of(target, min_share=1.0)
    if form is None:
        return []
    return notes_of_columns({name: target}, {name: form})


def without_infinite(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return a table in which infinite numbers are missing, and a note if there are some.

    They come from divisions by 0, and say as little as a gap.

    Args:
        table: Any columns, with different names.
    """
    from pandas.api import types

    items = []
    for name in table.columns:
        if not types.is_numeric_dtype(table[name].dtype):
            continue
        wrong = are_infinite(table[name])
        if wrong.any():
            items.append(f"{name} ({format_count(int(wrong.sum()), 'row')})")
            table = table.assign(**{name: table[name].mask(wrong)})
    if not items:
        return table, []
    return table, [f"infinite numbers count as missing: {listed(items)}"]


def listed(items: Sequence[str]) -> str:
    """Return the first items, with dots if there are more."""
    return ", ".join(items[:_MAX_NAMED]) + ", ..." * (len(items) > _MAX_NAMED)


def _example_with_sign(name: str, column: pd.Series) -> str:
    texts = known_texts(column)
    # A column such as 950 and 1.200 has no commas at all.
    written = next((text for sign in ",." for text in texts if sign in text), next(iter(texts)))
    return f"{name} (such as {written!r})"


def _dates_in_words(column: pd.Series, form: str) -> str:
    num_others = num_in_iso(column, form)
    if not num_others:
        return in_words(form)
    return (
        f"{in_words(form)}, but year-month-day in {num_others:,} of {column.notna().sum():,} cells"
    )


def _example_of_unit(name: str, column: pd.Series, form: NumberText) -> str:
    counts = known_texts(column)
    num_plain = units_of(counts).get("", 0)
    example = next(text for text in counts if form.unit in units_of({text: 1}))
    if not num_plain:
        return f"{name} (such as {example!r})"
    return (
        f"{name} (such as {example!r}, but {num_plain} of {sum(counts.values())} cells have none)"
    )


def _note_of_others(name: str, column: pd.Series, form: NumberText) -> str:
    rows = _rows_of_others(column, form)
    share = f"{len(rows)} of {len(column)} values ({len(rows) / len(column):.1%})"
    first = {column.iloc[row]: row for row in reversed(rows)}
    different = sorted(first.items(), key=lambda item: item[1])[:2]
    shown = " and ".join(f"{text!r} in row {column.index[row]}" for text, row in different)
    return (
        f"{name} is read as numbers: {share} are something else and count as missing, such as"
        f" {shown} (from 0)"
    )


def _rows_of_others(column: pd.Series, form: NumberText) -> np.ndarray:
    """Return the places of the texts that are neither numbers nor usual markers of missing ones."""
    return np.flatnonzero(
        [isinstance(value, str) and value.strip().lower() in form.missing for value in column]
    )


def _decimal_comma_in(column: pd.Series) -> str | None:
    """Return a number with a decimal comma if a column consists of nearly nothing else."""
    values, _ = without_units(known_texts(column))
    numbers = [value for value, number in values.items() if _DECIMAL_COMMA.fullmatch(number)]
    if not numbers or len(numbers) < _NEARLY * len(values):
        return None
    return numbers[0]


def notes_of_classes(target: pd.Series) -> list[str]:
    """Return a note if classes are numbers with several units, or numbers and a few other texts.

    Args:
        target: The column to predict, none missing.
    """
    if not is_text(target):
        return []
    is_of_few = target.nunique() <= _MAX_CLASSES
    if not is_of_few and (units := _units_apart(target)):
        return [
            f"{target.name} is taken as classes: its numbers have no common unit"
            f" ({_shares_of(units)}). {_first_of_unit(target, units[-1][0])}. To have a number"
            " predicted, write all with the same unit"
        ]
    if (numbers := number_text_of(target, min_share=_NEARLY)) is None:
        return []
    if not len(rows := _rows_of_others(target, numbers)):
        return []
    stray = f"row {target.index[rows[0]]} (from 0) holds {target.iloc[rows[0]]!r}"
    return [
        f"{target.name} is taken as classes: {stray}, although most others are numbers. To have"
        " a number predicted, remove such rows"
    ]


def _notes_of_units(name: str, column: pd.Series) -> list[str]:
    if column.nunique() <= _MAX_CLASSES:  # such as the classes 7a, 7b and 8a
        return []
    if not (units := _units_apart(column)):
        return []
    return [
        f"{name} is read as text: its numbers have no common unit ({_shares_of(units)})."
        f" {_first_of_unit(column, units[-1][0])}. To have them read as numbers, write all with the"
        " same unit"
    ]


def _first_of_unit(column: pd.Series, unit: str) -> str:
    """Return a sentence on the first row with a number of a unit, of which there is one."""
    place = next(
        place
        for place, value in enumerate(column)
        if isinstance(value, str) and unit in units_of({plain_signs(value.strip()): 1})
    )
    return f"Row {column.index[place]} (from 0) holds {column.iloc[place]!r}"


def _shares_of(units: Sequence[tuple[str, int]]) -> str:
    return ", ".join(
        f"{count} with {unit}" if unit else f"{count} without a unit" for unit, count in units
    )


def _units_apart(column: pd.Series) -> list[tuple[str, int]]:
    """Return the units of a column of numbers that have no common one, and how often each occurs.

    The unit of a plain number is "".
    """
    counts = known_texts(column)
    units = Counter(units_of(counts)).most_common(_MAX_UNITS)
    is_apart = len(units) > 1 and sum(count for _, count in units) >= _NEARLY * sum(counts.values())
    if not is_apart:
        return []
    return units


def _notes_of_text(name: str, column: pd.Series) -> list[str]:
    form = date_format_of(column, min_share=_NEARLY)
    if form is not None:
        row, content = int(no_dates(column, form)[0]), f"dates ({in_words(form)})"
    elif (numbers := number_text_of(column, min_share=_NEARLY)) is not None:
        row, content = int(_rows_of_others(column, numbers)[0]), "numbers"
    else:
        return _notes_of_units(name, column)
    stray = f"row {column.index[row]} (from 0) holds {column.iloc[row]!r}"
    return [
        f"{name} is read as text: {stray}, although most others are {content}. To have them read as"
        f" {content.split()[0]}, leave such cells empty"
    ]

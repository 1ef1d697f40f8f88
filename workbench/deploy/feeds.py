"""Columns and arrays of a user, checked and converted to the inputs of a model's graph.

Every error shows the column and the row. Values that training never saw are accepted with a note,
because the model has an answer for them. So are a few texts among numbers and dates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any

import numpy as np

from workbench.data.dates import ISO, OR, in_words
from workbench.data.number_texts import (
    MISSING_TEXTS,
    NumberText,
    category_in,
    new_decimal_comma,
    new_unit,
    spellings,
    text_of_category,
)
from workbench.data.tokens import encode_texts, split_text
from workbench.data.unusual_rows import (
    PREDICTION,
    TRUTHS,
    describe_unusual,
    note_of_unit,
    notes_of_bare,
    notes_of_empty,
    notes_of_numbers,
    notes_of_unknown,
    notes_of_unreadable,
    rows_named,
    unusual_values,
)
from workbench.deploy.card import Card, Input
from workbench.deploy.lengths import in_one, other_size
from workbench.foundation.errors import DataError
from workbench.foundation.text_tables import absent_columns

_NUM_NAMED = 5
_NO_CATEGORY = "\0"


def feeds_of(card: Card, columns: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the inputs of the graph, and notes about the values.

    Args:
        card: The card of the model.
        columns: Values by the name of the input, the sample first. Others are skipped.

    Raises:
        DataError: If a column is missing, or a value has the wrong kind. The error contains the
            column and the row, from 0.
    """
    absent = [column.name for column in card.inputs if column.name not in columns]
    if absent:
        raise absent_columns(absent, [column.name for column in card.inputs])
    feeds: dict[str, np.ndarray] = {}
    texts = {
        column.name: [value for value in columns[column.name] if isinstance(value, str)]
        for column in columns_with_points(card)
    }
    inputs, comma = with_new_commas(card, texts)
    notes: list[str] = [note_of_comma(comma)] if comma else []
    for column in inputs:
        feeds[column.name], column_notes = _feed(column, columns[column.name])
        notes += column_notes
        if card.text_model is not None:
            notes += notes_of_empty(column.name, feeds[column.name].ravel().tolist())
    lengths = {name: len(values) for name, values in feeds.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            "the columns have different lengths: "
            + ", ".join(f"{name!r} {length}" for name, length in list(lengths.items())[:_NUM_NAMED])
        )
    if any(column.lengths for column in card.inputs):
        for row, parts in enumerate(zip(*feeds.values(), strict=True)):
            if wrong := other_size(card.inputs, [np.shape(part) for part in parts]):
                raise DataError(f"row {row} (from 0): {wrong[0]!r} {wrong[1]}")
    return feeds, notes


def columns_with_points(card: Card) -> list[Input]:
    """Return the columns of numbers in which training had decimal points, if any decimals.

    Args:
        card: The card of the model.
    """
    return [
        column
        for column in card.inputs
        if column.kind == "number" and not (column.has_decimal_comma or column.notation)
    ]


def with_new_commas(
    card: Card, texts: Mapping[str, Sequence[str]], *, are_usual: bool = False
) -> tuple[tuple[Input, ...], str]:
    """Return the inputs as new rows write them, and a number with a decimal comma if they do so.

    All columns of numbers decide together: one table is written in one way.

    Args:
        card: The card of the model.
        texts: The texts of the columns that `columns_with_points` returns, of all rows.
        are_usual: Whether the source is known for decimal commas, so that 1,234 is 1.234 where
            training had no thousands.
    """
    columns = columns_with_points(card)
    is_usual = are_usual and not any(column.has_thousands for column in columns)
    comma = new_decimal_comma([text for of_one in texts.values() for text in of_one], is_usual)
    if not comma:
        return card.inputs, ""
    update = {"has_decimal_comma": True, "has_thousands": False}
    changed = {column.name: column.model_copy(update=update) for column in columns}
    return tuple(changed.get(column.name, column) for column in card.inputs), comma


def note_of_comma(comma: str) -> str:
    """Return the note on decimal commas that training had not, with an example."""
    return f"numbers are read with decimal commas, such as {comma}"


def notes_of_unusual(card: Card, feeds: Mapping[str, np.ndarray], outputs: np.ndarray) -> list[str]:
    """Return a note if numbers are far outside of what was learned.

    Args:
        card: The card of the model.
        feeds: What the graph takes.
        outputs: What it answers.
    """
    ranges = {column.name: column.learned for column in card.inputs if column.learned is not None}
    numbers = {name: feeds[name].reshape(-1) for name in ranges}
    output = card.outputs[0]
    if output.learned is not None and output.kind == "values" and not output.shape:
        ranges[PREDICTION] = output.learned
        numbers[PREDICTION] = outputs.reshape(-1)
    values = unusual_values(numbers, ranges)
    return [describe_unusual(values, len(outputs))] if values else []


def _feed(column: Input, values: Any) -> tuple[np.ndarray, list[str]]:
    if column.kind == "array":
        return _arrays(column, values), []
    values = list(values)
    if column.kind in ("category", "text"):
        return _texts(column, values)
    convert = seconds_of
    notes = []
    if column.kind == "number":
        convert = _number
        # A duration is a number as well, but its text has a unit.
        plain = (value for value in values if isinstance(value, str | int | float))
        texts = [str(value) for value in plain if not is_missing(value)]
        if not (column.unit or column.notation) and (unit := new_unit(texts)):
            column = column.model_copy(update={"unit": unit})
            notes.append(note_of_unit(column.name, unit))
    numbers = np.full(len(values), np.nan)
    unreadable: dict[int, str] = {}
    problem: DataError | None = None
    for row, value in enumerate(values):
        try:
            numbers[row] = convert(column, row, value)
        except DataError as error:
            if not isinstance(value, str):
                raise
            unreadable[row] = value
            problem = problem or error
    if problem is not None:
        num_read = int((~np.isnan(numbers)).sum())
        notes += notes_of_unreadable(column.name, column.kind, unreadable, num_read, problem)
    if column.kind == "number":
        notes += notes_of_bare(column.name, column.unit, column.notation, values, numbers)
    return numbers, [*notes, *notes_of_numbers(column.name, numbers, column.has_missing)]


def _arrays(column: Input, values: Any) -> np.ndarray:
    if column.lengths and len(_shapes_of(values)) > 1:
        return in_one([_array(column, [sample])[0] for sample in values])
    return _array(column, values)


def _array(column: Input, values: Any) -> np.ndarray:
    try:
        if np.ma.isMaskedArray(values):
            values = np.ma.filled(values.astype(float), np.nan)
        if has_texts(column, values):
            array = ids_of(column, list(values))
        else:
            array = np.asarray(values)
            if array.dtype == object:  # a column of a table whose cells are lists
                array = np.array([np.asarray(value) for value in values])
        if array.dtype.kind not in "biuf":
            raise ValueError(f"numbers are needed, but these are of type {array.dtype}")
        if (
            column.dtype == "int64"
            and array.dtype.kind == "f"
            and not np.array_equal(array, np.round(array))
        ):
            raise ValueError("whole numbers are needed")
    except ValueError as error:
        raise DataError(f"the input {column.name!r} is not an array of numbers: {error}") from error
    if not column.takes(array.shape[1:]):
        raise DataError(
            f"the input {column.name!r} has samples of shape {array.shape[1:]}",
            allowed=f"samples of shape {described_shape(column)}, the sample first",
            next_step="Pad or cut them as in training.",
        )
    array = array.reshape(len(array), *column.as_taken(array.shape[1:]))
    wrong = np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))
    if len(wrong):
        raise DataError(
            f"the input {column.name!r} contains numbers that are missing or infinite in"
            f" {rows_named(wrong)}",
            next_step="Replace them.",
        )
    return np.ascontiguousarray(array, dtype=column.dtype)


def described_shape(column: Input) -> str:
    """Return the shape of a sample in words. A dimension that may have any size has its name."""
    sizes = ", ".join(map(str, column.graph_shape))
    return f"({sizes},)" if len(column.shape) == 1 else f"({sizes})"


def _shapes_of(values: Any) -> set[tuple[int, ...]]:
    """Return the shapes of samples, or none if one is not an array."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return {values.shape[1:]}
    try:
        return {np.shape(sample) for sample in values}
    except ValueError:  # a list whose parts have different lengths
        return set()


def has_texts(column: Input, values: Any) -> bool:
    """Return whether values are texts, for an input that takes these as numbers of tokens."""
    return (
        column.tokens is not None
        and len(values) > 0
        and all(isinstance(value, str) for value in values)
    )


def ids_of(column: Input, texts: Sequence[str]) -> np.ndarray:
    """Return texts as numbers of tokens: (texts, context)."""
    assert column.tokens is not None
    return encode_texts(
        [split_text(text, column.tokens) for text in texts], column.categories, column.shape[0]
    )


def _texts(column: Input, values: Sequence[Any]) -> tuple[np.ndarray, list[str]]:
    if column.kind == "text":
        return (
            np.array(["" if is_missing(value) else str(value) for value in values], dtype=object),
            [],
        )
    missing = missing_text_of(column)
    texts = list(map(category_reader(column), values))
    array = np.array(texts, dtype=object)
    categories = set(column.categories)
    known = {*categories, *((missing, *MISSING_TEXTS) if column.has_missing else ())}
    return array, notes_of_unknown(column.name, texts, known, {missing} - categories)


def _number(column: Input, row: int, value: Any) -> float:
    if is_missing(value):
        return np.nan
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "s"))
    if hasattr(value, "total_seconds"):
        return value.total_seconds()
    try:
        if isinstance(value, str):
            number = number_in(column, value)
        else:
            number = float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"column {column.name!r}, row {row} (from 0) contains {value!r}",
            allowed="true or false" if isinstance(column.example, bool) else "a number",
        ) from None
    return number


def number_in(column: Input, text: str) -> float:
    """Return the number that a text means in the notation of the training data, NaN if missing.

    Args:
        column: The input that the number is for.
        text: The text.

    Raises:
        ValueError: If it is not a number.
    """
    truth = TRUTHS.get(text.strip().lower())
    if truth is not None:
        return truth
    form = NumberText(
        column.has_thousands,
        column.missing_texts,
        column.unit,
        column.has_decimal_comma,
        column.notation,
    )
    return form.parse(text)


def seconds_of(column: Input, row: int, value: Any) -> float:
    """Return a date as seconds since 1970, or NaN if it is missing.

    Args:
        column: The input that the date is for.
        row: The number of its row, for the error.
        value: A date, or text that holds one.

    Raises:
        DataError: If it is not a date.
    """
    if is_missing(value):
        return np.nan
    if isinstance(value, np.datetime64):
        return float(value.astype("datetime64[us]").astype(np.int64)) / 1e6
    try:
        when = value
        if isinstance(value, str):
            when = _read_date(value.strip(), column.date_format or ISO)
        elif isinstance(value, date) and not isinstance(value, datetime):
            when = datetime(value.year, value.month, value.day)
        if not isinstance(when, datetime):
            raise ValueError
    except ValueError:
        shown = f"as {in_words(column.date_format or ISO)}"
        if column.date_format in (None, ISO):
            shown = "such as 2026-01-31 or 2026-01-31T12:00"
        raise DataError(
            f"column {column.name!r}, row {row} (from 0) holds {value!r}", allowed=f"a date {shown}"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return (when - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()


def _read_date(text: str, form: str) -> datetime:
    for written in form.split(OR):
        with contextlib.suppress(ValueError):  # ISO 8601 is no format of strptime
            return datetime.strptime(text, written)
    if text.endswith("Z"):  # Python 3.10 does not read it
        text = f"{text[:-1]}+00:00"
    return datetime.fromisoformat(text)


def missing_text_of(column: Input) -> str:
    """Return the text of a missing category in a graph: empty, unless that is a category.

    Args:
        column: An input of categories.
    """
    texts = ("", *sorted(MISSING_TEXTS - {""}))
    return next((text for text in texts if text not in column.categories), _NO_CATEGORY)


def category_reader(column: Input) -> Callable[[Any], str]:
    """Return what reads a value as a category, in the spelling of training.

    A text such as NA is a category if training had it as one. A whole number is the same whether it
    is written as 1 or 1.0, because gaps in a column turn one into the other. Capitals and spaces
    around a text do not count. Of categories that differ in nothing else, it is the first.

    Args:
        column: An input of categories.

    Example:
        >>> known = ("NA", "1", "free")
        >>> plan = Input(name="plan", kind="category", dtype="string", categories=known)
        >>> [category_reader(plan)(value) for value in ("NA", 1.0, None, "Free ")]
        ['NA', '1', '', 'free']
    """
    categories, missing = frozenset(column.categories), missing_text_of(column)
    spelled = spellings(column.categories)

    def read(value: Any) -> str:
        if isinstance(value, str) and value in categories:
            return value
        if is_missing(value):
            return missing
        text = text_of_category(value, categories)
        return text if text in categories else category_in(text, spelled)

    return read


def is_missing(value: Any) -> bool:
    """Return whether a cell has no value: None, not a number, or a marker of missing values."""
    if value is None or (isinstance(value, str) and value in MISSING_TEXTS):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # the missing value of pandas compares to neither
        return True

"""Tables of any types of pandas and Arrow as numbers, truth values, times and text.

A value is used as it is meant, converted with a note, or rejected with the name of its column.
`columns` decides what a column of plain values means. It looks at each different value once.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from workbench.foundation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
from typing import TYPE_CHECKING

_EXACT = 2**53
"""Beyond it, whole numbers are no longer exact as floating-point numbers."""
_TRUTH = (bool, np.bool_)
_WHOLE = (int, np.integer)
_REAL = (float, np.floating)
_WRITTEN = (decimal.Decimal, fractions.Fraction)
_BYTES = (bytes, bytearray, memoryview)
_LABELS = (uuid.UUID, PurePath)
_LEAVE_OUT = "drop the column."
MISSING = -1


class PlainFrame(NamedTuple):
    """A table with plain columns, and what was converted, in words."""

    table: pd.DataFrame
    notes: tuple[str, ...]


def column_of(table: pd.DataFrame, name: str) -> pd.Series:
    """Return one column of a table."""
    return cast("pd.Series", table[name])


def frame_of_arrow(data: object) -> pd.DataFrame:
    """Return the table of a library that offers its columns as Arrow's."""
    import pyarrow

    return pyarrow.table(data).to_pandas()


def plain_frame(
    frame: pd.DataFrame, *, field: str = "data", keeps_others: bool = False
) -> PlainFrame:
    """Return a table whose columns hold numbers, truth values, times, categories or text.

    An index with a name, or of anything but whole numbers, is content and becomes columns. The row
    numbers that every frame has are dropped.

    Args:
        frame: The table. The names of its columns differ.
        field: The place of the table in errors.
        keeps_others: Whether columns of other values stay as they are, because perhaps nobody needs
            them. `check_plain` rejects them later.

    Raises:
        DataError: If a column holds lists, complex numbers or other values that are not single.
    """
    table, notes = _with_index(frame)
    plain = table.copy(deep=False)
    for name, given in table.items():
        try:
            column, note = _plain(given, field)
        except DataError:
            if not keeps_others:
                raise
            continue
        if column is not given:
            plain[name] = column
        if note is not None:
            notes.append(note)
    return PlainFrame(plain, tuple(notes))


def without_values(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return a table in which some columns are empty if `check_plain` would reject them.

    Args:
        table: The table.
        names: Columns that nobody needs. They may be absent.
    """
    emptied = {}
    for name in set(names) & set(table.columns):
        try:
            _plain(table[name], "data")
        except DataError:
            emptied[name] = np.nan
    return table.assign(**emptied)


def name_of_column(name: object) -> str:
    """Return the name of a column as text, with the parts of a name of several levels joined.

    Example:
        >>> name_of_column(("size", "mean")), name_of_column(("target", "")), name_of_column(2024)
        ('size_mean', 'target', '2024')
    """
    if isinstance(name, tuple):
        return "_".join(str(part) for part in name if str(part))
    return str(name)


def check_plain(table: pd.DataFrame, *, field: str = "data") -> None:
    """Reject columns of lists, complex numbers and other values that are not single.

    Args:
        table: The columns that are needed.
        field: The place of the table in errors.

    Raises:
        DataError: If there is one.
    """
    for place in range(len(table.columns)):
        _plain(table.iloc[:, place], field)


def plain_column(values: pd.Series, *, field: str = "data") -> pd.Series:
    """Return one column as `plain_frame` does."""
    return _plain(values, field)[0]


def _with_index(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    from pandas.api import types

    levels = [frame.index.get_level_values(level) for level in range(frame.index.nlevels)]
    is_content = any(
        level.name is not None or not types.is_integer_dtype(level.dtype) for level in levels
    )
    if not is_content or not len(frame):
        notes = []
        if len(levels) > 1 or not np.array_equal(levels[0], np.arange(len(frame))):
            notes = [
                "the index is not used, because its whole numbers have no name. To use it, name it:"
                " table.index.name = ..."
            ]
        return frame.reset_index(drop=True), notes
    names = ["index" if level.name is None else str(level.name) for level in levels]
    taken = set(map(str, frame.columns))
    if any(name in taken for name in names):
        # A copy of a column, as after set_index(..., drop=False), or a name that says nothing more.
        note = f"the index {', '.join(names)} is not used, because a column has the same name"
        return frame.reset_index(drop=True), [note]
    plural = "s" if len(names) > 1 else ""
    return frame.reset_index(names=names), [
        f"the index is used as the column{plural} {', '.join(names)}"
    ]


def _plain(values: pd.Series, field: str) -> tuple[pd.Series, str | None]:
    """Return a column with plain values, and a description of the conversion if there was one."""
    import pandas as pd

    dtype, name = values.dtype, str(values.name)
    if isinstance(dtype, pd.SparseDtype):
        return _plain(pd.Series(np.asarray(values), index=values.index, name=values.name), field)
    if isinstance(dtype, pd.PeriodDtype):
        return (
            values.dt.to_timestamp(),
            f"{name} holds periods, which are read as their first moment",
        )
    if isinstance(dtype, pd.IntervalDtype):
        return _as_text(values), f"{name} holds intervals, which are read as text"
    if isinstance(dtype, pd.ArrowDtype):
        return _plain(_out_of_arrow(values), field)
    if dtype.kind == "c":
        raise _refusal(
            name, "complex numbers", "Give their real and imaginary parts a column each.", field
        )
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return _plain_objects(values, field)
    if dtype.kind in "iu":
        return values, _note_of_large(name, values.dropna())
    return values, None


def _out_of_arrow(values: pd.Series) -> pd.Series:
    """Return a column of Arrow's types as one of pandas' own, or of Python's objects."""
    import pandas as pd

    kind = values.dtype.kind
    if kind in "iuf":
        if not values.isna().any():
            return values.astype(values.dtype.numpy_dtype)  # type: ignore[union-attr]
        return values.astype({"i": "Int64", "u": "UInt64", "f": "float64"}[kind])
    if kind == "b":
        return values.astype("boolean")
    objects = np.empty(len(values), dtype=object)
    objects[:] = _known_as(values, lambda value: value)
    column = pd.Series(objects, index=values.index, name=values.name)
    if kind in "mM":
        return column.infer_objects()
    return column


def _plain_objects(values: pd.Series, field: str) -> tuple[pd.Series, str | None]:
    """Return a column of Python objects as one of plain values, and a note on how it is read."""
    import pandas as pd

    kinds = set(map(type, values[values.notna()]))
    if not kinds:
        return values.astype("float64"), None
    if _all_are(kinds, str):
        return values, None
    plain = _plain_numbers(values, kinds) or _plain_times(values, kinds)
    if plain is not None:
        return plain
    name = str(values.name)
    if _all_are(kinds, *_BYTES):
        return _decoded(values, field), f"{name} holds bytes, which are read as UTF-8 text"
    _refuse_several_values(name, kinds, field)
    if _all_are(kinds, *_LABELS, pd.Interval):
        return _as_text(values), None
    return _mixed(values, name, kinds)


def _all_are(kinds: set[type], *of: type) -> bool:
    return all(issubclass(kind, of) for kind in kinds)


def _plain_numbers(values: pd.Series, kinds: set[type]) -> tuple[pd.Series, str | None] | None:
    """Return truth values and numbers, or None for values of other types."""
    name, known = str(values.name), values[values.notna()]
    if _all_are(kinds, *_TRUTH):
        return values.astype("boolean"), None
    if not _all_are(kinds, *_TRUTH, *_WHOLE, *_REAL, *_WRITTEN):
        return None
    numbers = _as_floats(values, known)
    written = sorted(kind.__name__.lower() for kind in kinds if issubclass(kind, _WRITTEN))
    if written:
        return numbers, f"{name} holds {' and '.join(written)}s, which are read as numbers"
    return numbers, _note_of_large(name, known)


def _plain_times(values: pd.Series, kinds: set[type]) -> tuple[pd.Series, str | None] | None:
    """Return dates, durations and times of the day, or None for values of other types."""
    import pandas as pd

    name, known = str(values.name), values[values.notna()]
    if _all_are(kinds, datetime.time):
        seconds = [
            value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
            for value in known
        ]
        return (
            _as_floats(values, pd.Series(seconds, index=known.index)),
            f"{name} holds times of the day, which are read as seconds since midnight",
        )
    if _all_are(kinds, datetime.timedelta, np.timedelta64):
        return pd.to_timedelta(values), None
    if _all_are(kinds, datetime.date, np.datetime64):
        return values, None  # with or without a time and a zone: `dates` reads them
    if _all_are(kinds, pd.Period):
        moments = _known_as(values, pd.Period.to_timestamp)
        return (
            pd.Series(pd.to_datetime(moments), index=values.index, name=values.name),
            f"{name} holds periods, which are read as their first moment",
        )
    return None


def _refuse_several_values(name: str, kinds: set[type], field: str) -> None:
    """Reject a column whose values consist of several numbers or values each."""
    import pandas as pd

    if _all_are(kinds, complex, np.complexfloating):
        raise _refusal(
            name, "complex numbers", "Give their real and imaginary parts a column each.", field
        )
    for kind in kinds:
        if hasattr(kind, "__geo_interface__"):
            step = f"Give its coordinates a column each, such as frame.geometry.x, or {_LEAVE_OUT}"
            raise _refusal(name, f"shapes ({kind.__name__})", step, field)
        if issubclass(
            kind, (list, tuple, set, frozenset, dict, np.ndarray, pd.Series, pd.DataFrame)
        ):
            step = f"Give every value its own column, or {_LEAVE_OUT}"
            raise _refusal(name, f"{kind.__name__}s, of several values each", step, field)


def _mixed(values: pd.Series, name: str, kinds: Iterable[type]) -> tuple[pd.Series, str | None]:
    """Return values of several types as text, numbers included."""
    if all(issubclass(kind, (str, *_TRUTH, *_WHOLE, *_REAL, *_WRITTEN)) for kind in kinds):
        return _as_text(values), None
    listed = ", ".join(sorted(kind.__name__ for kind in kinds))
    return _as_text(values), f"{name} holds {listed}, which are read as text"


def _as_floats(values: pd.Series, known: pd.Series) -> pd.Series:
    import pandas as pd

    numbers = pd.Series(np.nan, index=values.index, name=values.name)
    numbers[known.index] = [float(value) for value in known]
    return numbers


def _as_text(values: pd.Series) -> pd.Series:
    import pandas as pd

    texts = np.array(_known_as(values, str), dtype=object)
    return pd.Series(texts, index=values.index, name=values.name)


def _known_as(values: pd.Series, convert: Callable[[Any], Any]) -> list[Any]:
    """Return converted values, with None for missing ones."""
    pairs = zip(values, values.isna(), strict=True)
    return [None if is_missing else convert(value) for value, is_missing in pairs]


def _decoded(values: pd.Series, field: str) -> pd.Series:
    import pandas as pd

    texts = np.full(len(values), None, dtype=object)
    for row, (value, is_missing) in enumerate(zip(values, values.isna(), strict=True)):
        if is_missing:
            continue
        try:
            texts[row] = bytes(value).decode()
        except UnicodeDecodeError as error:
            step = f"Decode it first, or {_LEAVE_OUT}"
            raise _refusal(
                str(values.name), f"bytes that are no text (row {row})", step, field
            ) from error
    return pd.Series(texts, index=values.index, name=values.name)


def _note_of_large(name: str, known: pd.Series) -> str | None:
    """Return a note if whole numbers are not exact as floating-point numbers."""
    whole: Any = known
    if known.dtype.kind not in "iu":
        whole = [value for value in known if isinstance(value, _WHOLE)]
    if not len(whole) or max(abs(int(min(whole))), abs(int(max(whole)))) <= _EXACT:
        return None
    return (
        f"{name} holds whole numbers beyond 2^53, whose last digits are lost: write it as text if"
        " it identifies something"
    )


def _refusal(name: str, what: str, step: str, field: str) -> DataError:
    return DataError(
        f"the column {name!r} holds {what}",
        field=field,
        allowed="numbers, truth values, times or text",
        next_step=step,
    )


def distinct_values(values: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """Return the different values of a column, and which of them each row has.

    Args:
        values: The column.

    Returns:
        (rows,) numbers from 0, `MISSING` where a value is missing, and the values in the order in
        which they first occur.
    """
    import pandas as pd

    if values.dtype == object and pd.api.types.infer_dtype(values, skipna=True) != "string":
        return _distinct_objects(values)
    if len(values) == 1:  # a single row to predict, faster than pandas counts it
        value = values.iloc[0]
        if pd.isna(value):
            return np.array([MISSING]), []
        return np.zeros(1, dtype=np.int64), [value]
    codes, distinct = pd.factorize(values)
    return np.asarray(codes), list(distinct)


def _distinct_objects(values: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """Return the different values of a column of mixed types.

    Python says that 1, 1.0 and True are equal, and it cannot compare lists by their hash. As texts
    they differ, or can be compared.
    """
    codes = np.full(len(values), MISSING)
    places: dict[tuple[type, str], int] = {}
    distinct = []
    for row, (value, is_missing) in enumerate(zip(values, values.isna(), strict=True)):
        if is_missing:
            continue
        key = (type(value), str(value))
        if key not in places:
            places[key] = len(distinct)
            distinct.append(value)
        codes[row] = places[key]
    return codes, distinct

"""Decides which values that a training returns, reports or writes count as numbers.

A result is one real number of any library: Python's own, a `Decimal`, a scalar or an array with one
element of numpy, torch, jax or pandas, or a text that holds a number. NaN and infinity are numbers:
an objective with such a value has diverged. A boolean is not a result, but counts as 0 or 1 among
other values. Masked and missing values, complex numbers, dates, empty arrays and everything with
several elements are not numbers. No library is imported for this.
"""

from __future__ import annotations

import datetime
import decimal
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.foundation.attachments import Attachment, attachment_of
from workbench.foundation.errors import ArgumentError
from workbench.foundation.outside_text import storable_name

_MAX_DEPTH = 4
"""How deep mappings in a report may be nested."""
_MAX_WRAPPED = 4
"""How often a value may be wrapped, such as a tensor in an array of objects."""

_MISSING = ("NAType", "NaTType")
"""The types of missing values of pandas."""


@dataclass(frozen=True)
class NotANumber:
    """A value that is not a number.

    Attributes:
        what: The subject of "... is not a number".
        is_missing: Whether it replaces a number that is missing, masked or complex.
    """

    what: str
    is_missing: bool = False


def judge(value: Any) -> float | bool | NotANumber:
    """Return a value as a number or boolean, or a description if it is neither.

    Example:
        >>> from decimal import Decimal
        >>> from workbench.foundation.reported_values import judge
        >>> judge(Decimal("0.25")), judge(True), judge([0.1, 0.2])
        (0.25, True, NotANumber(what='a list', is_missing=False))
    """
    try:
        return _judge(value, _MAX_WRAPPED)
    except Exception as error:  # a type of the user's may raise anything
        return NotANumber(
            f"{_type_of(value)}, which raised {type(error).__name__} when it was read,"
        )


def result_of(value: Any) -> float | None:
    """Return a value as a result, or None if it is not a number. Booleans are not results.

    Example:
        >>> from workbench.foundation.reported_values import result_of
        >>> result_of(3), result_of("0.25"), result_of(False), result_of(None)
        (3.0, 0.25, None, None)
    """
    judged = judge(value)
    if isinstance(judged, bool | NotANumber):
        return None
    return judged


def side_value_of(value: Any) -> float | None:
    """Return the number of a value outside the results, with booleans as 0 or 1, or None.

    Example:
        >>> from workbench.foundation.reported_values import side_value_of
        >>> side_value_of(True), side_value_of(1 + 2j)
        (1.0, None)
    """
    judged = judge(value)
    if isinstance(judged, NotANumber):
        return None
    return float(judged)


def why_no_result(value: Any) -> str | None:
    """Return why a value is not a result, as a clause, or None if it is one.

    Example:
        >>> from workbench.foundation.reported_values import why_no_result
        >>> why_no_result(False)
        'the boolean False is not a number'
    """
    judged = judge(value)
    if isinstance(judged, bool):
        return f"the boolean {judged} is not a number"
    if isinstance(judged, NotANumber):
        return f"{judged.what} is not a number"
    return None


def _judge(value: Any, depth: int) -> float | bool | NotANumber:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _as_float(value)
    if isinstance(value, str):
        return _judge_text(value)
    if isinstance(value, decimal.Decimal):
        if value.is_nan():  # float() rejects a signaling NaN
            return math.nan
        return float(value)
    if type(value).__name__ in _MISSING:
        return _convert(value)
    if (never := _known_not_a_number(value)) is not None:
        return never
    if (shape := _shape_of(value)) is not None:
        return _judge_array(value, shape, depth)
    return _convert(value)


def _known_not_a_number(value: Any) -> NotANumber | None:
    """Describe a value whose type is never a number. None for other types."""
    if value is None:
        return NotANumber("None", is_missing=True)
    if isinstance(value, complex):
        return NotANumber("a complex value", is_missing=True)
    if isinstance(value, type):
        return NotANumber(f"the class {value.__name__}")
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | Mapping):
        return NotANumber(_type_of(value))
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind) and value:
            return NotANumber(f"a {kind.__name__}")
        if isinstance(value, kind):
            return NotANumber(f"an empty {kind.__name__}")
    return None


def _judge_text(text: str) -> float | NotANumber:
    try:
        return float(text)
    except ValueError:
        return NotANumber(_type_of(text))


def _judge_array(value: Any, shape: tuple[int, ...], depth: int) -> float | bool | NotANumber:
    """Judge a scalar or an array of numpy, torch, jax, pandas or another library like these."""
    if math.prod(shape) == 0:
        return NotANumber(f"an empty array of the shape {shape}")
    if math.prod(shape) != 1:
        return NotANumber(f"an array of the shape {shape}")
    if _is_masked(value):
        return NotANumber("a masked value", is_missing=True)
    dtype = str(getattr(value, "dtype", "")).lower()
    if "complex" in dtype:
        return NotANumber("a complex value", is_missing=True)
    # The items of times may be whole numbers of nanoseconds.
    if "datetime" in dtype or "timedelta" in dtype:
        return NotANumber(f"a value of the type {dtype}")
    item = value
    if callable(getattr(value, "item", None)):
        item = value.item()
    if item is not value and type(item) is not type(value) and depth:
        return _judge(item, depth - 1)
    number = _convert(item)
    if "bool" in dtype and not isinstance(number, NotANumber):
        return bool(number)
    return number


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of a library's array or scalar, or None for anything else."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return None
    try:
        return tuple(int(side) for side in shape)
    except (TypeError, ValueError):
        return None


def _is_masked(value: Any) -> bool:
    masked_arrays = sys.modules.get("numpy.ma")
    if masked_arrays is not None and isinstance(value, masked_arrays.MaskedArray):
        return bool(masked_arrays.getmaskarray(value).any())
    # torch.masked: true if the value is known.
    get_mask: Any = getattr(value, "get_mask", None)
    return get_mask is not None and not bool(get_mask().all())


def _convert(value: Any) -> float | NotANumber:
    """Convert an object that has a conversion to float."""
    kind = type(value)
    if kind.__name__ in _MISSING and kind.__module__.startswith("pandas"):
        return NotANumber(f"the missing value {value}", is_missing=True)
    if not hasattr(kind, "__float__") and not hasattr(kind, "__index__"):
        return NotANumber(_type_of(value))
    return _as_float(value)


def _as_float(value: Any) -> float:
    """Return a number as a float, or infinity if it is too large."""
    try:
        return float(value)
    except OverflowError:
        if value > 0:
            return math.inf
        return -math.inf


def _type_of(value: Any) -> str:
    return type(value).__name__


@dataclass
class ReportedValues:
    """The parts of a report.

    Attributes:
        numbers: The numbers by name. Nested mappings give names with dots.
        booleans: The booleans by name.
        attachments: Pictures, tables and texts.
        problems: Why something is not kept, by name.
        what: Descriptions of all values that are not numbers, by name, including attachments.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    booleans: dict[str, bool] = field(default_factory=dict)
    attachments: dict[str, Attachment] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    what: dict[str, str] = field(default_factory=dict)

    @property
    def side_values(self) -> dict[str, float]:
        """All values that can be kept as numbers. Booleans are 0 or 1."""
        return self.numbers | {name: float(value) for name, value in self.booleans.items()}


def sort_values(values: Mapping[str, Any]) -> ReportedValues:
    """Sort the reported or returned values of a training by their kind, without raising errors.

    Args:
        values: Anything by name. A mapping whose columns are lists is a table. Any other mapping is
            flattened.

    Example:
        >>> from workbench.foundation.reported_values import sort_values
        >>> report = sort_values({"loss": 0.5, "ok": True, "val": {"acc": 0.9}, "model": object()})
        >>> report.side_values, list(report.problems)
        ({'loss': 0.5, 'val.acc': 0.9, 'ok': 1.0}, ['model'])
    """
    report = ReportedValues()
    for name, value in values.items():
        for inner_name, inner in _taken_apart(str(name), value, _MAX_DEPTH):
            _sort(storable_name(inner_name), inner, report)
    return report


def _sort(name: str, value: Any, report: ReportedValues) -> None:
    judged = judge(value)
    if isinstance(judged, bool):
        report.booleans[name] = judged
        report.what[name] = f"the boolean {judged}"
    elif not isinstance(judged, NotANumber):
        report.numbers[name] = judged
    else:
        report.what[name] = judged.what
        attachment = _attachment_of(name, value)
        if isinstance(attachment, Attachment):
            report.attachments[name] = attachment
        else:
            nothing = f"{judged.what} is neither a number nor a picture, a table or a text"
            report.problems[name] = attachment or nothing


def _taken_apart(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield a value, or the values of a mapping that is not a table, with their names."""
    if not isinstance(value, Mapping) or not value or depth == 0 or _is_table(value):
        yield name, value
        return
    for key, inner in value.items():
        yield from _taken_apart(f"{name}.{key}", inner, depth - 1)


def _is_table(value: Mapping[Any, Any]) -> bool:
    return all(
        isinstance(column, list | tuple) or getattr(column, "ndim", 0) == 1
        for column in value.values()
    )


def _attachment_of(name: str, value: Any) -> Attachment | str | None:
    """Return the attachment of a value, the reason why it cannot be kept, or None."""
    try:
        return attachment_of(name, value)
    except ArgumentError as error:
        return str(error)
    except Exception as error:  # drawing a figure runs code of the user
        return f"{_type_of(value)} cannot be kept: {type(error).__name__}: {error}"

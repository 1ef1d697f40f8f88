"""Turns values of numpy, torch and pandas into the Python values that an experiment holds.

An experiment is a JSON document. A scalar of a library becomes its Python value. A value that would
reach a training as another one, such as a tuple as a list, is an error that says what to write
instead. No library is imported for this. Non-finite numbers, which JSON cannot hold, are text in a
document for strict readers.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Set
from typing import Any

from workbench.foundation.errors import ExperimentError

_MAX_CHARACTERS = 80


def python_value(value: Any) -> Any:
    """Return the Python value of a scalar of numpy, torch or another library.

    Any other value is returned unchanged.

    Example:
        >>> import numpy as np
        >>> from workbench.foundation.python_values import python_value
        >>> python_value(np.int64(3)), python_value(np.bool_(True)), python_value([np.int64(3)])
        (3, True, [np.int64(3)])
    """
    if isinstance(value, enum.Enum):
        return value
    for kind in (bool, int, float, str):
        if type(value) is kind:
            return value
        if isinstance(value, kind):  # np.float64 is a subclass of float, and np.str_ of str
            return kind(value)
    if getattr(value, "shape", None) != () or not callable(getattr(value, "item", None)):
        return value
    item = value.item()
    if type(item) is type(value):  # a number of more digits than Python's
        item = float(item)
    if isinstance(item, bool | int | float | str):
        return item
    return value


def python_values(document: Any) -> Any:
    """Return a document in which scalars of libraries are Python values, at any depth.

    Args:
        document: Mappings, lists and tuples. Any other object in them is not changed.
    """
    if isinstance(document, dict):
        return {key: python_values(value) for key, value in document.items()}
    if type(document) in (list, tuple):
        return type(document)(python_values(value) for value in document)
    return python_value(document)


def whole_bound(value: Any) -> Any:
    """Return the bound of a range as a Python value.

    An array with one element is that element.

    Raises:
        ExperimentError: If it is a boolean.
    """
    if getattr(value, "size", None) == 1 and callable(getattr(value, "reshape", None)):
        value = value.reshape(())
    bound = python_value(value)
    if isinstance(bound, bool):
        raise ExperimentError(f"{bound} is not valid", allowed="a number")
    return bound


def listed_choices(given: Any) -> Any:
    """Return the values of an array or column of one dimension, a set or a range.

    A set has no order, so its values are sorted to be in the same order in every process.

    Returns:
        A list of values that an experiment can hold. Any other object is returned unchanged.

    Raises:
        ExperimentError: If one of the values cannot be held.
    """
    if isinstance(given, str | bytes | Mapping) or not hasattr(type(given), "__iter__"):
        return given
    if isinstance(given, Set):
        given = _in_order(given)
    elif len(_shape_of(given)) == 1 and callable(getattr(given, "tolist", None)):
        given = given.tolist()
    return [json_value(value, str(index)) for index, value in enumerate(given)]


def json_value(value: Any, field: str | None = None) -> Any:
    """Return a value as an experiment can hold it.

    Args:
        value: A Python value, a scalar of a library, or a list or mapping of these.
        field: Its dotted path, for errors.

    Raises:
        ExperimentError: If it would reach the training as another value, or not at all.

    Example:
        >>> import numpy as np
        >>> from workbench.foundation.python_values import json_value
        >>> json_value([np.float32(0.5), {"width": np.int64(8)}])
        [0.5, {'width': 8}]
    """
    value = python_value(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [json_value(inner, _path(field, index)) for index, inner in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: json_value(inner, _path(field, key)) for key, inner in value.items()}
    raise not_held(value, field)


def not_held(value: Any, field: str | None) -> ExperimentError:
    """Return the error for a value that an experiment cannot hold, with what to write instead."""
    problem, next_step = _why_not_held(value)
    return ExperimentError(
        problem,
        field=field,
        allowed="numbers, texts, true, false, null, and lists and mappings of these",
        next_step=next_step,
    )


def _why_not_held(value: Any) -> tuple[str, str]:
    written = repr(value)
    if len(written) > _MAX_CHARACTERS or "\n" in written:
        written = f"an object of type {type(value).__name__}"
    if isinstance(value, tuple):
        as_list = _short(list(value))
        return (
            f"{written} is a tuple, which a trial would receive as a list",
            f"Write {as_list}, and call tuple(...) in the training if it needs one.",
        )
    if _shape_of(value):
        as_list = "a list"
        if callable(getattr(value, "tolist", None)):
            as_list = _short(value.tolist())
        return (
            f"{written} is an array, which a trial would receive as a list",
            f"Write {as_list}, and make an array of it in the training.",
        )
    if isinstance(value, Set):
        return f"{written} is a set, which has no order", "Write a list."
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__name__", type(value).__name__)
        kind = "function"
        if isinstance(value, type):
            kind = "class"
        return (
            f"{name} is a {kind}, not a value",
            f'Write its name, "{name}", and look it up in the training.',
        )
    if isinstance(value, enum.Enum):
        return (
            f"{written} is a member of an enumeration",
            f'Write its name, "{value.name}", or its value.',
        )
    return (
        f"{written} is of type {type(value).__name__}, which an experiment cannot hold",
        "Write it as a number or a text, and convert that in the training.",
    )


def _short(values: Any) -> str:
    written = repr(values)
    if len(written) > _MAX_CHARACTERS:
        return "the list"
    return written


def _path(field: str | None, part: object) -> str:
    if field is None:
        return str(part)
    return f"{field}.{part}"


def _shape_of(value: Any) -> tuple[Any, ...]:
    shape = getattr(value, "shape", ())
    if not isinstance(shape, tuple):
        return ()
    return shape


def _in_order(values: Set[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


def plain(value: Any) -> Any:
    """Return a document of mappings, lists and plain values in which "NaN" and "Infinity" are text.

    Args:
        value: The document. Tuples become lists, and keys become text.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)  # NaN, Infinity or -Infinity
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value

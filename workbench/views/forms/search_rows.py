"""The search space as rows that a form shows, and how a search is written that starts in it.

Everything that a form has to know of the kinds of parameters is decided here: which kind a written
one is, how it would be written as another, and how the search of a setting starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workbench.experiment.domain import is_whole, same_value
from workbench.views.forms.protocol import FormField, SearchRow

_NOTHING = {"low": None, "high": None, "step": None, "log": False, "choices": (), "value": None}
_UNKNOWN_SIZE = {"type": "float", "low": 1e-4, "high": 0.1, "log": True}
"""Most rates and weights that a network has: nobody knows the size, and zero has no logarithm."""


def rows_of_search(document: Mapping[str, Any]) -> tuple[SearchRow, ...]:
    """Return the parameters of a search space as a form shows them.

    Args:
        document: The experiment as written, including what is wrong.
    """
    search = document.get("search")
    if not isinstance(search, Mapping):
        return ()
    return tuple(_row(str(name), written) for name, written in search.items())


def _row(name: str, written: Any) -> SearchRow:
    parts: dict[str, Any] = {"kind": "fixed", "value": written}
    when: Any = {}
    if isinstance(written, Mapping):
        when = written.get("when") if isinstance(written.get("when"), Mapping) else {}
        parts = _parts(written)
    row = SearchRow(name=name, when=when, written_as={}, **{**_NOTHING, **parts})
    others = {
        "fixed": _as_fixed(row),
        "choices": _as_choices(row),
        "int": _as_range(row, is_int=True),
        "float": _as_range(row, is_int=False),
    }
    return row.model_copy(update={"written_as": {**others, row.kind: written}})


def _parts(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of a parameter that is written as a mapping, and what it holds."""
    if "choices" in written:
        choices = written["choices"]
        is_list = isinstance(choices, list | tuple)
        return {"kind": "choices", "choices": tuple(choices) if is_list else (choices,)}
    if "low" not in written and "high" not in written:
        return {"kind": "fixed", "value": written.get("value")}
    ends = {key: written.get(key) for key in ("low", "high", "step")}
    kind = written.get("type")
    if kind not in ("float", "int"):
        bounds = (ends["low"], ends["high"], 1 if ends["step"] is None else ends["step"])
        kind = "int" if all(map(is_whole, bounds)) else "float"
    return {"kind": kind, **ends, "log": written.get("log") is True}


def _numbers(row: SearchRow) -> list[float]:
    held: tuple[Any, ...] = (row.low, row.high, *row.choices, row.value)
    return [value for value in held if _is_number(value)]


def _as_fixed(row: SearchRow) -> Any:
    numbers = _numbers(row)
    value = numbers[0] if numbers else row.value
    if row.choices and row.choices[0] is not None:
        value = row.choices[0]
    return {"value": value, "when": row.when} if row.when else value


def _as_choices(row: SearchRow) -> dict[str, Any]:
    choices: list[Any] = []
    for value in (row.value,) if row.kind == "fixed" else (row.low, row.high):
        if not any(same_value(value, choice) for choice in choices):
            choices.append(value)
    return {"choices": choices, **_when(row)}


def _as_range(row: SearchRow, *, is_int: bool) -> dict[str, Any]:
    numbers = _numbers(row)
    low, high = min(numbers, default=0), max(numbers, default=1)
    if is_int:
        low = math.floor(low)
        high = max(math.ceil(high), low + 1)
    elif high <= low:
        high = _wider(low)
    log = {"log": True} if row.log else {}
    return {"type": "int" if is_int else "float", "low": low, "high": high, **log, **_when(row)}


def _when(row: SearchRow) -> dict[str, Any]:
    return {"when": row.when} if row.when else {}


def _wider(low: float) -> float:
    if low == 0:
        return 1
    return low * 10 if low > 0 else low / 10


def initial_search(field: FormField) -> Any:
    """Return how a search of a setting starts: around its value, within its bounds.

    Args:
        field: The setting.
    """
    if field.kind == "switch":
        return {"choices": [True, False]}
    if field.kind in ("choice", "text"):
        choices = [choice for choice in field.choices or () if choice != "auto"]
        return {"choices": choices or [field.default if field.value is None else field.value]}
    given: Any = field.value if _is_number(field.value) else field.default
    number = given if _is_number(given) else None
    if field.kind == "whole":
        return _initial_whole(field, number)
    if field.kind == "number":
        return _initial_number(field, number)
    return {"value": given}


def _initial_whole(field: FormField, number: float | None) -> dict[str, Any]:
    middle = max(field.low or 1, 1) if number is None else number
    low = math.floor(middle / 2)
    if field.low is not None:
        low = max(low, int(field.low) + field.low_open)
    high = max(int(middle * 2), low + 1)
    return {
        "type": "int",
        "low": low,
        "high": high if field.high is None else min(high, int(field.high)),
    }


def _initial_number(field: FormField, number: float | None) -> dict[str, Any]:
    low, high = field.low, field.high
    if low is not None and high is not None:
        margin = (high - low) / 10
        low, high = low + margin * field.low_open, _round(high - margin * field.high_open)
        return {"type": "float", "low": low, "high": high}
    if not number:
        return _UNKNOWN_SIZE
    size = abs(number)
    return {"type": "float", "low": _round(size / 10), "high": _round(size * 10), "log": True}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _round(number: float) -> float:
    """Return a number without the digits that arithmetic in halves leaves behind."""
    return float(f"{number:.12g}")

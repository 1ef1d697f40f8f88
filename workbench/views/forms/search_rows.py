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

_UNKNOWN = {"type": "float", "low": 0, "high": 1}
"""The first range of a value of which neither the default nor the name says anything."""
_NOTHING = {
    "low": None,
    "high": None,
    "step": None,
    "log": False,
    "choices": (),
    "value": None,
    "near": None,
}


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
        if isinstance(written.get("when"), Mapping):
            when = written["when"]
        parts = {**_parts(written), "near": _near(written)}
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
        if not isinstance(choices, list | tuple):
            choices = (choices,)
        return {"kind": "choices", "choices": tuple(choices)}
    if "low" not in written and "high" not in written:
        return {"kind": "fixed", "value": written.get("value")}
    ends = {key: written.get(key) for key in ("low", "high", "step")}
    kind = written.get("type")
    if kind not in ("float", "int"):
        kind = "float"
        step = 1 if ends["step"] is None else ends["step"]
        if all(map(is_whole, (ends["low"], ends["high"], step))):
            kind = "int"
    return {"kind": kind, **ends, "log": written.get("log") is True}


def _near(written: Mapping[str, Any]) -> Any:
    prior = written.get("prior")
    return prior.get("near") if isinstance(prior, Mapping) else None


def _numbers(row: SearchRow) -> list[float]:
    held: tuple[Any, ...] = (row.low, row.high, *row.choices, row.value)
    return [value for value in held if _is_usable(value)]


def _as_fixed(row: SearchRow) -> Any:
    value = next(iter(_numbers(row)), row.value)
    if row.choices and row.choices[0] is not None:
        value = row.choices[0]
    if row.when:
        return {"value": value, "when": row.when}
    return value


def _as_choices(row: SearchRow) -> dict[str, Any]:
    choices: list[Any] = []
    values = (row.low, row.high)
    if row.kind == "fixed":
        values = (row.value,)
    for value in values:
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
    domain: dict[str, Any] = {"type": "int" if is_int else "float", "low": low, "high": high}
    if row.log:
        domain["log"] = True
    return {**domain, **_when(row)}


def _when(row: SearchRow) -> dict[str, Any]:
    if not row.when:
        return {}
    return {"when": row.when}


def _wider(low: float) -> float:
    if low == 0:
        return 1
    if low > 0:
        return low * 10
    return low / 10


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
    number: Any = None
    for given in (field.value, field.default):
        if number is None and _is_usable(given):
            number = given
    if field.kind == "whole":
        return _initial_whole(field, number)
    if field.kind == "number":
        return _initial_number(field, number)
    return {"value": field.default if number is None else number}


def initial_search_of_own(field: FormField) -> Any:
    """Return how a search of a value starts that own code reads: by its name, as for a script.

    Args:
        field: The value, with its default.
    """
    from workbench.experiment.yaml_file import read_yaml
    from workbench.runs.scripts.option_domains import domain_of, usual_domain
    from workbench.runs.scripts.script_options import ScriptOption

    default = field.default if field.value is None else field.value
    if default is None:
        domain = usual_domain(field.label)
    else:
        domain = domain_of(ScriptOption(field.label, default, kind=type(default).__name__))
    if domain is not None:
        return read_yaml(f"domain: {domain}")["domain"]
    if default is None:
        return dict(_UNKNOWN)
    return initial_search(field)


def _initial_whole(field: FormField, number: float | None) -> dict[str, Any]:
    lowest = None if field.low is None else int(field.low) + field.low_open
    highest = None if field.high is None else int(field.high) - field.high_open
    if number is None:
        number = max(field.low or 1, 1)
    # A value out of bounds is shown as wrong. Its search starts at the nearest value that is right.
    if highest is not None:
        number = min(number, highest)
    if lowest is not None:
        number = max(number, lowest)
    low, high = sorted((math.floor(number / 2), int(number * 2)))
    if lowest is not None:
        low = max(low, lowest)
    high = max(high, low + 1)
    if highest is not None:
        high = min(high, highest)
        low = min(low, high - 1)
    if lowest is not None:
        low = max(low, lowest)
    return {"type": "int", "low": low, "high": high}


def _initial_number(field: FormField, number: float | None) -> dict[str, Any]:
    lowest, highest = field.low, field.high
    if number:
        low, high = sorted((_round(number / 10), _round(number * 10)))
    else:
        low, high = 1e-4, 0.1  # most rates and weights of a network
    if lowest is not None and highest is not None:
        low, high = lowest, highest
    elif lowest is not None and low <= lowest:
        low, high = lowest, max(high, _wider(lowest))
    elif highest is not None and high >= highest:
        low, high = min(low, -_wider(-highest)), highest
    margin = (high - low) / 10
    if low == lowest and field.low_open:
        low = _round(low + margin)
    if high == highest and field.high_open:
        high = _round(high - margin)
    search: dict[str, Any] = {"type": "float", "low": low, "high": high}
    is_by_factors = low > 0 and (lowest is None or highest is None)
    return {**search, "log": True} if is_by_factors else search


def _is_usable(value: Any) -> bool:
    """Return whether a search can start around a value. Ten times the value must be finite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _round(number: float) -> float:
    """Return a number without the digits that arithmetic in halves leaves behind."""
    return float(f"{number:.12g}")

"""The filter of the table of trials: words, and comparisons such as `lr < 0.01`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_value

_COMPARISON = re.compile(r"([^\s<>=!]+)\s*(<=|>=|!=|==|<|>|=)\s*([^\s<>=!]+)")
_UNFINISHED = re.compile(r"[^<>=!]*(<=|>=|!=|==|<|>|=)")
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Comparison:
    """One comparison of a filter."""

    key: str
    """The column."""
    sign: str
    value: str

    def holds(self, value: Any) -> bool:
        """Return whether it holds for a value. Nothing compares with a missing value or NaN."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return False
        wanted = _number(self.value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.sign in _ORDERS:
            return is_number and wanted is not None and _ORDERS[self.sign](value, wanted)
        if is_number and wanted is not None:
            is_same = value == wanted
        else:
            is_same = format_value(value).casefold() == self.value.casefold()
        return is_same != (self.sign == "!=")


def read_filter(text: str, names: Mapping[str, str]) -> tuple[list[str], list[Comparison]]:
    """Read the text of a filter.

    Args:
        text: Words, and comparisons of columns with values, separated by spaces. All must hold.
        names: The columns: the key of each by its name.

    Returns:
        The words, and the comparisons.

    Raises:
        ArgumentError: If a comparison has no column or no value, its column is unknown, or it
            orders values that are not numbers.
    """
    comparisons = []
    for name, sign, value in _COMPARISON.findall(text):
        key = names.get(name) or names.get(name.casefold())
        if key is None:
            raise ArgumentError(
                f"there is no column {name!r}", field="table.text", allowed=list(names)
            )
        if sign in _ORDERS and _number(value) is None:
            example = f"{name} {sign} 0.01"
            raise ArgumentError(f"{value!r} is not a number", field="table.text", allowed=example)
        comparisons.append(Comparison(key, sign, value))
    words = _COMPARISON.sub(" ", text).casefold().split()
    if any(_UNFINISHED.fullmatch(word) and word.rstrip("<>=!") in {"", *names} for word in words):
        raise ArgumentError(
            "a comparison has no column or no value",
            field="table.text",
            allowed="words, and lr < 0.01",
        )
    return words, comparisons


def matches(words: Iterable[str], searched: str) -> bool:
    """Return whether a text contains all words."""
    folded = searched.casefold()
    return all(word in folded for word in words)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

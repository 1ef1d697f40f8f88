"""Finds rows of totals at the end of a table, which are no samples."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.data.dates import is_text
from workbench.data.number_texts import number_text_of

if TYPE_CHECKING:
    import pandas as pd

TOTAL = (
    r"(grand |sub)?totals?( g[eé]n[eé]ral)?|totale|sum|summe|gesamt(summe)?|insgesamt|somme|suma"
    r"|average|mean|mittel(wert)?|durchschnitt|moyenne"
)
"""The words of a row of totals or means. The case of letters does not count."""
ROWS_ABOVE = 3
"""The rows that a table has at least above its totals."""
END_ROWS = 3
"""A table ends with at most so many rows of totals and means."""


def without_total(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return a table without rows of totals or means at its end, and a note on them.

    Args:
        table: Plain columns.
    """
    ends = table.iloc[ROWS_ABOVE:].tail(END_ROWS)
    rows = [[cell for cell in cells if isinstance(cell, str)] for cells in ends.to_numpy(object)]
    if not rows or total_in(rows[-1]) is None:
        return table, []
    texts = [table.iloc[: -len(rows), place].dropna() for place in range(len(table.columns))]
    earlier = {text for column in texts if is_text(column) for text in map(str, column.unique())}
    numbers = (_numbers_of(table.iloc[:, place]) for place in range(len(table.columns)))
    columns = [column.tolist() for column in numbers if column is not None]
    num_totals, notes = totals_below(rows, columns, earlier)
    return table.iloc[: len(table) - num_totals], notes


def total_in(texts: Iterable[str]) -> str | None:
    """Return the word among some texts that says that a row sums up others, or None."""
    words = [text.strip(" :") for text in texts]
    return next((word for word in words if re.fullmatch(TOTAL, word, re.IGNORECASE)), None)


def totals_below(
    ends: Sequence[Iterable[str]], columns: Iterable[Sequence[float]], earlier: Collection[str]
) -> tuple[int, list[str]]:
    """Return how many rows at the end of a table sum up the others, and a note on them.

    Such a row has a word such as Total, which no other row has, and at least one number that sums
    up those above.

    Args:
        ends: The texts of each of the last rows.
        columns: The numbers of each column, of all rows. Missing ones are NaN.
        earlier: The texts of the rows before.
    """
    words = [total_in(texts) for texts in ends]
    num_totals = 0
    for word in reversed(words):
        if word is None or word in earlier:
            break
        num_totals += 1
    listed = list(columns)
    num_named = num_totals
    while num_totals and not any(
        sums_up(column[:-num_totals], column[-num_totals]) for column in listed
    ):
        num_totals -= 1
    if not num_named:
        return 0, []
    if not num_totals:
        return 0, [
            f"the last row says {words[-1]!r}, but it is neither the sum nor the mean of the"
            " others: it counts as a sample. Remove it if it is none"
        ]
    subject = "the last row is not used, because it sums up"
    if num_totals > 1:
        subject = f"the last {num_totals} rows are not used, because they sum up"
    return num_totals, [f"{subject} the others ({words[-1]!r})"]


def sums_up(above: Sequence[float], last: float) -> bool:
    """Return whether a number is the sum or the mean of those above it, or far beyond all of them.

    A sum also has the cells that are missing above, and the rows that are not in this table. A mean
    is often rounded to few digits.

    Args:
        above: The numbers. Missing ones are NaN.
        last: The number.

    Example:
        >>> sums_up([1.0, 2.0, 4.0], 7.2), sums_up([1.0, 2.0, 4.0], 9.0)
        (True, True)
        >>> sums_up([1.0, 2.0, 4.0], 2.33), sums_up([1.0, 2.0, 4.0], 3.0)
        (True, False)
    """
    known = [number for number in above if math.isfinite(number)]
    if not math.isfinite(last) or not any(known):
        return False
    total = math.fsum(known)
    is_sum = math.isclose(last, total, rel_tol=0.1, abs_tol=1e-9)
    is_mean = math.isclose(last, total / len(known), rel_tol=1e-2, abs_tol=1e-9)
    return is_sum or is_mean or abs(last) > 2 * max(map(abs, known))


def _numbers_of(values: pd.Series) -> np.ndarray | None:
    if not is_text(values):
        if values.dtype.kind not in "iuf":
            return None
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    form = number_text_of(values)
    return None if form is None else form.parse_all(values)

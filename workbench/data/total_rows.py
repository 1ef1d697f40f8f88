"""Finds a row of totals at the end of a table, which is no sample."""

from __future__ import annotations

import re
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
_TOTAL = re.compile(TOTAL, re.IGNORECASE)
_FEWEST_ROWS = 4


def without_total(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return a table without a row of totals or means at its end, and a note on it.

    Such a row has a word such as Total, and at least one number that is the sum or the mean of the
    numbers above.

    Args:
        table: Plain columns.
    """
    if len(table) < _FEWEST_ROWS:
        return table, []
    words = [cell.strip(" :") for cell in table.iloc[-1] if isinstance(cell, str)]
    word = next(filter(_TOTAL.fullmatch, words), None)
    if word is None or not any(
        _is_total(table.iloc[:, place]) for place in range(len(table.columns))
    ):
        return table, []
    return table.iloc[:-1], [f"the last row is not used, because it sums up the others ({word!r})"]


def _is_total(values: pd.Series) -> bool:
    """Return whether the last value of a column is the sum or the mean of the others."""
    numbers = _numbers_of(values)
    if numbers is None:
        return False
    last, above = numbers[-1], numbers[:-1]
    above = above[np.isfinite(above)]
    if not np.isfinite(last) or not above.any():
        return False
    # A sum also has the cells that are missing above, and a mean is often rounded to few digits.
    is_sum = np.isclose(last, above.sum(), rtol=0.1, atol=1e-9)
    return bool(is_sum or np.isclose(last, above.mean(), rtol=1e-2, atol=1e-9))


def _numbers_of(values: pd.Series) -> np.ndarray | None:
    if not is_text(values):
        if values.dtype.kind not in "iuf":
            return None
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    form = number_text_of(values)
    return None if form is None else form.parse_all(values)

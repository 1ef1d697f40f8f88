"""How predictions change with one column if all other columns of the rows stay as they are.

Source: the partial dependence of Friedman (2001), averaged over test rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.plain_frames import column_of

if TYPE_CHECKING:
    import pandas as pd

NUM_COLUMNS = 6
_MAX_ROWS, _NUM_PLACES, _MAX_VALUES, _MAX_CLASSES = 300, 12, 10, 5


def partial_dependence(
    predict: Callable[[Any], np.ndarray],
    table: pd.DataFrame,
    columns: Sequence[str],
    *,
    labels: Sequence[Any] = (),
    names: Sequence[str] = (),
    until_s: float,
    weights: np.ndarray | None = None,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the mean prediction at several values of each column, and columns without any.

    Args:
        predict: Returns (rows, classes) probabilities, or (rows, 1) numbers.
        table: Rows of the test.
        columns: The columns whose importance is known, the most important first.
        labels: The classes, or empty for numbers.
        names: The names of several numbers, or empty if there is one.
        until_s: When to stop, by `time.monotonic`.
        weights: The weight of each row, or None if all are equal.

    Returns:
        For each column its name, `column`, the `values`, and the `means` by class, or by
        "prediction" for a number. Of two classes, only the second is there.
        Then why each other column of the table has no such values, by name.
    """
    rows = table
    if len(table) > _MAX_ROWS:
        places = np.sort(np.random.default_rng(0).choice(len(table), _MAX_ROWS, replace=False))
        rows = table.iloc[places]
        weights = None if weights is None else weights[places]
    found = []
    why = {str(name): "its importance was not measured" for name in table.columns}
    why |= dict.fromkeys(columns, f"only the {NUM_COLUMNS} most important columns have one")
    for name in columns[:NUM_COLUMNS]:
        values = _values_of(column_of(table, name))
        if isinstance(values, str):
            why[name] = values
            continue
        if time.monotonic() > until_s:
            why[name] = "there was no time left to compute it"
            continue
        del why[name]
        predicted = (predict(_changed(rows, name, value)) for value in values)
        means = np.array([np.average(each, axis=0, weights=weights) for each in predicted])
        kept = range(means.shape[1])
        shown_names = [str(label) for label in labels] or list(names) or ["prediction"]
        if len(labels) == 2:
            kept = range(1, 2)
        by_class = {
            shown_names[number]: means[:, number].tolist() for number in list(kept)[:_MAX_CLASSES]
        }
        shown = [value if isinstance(value, float) else str(value) for value in values]
        found.append({"column": name, "values": shown, "means": by_class})
    return found, why


def _values_of(column: pd.Series) -> list[Any] | str:
    """Return the most frequent values, or those at equal shares of the rows, or why there are none.

    Many numbers or times have values at equal shares of the rows.
    """
    known = column.dropna()
    if known.nunique() < 2:
        return "it has fewer than two different values in the test rows"
    if known.dtype.kind in "iufM" and known.nunique() > _MAX_VALUES:
        shares = np.linspace(0.02, 0.98, _NUM_PLACES)
        if known.dtype.kind == "M":
            ends = known.quantile(shares, interpolation="nearest").drop_duplicates()
            return ends.tolist()
        ends = np.quantile(known.to_numpy(dtype=np.float64), shares)
        if known.dtype.kind in "iu":
            ends = np.round(ends)
        return [float(value) for value in np.unique(ends)]
    if known.dtype.kind not in "iufbMO" and known.dtype.name not in ("str", "string", "category"):
        return "it holds neither numbers, dates nor categories"
    if known.dtype.kind not in "iufb" and known.nunique() > max(_MAX_VALUES, len(known) / 2):
        return "it has too many different texts, none of which is typical"
    values = known.value_counts().index[:_MAX_VALUES].tolist()
    if known.dtype.kind in "iuf":
        return [float(value) for value in sorted(values)]
    return sorted(values) if known.dtype.kind == "M" else values


def _changed(rows: pd.DataFrame, name: str, value: Any) -> pd.DataFrame:
    """Return rows that all have one value in a column."""
    import pandas as pd

    column = rows[name]
    if column.dtype.kind in "iu":
        value = int(value)
    return rows.assign(**{name: pd.Series([value] * len(rows), rows.index, column.dtype)})

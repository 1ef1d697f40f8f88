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
    meant: pd.DataFrame | None = None,
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
        meant: The same rows with the numbers and dates that texts of the table mean, or None if no
            text does.

    Returns:
        For each column its name, `column`, the `values`, and the `means` by class, or by
        "prediction" for a number. Of two classes, only the second is there.
        Then why each other column of the table has no such values, by name.
    """
    meant = table if meant is None else meant
    rows = table
    if len(table) > _MAX_ROWS:
        places = np.sort(np.random.default_rng(0).choice(len(table), _MAX_ROWS, replace=False))
        rows = table.iloc[places]
        weights = None if weights is None else weights[places]
    found = []
    why = {str(name): "its importance was not measured" for name in table.columns}
    why |= dict.fromkeys(columns, f"only the {NUM_COLUMNS} most important columns have one")
    for name in columns[:NUM_COLUMNS]:
        values = _values_of(column_of(meant, name), column_of(table, name))
        if isinstance(values, str):
            why[name] = values
            continue
        if time.monotonic() > until_s:
            why[name] = "there was no time left to compute it"
            continue
        del why[name]
        predicted = (predict(_changed(rows, name, value)) for _, value in values)
        means = np.array([np.average(each, axis=0, weights=weights) for each in predicted])
        kept = range(means.shape[1])
        shown_names = [str(label) for label in labels] or list(names) or ["prediction"]
        if len(labels) == 2:
            kept = range(1, 2)
        by_class = {
            shown_names[number]: means[:, number].tolist() for number in list(kept)[:_MAX_CLASSES]
        }
        shown = [_shown(value) for value, _ in values]
        found.append({"column": name, "values": shown, "means": by_class})
    return found, why


def _values_of(column: pd.Series, written: pd.Series) -> list[tuple[Any, Any]] | str:
    """Return values and how the table writes each of them, or why there are none.

    They are the most frequent ones, or many numbers or times at equal shares of the rows.

    Args:
        column: The column.
        written: The column as it is in the table, perhaps numbers or dates as text.
    """
    known = column.dropna()
    if known.nunique() < 2:
        return "it has fewer than two different values in the test rows"
    is_number = known.dtype.kind in "iuf"
    if is_number or known.dtype.kind == "M":
        if known.dtype.kind != written.dtype.kind or known.dtype.kind == "M":
            return _written_values(known, written)
        if known.nunique() > _MAX_VALUES:
            shares = np.linspace(0.02, 0.98, _NUM_PLACES)
            ends = np.quantile(known.to_numpy(dtype=np.float64), shares)
            ends = np.round(ends) if known.dtype.kind in "iu" else ends
            return [(float(value), float(value)) for value in np.unique(ends)]
    elif known.dtype.kind not in "bO" and known.dtype.name not in ("str", "string", "category"):
        return "it holds neither numbers, dates nor categories"
    elif known.dtype.kind != "b" and known.nunique() > max(_MAX_VALUES, len(known) / 2):
        return "it has too many different texts, none of which is typical"
    values = known.value_counts().index[:_MAX_VALUES].tolist()
    if is_number:
        return [(float(value), float(value)) for value in sorted(values)]
    return [(value, value) for value in values]


def _written_values(known: pd.Series, written: pd.Series) -> list[tuple[Any, Any]]:
    """Return numbers or times at equal shares of the rows, each as one of the rows writes it."""
    rising = known.sort_values(kind="stable").drop_duplicates()
    if len(rising) > _MAX_VALUES:
        shares = np.linspace(0.02, 0.98, _NUM_PLACES)
        nearest = known.quantile(shares, interpolation="nearest").drop_duplicates()
        rising = rising.loc[rising.isin(nearest)]
    values = rising.tolist()
    if known.dtype.kind != "M":
        values = [float(value) for value in values]
    return list(zip(values, written.loc[rising.index].tolist(), strict=True))


def _shown(value: Any) -> float | str:
    if isinstance(value, float):
        return value
    return str(value).removesuffix(" 00:00:00")


def _changed(rows: pd.DataFrame, name: str, value: Any) -> pd.DataFrame:
    """Return rows that all have one value in a column."""
    import pandas as pd

    column = rows[name]
    if column.dtype.kind in "iu":
        value = int(value)
    return rows.assign(**{name: pd.Series([value] * len(rows), rows.index, column.dtype)})

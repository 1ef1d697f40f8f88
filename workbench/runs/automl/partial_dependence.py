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
) -> list[dict[str, Any]]:
    """Return the mean prediction at several values of each column.

    Args:
        predict: Returns (rows, classes) probabilities, or (rows, 1) numbers.
        table: Rows of the test.
        columns: The columns, the most important first.
        labels: The classes, or empty for numbers.
        names: The names of several numbers, or empty if there is one.
        until_s: When to stop, by `time.monotonic`.

    Returns:
        For each column its name, `column`, the `values`, and the `means` by class, or by
        "prediction" for a number. Of two classes, only the second is there.
    """
    random = np.random.default_rng(0)
    rows = table
    if len(table) > _MAX_ROWS:
        rows = table.iloc[np.sort(random.choice(len(table), _MAX_ROWS, replace=False))]
    found = []
    for name in columns[:NUM_COLUMNS]:
        values = _values_of(column_of(table, name))
        if len(values) < 2 or time.monotonic() > until_s:
            continue
        means = np.array([_mean_at(predict, rows, name, value) for value in values])
        kept = range(means.shape[1])
        shown_names = [str(label) for label in labels] or list(names) or ["prediction"]
        if len(labels) == 2:
            kept = range(1, 2)
        by_class = {
            shown_names[number]: means[:, number].tolist() for number in list(kept)[:_MAX_CLASSES]
        }
        shown = [value if isinstance(value, float) else str(value) for value in values]
        found.append({"column": name, "values": shown, "means": by_class})
    return found


def _values_of(column: pd.Series) -> list[Any]:
    """Return the most frequent values, or for many numbers those at equal shares of the rows."""
    known = column.dropna()
    if known.dtype.kind in "iuf" and known.nunique() > _MAX_VALUES:
        ends = np.quantile(known.to_numpy(dtype=np.float64), np.linspace(0.02, 0.98, _NUM_PLACES))
        if known.dtype.kind in "iu":
            ends = np.round(ends)
        return [float(value) for value in np.unique(ends)]
    if known.dtype.kind not in "iufbO" and known.dtype.name not in ("str", "string", "category"):
        return []
    if known.dtype.kind not in "iufb" and known.nunique() > max(_MAX_VALUES, len(known) / 2):
        return []  # sentences have no typical values
    values = known.value_counts().index[:_MAX_VALUES].tolist()
    if known.dtype.kind in "iuf":
        return [float(value) for value in sorted(values)]
    return values


def _mean_at(
    predict: Callable[[Any], np.ndarray], rows: pd.DataFrame, name: str, value: Any
) -> np.ndarray:
    import pandas as pd

    changed = rows.copy()
    column = rows[name]
    if column.dtype.kind in "iu":
        value = int(value)
    changed[name] = pd.Series([value] * len(rows), index=rows.index, dtype=column.dtype)
    return predict(changed).mean(axis=0)

"""The different values of a column, so that each is looked at once and not in every row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MISSING = -1


def distinct_values(values: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """Return the different values of a column, and which of them each row has.

    Args:
        values: The column.

    Returns:
        (rows,) numbers from 0, `MISSING` where a value is missing, and the values in the order in
        which they first occur.
    """
    import pandas as pd

    if values.dtype == object and pd.api.types.infer_dtype(values, skipna=True) != "string":
        return _distinct_objects(values)
    if len(values) == 1:  # a single row to predict, faster than pandas counts it
        value = values.iloc[0]
        if pd.isna(value):
            return np.array([MISSING]), []
        return np.zeros(1, dtype=np.int64), [value]
    codes, distinct = pd.factorize(values)
    return np.asarray(codes), list(distinct)


def _distinct_objects(values: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """Return the different values of a column of mixed types.

    Python says that 1, 1.0 and True are equal, and it cannot compare lists by their hash. As texts
    they differ, or can be compared.
    """
    codes = np.full(len(values), MISSING)
    places: dict[tuple[type, str], int] = {}
    distinct = []
    for row, (value, is_missing) in enumerate(zip(values, values.isna(), strict=True)):
        if is_missing:
            continue
        key = (type(value), str(value))
        if key not in places:
            places[key] = len(distinct)
            distinct.append(value)
        codes[row] = places[key]
    return codes, distinct

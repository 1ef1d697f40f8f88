"""The different values of a column, and which of them each row has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.data.plain_frames import MISSING, distinct_values


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(["a", None, "b", "a", float("nan")], dtype=object),
        pd.Series(["a", None, "b", "a", ""], dtype="str"),
        pd.Series(["a", None, "b", "a"], dtype="category"),
        pd.Series([True, False, None, True], dtype="boolean"),
        pd.Series([1, True, 1.0, "1", None, [1], [1]], dtype=object),
        pd.Series([], dtype=object),
        pd.Series([None, None], dtype=object),
    ],
)
def test_rows_are_put_together_again_from_distinct_values(values: pd.Series) -> None:
    codes, distinct = distinct_values(values)
    rows: list[Any] = [None if code == MISSING else distinct[code] for code in codes]
    for row, value, is_missing in zip(rows, values, values.isna(), strict=True):
        assert is_missing == (row is None)
        assert is_missing or (type(row), str(row)) == (type(value), str(value))
    keys = [(type(value), str(value)) for value in distinct]
    assert len(set(keys)) == len(keys)


def test_values_come_in_the_order_in_which_they_first_occur() -> None:
    codes, distinct = distinct_values(pd.Series(["b", "a", "b", "c"]))
    assert distinct == ["b", "a", "c"]
    np.testing.assert_array_equal(codes, [0, 1, 0, 2])

"""The weight of each row, in a column of its table."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.dates import is_text
from workbench.data.encoders import SampleKind
from workbench.data.number_texts import PLAIN_NUMBERS, number_text_of
from workbench.data.plain_frames import column_of
from workbench.data.table_files import check_columns
from workbench.foundation.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import pandas as pd


def weights_of(
    kind: SampleKind, samples: Any, weight_column: str, *, target: str | None
) -> np.ndarray:
    """Return the weight of each sample."""
    if kind != "table":
        raise ArgumentError(
            f"{kind} have no columns", field="weight_column", next_step="Remove it."
        )
    if weight_column == target and weight_column not in samples.columns:
        raise ArgumentError(f"{weight_column!r} is the column to predict", field="weight_column")
    check_columns(samples.columns, {"weight_column": [weight_column]}, section="")
    return weights_in(samples, weight_column)


def weights_in(samples: pd.DataFrame, weight_column: str) -> np.ndarray:
    """Return the weight of each row of a table.

    Args:
        samples: The table.
        weight_column: The column with the weights.

    Raises:
        DataError: If they are not numbers from 0, or all 0.
    """
    column = column_of(samples, weight_column)
    numbers = np.full(len(column), np.nan)
    if column.dtype.kind in "iufb":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    elif is_text(column):  # such as 0,5 or 1'200
        form = number_text_of(column, min_share=1.0) or PLAIN_NUMBERS
        with contextlib.suppress(ValueError):
            numbers = form.parse_all(column)
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        raise DataError(
            f"the weight in row {wrong[0]} (from 0) is {column.iloc[wrong[0]]!r}",
            field="weight_column",
            allowed="numbers from 0 in each row",
        )
    if not numbers.any():
        raise DataError("all weights are 0", field="weight_column")
    return numbers

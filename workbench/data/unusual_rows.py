"""Rows that are far outside of what a model learned, whose predictions nobody has tested.

A column of numbers is compared with its range in the rows to learn from, and so is the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from workbench.data.plain_frames import column_of
from workbench.foundation.formatting import format_count, format_number

# A number is far outside if it is further out than the learned range is wide.
WIDTHS = 1.0
PREDICTION = "prediction"


class UnusualValue(NamedTuple):
    """A number far outside of the range that was learned."""

    row: int
    column: str
    value: float
    low: float
    high: float


def ranges_of(samples: Any) -> dict[str, tuple[float, float]]:
    """Return the range of each column of numbers of a table.

    Args:
        samples: The samples to learn from. Other samples than tables have no ranges.
    """
    ranges = {}
    for name, numbers in numbers_in(samples).items():
        known = numbers[np.isfinite(numbers)]
        if len(known):
            ranges[name] = (float(known.min()), float(known.max()))
    return ranges


def numbers_in(samples: Any) -> dict[str, np.ndarray]:
    """Return the columns of a table that hold numbers. Other samples have none.

    Args:
        samples: Samples of any kind.
    """
    columns = {str(name): column_of(samples, name) for name in getattr(samples, "columns", ())}
    return {
        name: column.to_numpy(dtype=np.float64, na_value=np.nan)
        for name, column in columns.items()
        if column.dtype.kind in "iuf"
    }


def unusual_values(
    numbers: Mapping[str, np.ndarray], ranges: Mapping[str, tuple[float, float]]
) -> list[UnusualValue]:
    """Return the numbers that are far outside of what was learned, by row.

    Args:
        numbers: The columns of numbers, and the predicted numbers as PREDICTION.
        ranges: The range of each in the rows to learn from.
    """
    unusual = []
    for name, ends in ranges.items():
        if name in numbers:
            unusual += far_outside(name, numbers[name], ends)
    return sorted(unusual)


def describe_unusual(values: Sequence[UnusualValue], num_rows: int) -> str:
    """Return a note on unusual values, at least one.

    Args:
        values: As `unusual_values` returns them.
        num_rows: Number of rows that were predicted.
    """
    rows = {value.row for value in values}
    # A wild prediction says more than the value that led to it.
    first = next((value for value in values if value.column == PREDICTION), values[0])
    subject = "are" if len(rows) > 1 else "is"
    low, high = format_number(first.low), format_number(first.high)
    return (
        f"{format_count(len(rows), 'row')} of {num_rows} {subject} far outside of what was learned:"
        f" row {first.row} (from 0) has {first.column} {format_number(first.value)}, learned were"
        f" {low} to {high}. Do not rely on its prediction"
    )


def far_outside(name: str, numbers: np.ndarray, ends: tuple[float, float]) -> list[UnusualValue]:
    """Return the numbers of a column that are further outside of a range than it is wide."""
    low, high = ends
    margin = WIDTHS * (high - low)
    far = np.flatnonzero((numbers < low - margin) | (numbers > high + margin))
    return [UnusualValue(int(row), name, float(numbers[row]), low, high) for row in far]

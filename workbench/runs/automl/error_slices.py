"""Parts of a table in which a model is worse than elsewhere: a city, the oldest quarter.

Each value of a column of few values is a slice, and each quarter of a column of numbers or dates.
A slice counts as worse only if chance hardly explains it, with as many slices as were compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.plain_frames import column_of
from workbench.foundation.formatting import format_count, format_number

if TYPE_CHECKING:
    import pandas as pd

MAX_SLICES = 20
_MAX_COLUMNS, _MAX_VALUES = 60, 20
_FEWEST_SAMPLES = 15
_LEAST_EXCESS = 0.15
_CHANCE = 0.05
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def error_slices(
    table: pd.DataFrame, mistakes: np.ndarray, weights: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Return the slices in which mistakes are larger than in all rows, the worst first.

    Args:
        table: Rows of the test.
        mistakes: The error of each row: 1 for a wrong class, or the distance of a number.
        weights: The weight of each row, or None if all are equal.

    Returns:
        For each slice its `column`, its `value` in words, `num_samples`, the mean mistake in it,
        `mean`, that of all rows, `overall`, and whether it is `certain`.
    """
    overall, _ = mean_and_error(mistakes, weights)
    if not overall > 0:
        return []
    slices = []
    for name in list(table.columns)[:_MAX_COLUMNS]:
        for value, rows in _slices_of(column_of(table, name)):
            if any(_num_effective(part, weights) < _FEWEST_SAMPLES for part in (rows, ~rows)):
                continue
            (mean, error_in), (rest, error_of_rest) = (
                mean_and_error(mistakes[part], None if weights is None else weights[part])
                for part in (rows, ~rows)
            )
            error = math.hypot(error_in, error_of_rest)
            more = mean - rest
            excess = more / error if error > 0 else math.copysign(math.inf, more)
            slices.append(
                {
                    "column": str(name),
                    "value": value,
                    "num_samples": int(rows.sum()),
                    "mean": mean,
                    "overall": overall,
                    "errors": excess,
                }
            )
    # With many slices some look bad by chance: the bound of Bonferroni.
    least = NormalDist().inv_cdf(1.0 - _CHANCE / max(1, len(slices)))
    for described in slices:
        is_large = described["mean"] >= (1.0 + _LEAST_EXCESS) * overall
        described["certain"] = bool(described.pop("errors") >= least and is_large)
    worse = [described for described in slices if described["mean"] > overall]
    worse.sort(key=lambda described: (not described["certain"], -described["mean"]))
    return worse[:MAX_SLICES]


def _num_effective(rows: np.ndarray, weights: np.ndarray | None) -> float:
    """Return how many rows of equal weight are as much evidence as some rows.

    Source: the effective number of samples of Kish (1965).
    """
    if weights is None or not rows.any():
        return float(rows.sum())
    return float(weights[rows].sum() ** 2 / (weights[rows] ** 2).sum())


def mean_and_error(values: np.ndarray, weights: np.ndarray | None) -> tuple[float, float]:
    """Return the mean of values and its standard error, 0 if there is one value.

    Args:
        values: Independent values.
        weights: The weight of each value, or None if all are equal.

    Source: the linearised variance of a ratio, Cochran (1977), section 6.
    """
    mean = float(np.average(values, weights=weights))
    if len(values) < 2:
        return mean, 0.0
    shares = np.full(len(values), 1.0 / len(values))
    if weights is not None:
        shares = weights / weights.sum()
    variance = float((shares**2 * (values - mean) ** 2).sum()) * len(values) / (len(values) - 1)
    return mean, variance**0.5


def describe_slice(worst: dict[str, Any], *, is_classification: bool, unit: str = "") -> str:
    """Return the worst slice in words.

    Args:
        worst: A slice, as `error_slices` returns it.
        is_classification: Whether mistakes are wrong classes.
        unit: The unit of numbers, or "".
    """
    where = f"{worst['column']} is {worst['value']}"
    samples = f"on {format_count(worst['num_samples'], 'sample')}"
    if is_classification:
        return (
            f"worst where {where}: accuracy {1 - worst['mean']:.3g} {samples},"
            f" {1 - worst['overall']:.3g} overall"
        )
    mean, overall = (f"{format_number(worst[key])} {unit}".rstrip() for key in ("mean", "overall"))
    return f"worst where {where}: mean absolute error {mean} {samples}, {overall} overall"


def _slices_of(column: pd.Series) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the slices of a column: what they are, and whether each row is in it."""
    missing = column.isna().to_numpy()
    num_values = column.nunique()
    if missing.any():
        yield "missing", missing
    if num_values <= _MAX_VALUES:
        texts = column.astype(str).to_numpy()
        for text in sorted(set(texts[~missing])):
            yield text, (texts == text) & ~missing
    elif column.dtype.kind in "iufM":
        is_time = column.dtype.kind == "M"
        ends = column.quantile(_QUARTERS, interpolation="nearest" if is_time else "linear")
        for low, high in pairwise(ends.unique()):
            rows = (column >= low) & ((column < high) | (high == ends.iloc[-1]))
            shown = [str(end)[:10] if is_time else format_number(float(end)) for end in (low, high)]
            # Missing numbers of pandas are in no interval, but compare as missing.
            yield " to ".join(shown), rows.to_numpy(dtype=bool, na_value=False)

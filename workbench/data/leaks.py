"""Columns that predict the target alone, almost without mistakes: its copies and consequences.

Half of the rows predict the other half: a value is taken to mean what it, or the nearest number,
meant there. The user decides what to do about such a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.data.column_encoding import TextForm
from workbench.data.dates import ISO, as_times
from workbench.data.number_texts import NumberText

if TYPE_CHECKING:
    import pandas as pd

MIN_SKILL = 0.98
"""The share of the errors of a constant guess that a leak avoids."""
MIN_ROWS = 20
_MAX_ROWS = 4_000


@dataclass(frozen=True)
class Leak:
    """A column that alone predicts the target.

    Attributes:
        name: Its name.
        score: Accuracy, or R2 of numbers, on rows that were not read to predict them.
        metric: The name of the score.
    """

    name: str
    score: float
    metric: str

    def note(self, target: str, leave_out: str) -> str:
        """Return what the user should know.

        Args:
            target: The name of the target.
            leave_out: How to leave the column out, such as --drop NAME.
        """
        return (
            f"`{self.name}` alone predicts {target} with {self.metric} {self.score:.2f}: if it is"
            f" not known when a prediction is made, leave it out with {leave_out}"
        )


def find_leaks(
    columns: Mapping[str, pd.Series],
    targets: np.ndarray,
    forms: Mapping[str, TextForm],
    *,
    is_classification: bool,
) -> list[Leak]:
    """Return the columns of a table that alone predict its target almost perfectly.

    Args:
        columns: The inputs, by name.
        targets: Class numbers or numbers, one for each row, none missing.
        forms: How columns write dates or numbers as text.
        is_classification: Whether the targets are classes.
    """
    if len(targets) < MIN_ROWS:
        return []
    rows = np.random.default_rng(0).permutation(len(targets))[:_MAX_ROWS]
    halves = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    leaks = []
    for name, column in columns.items():
        values = _as_numbers(column.iloc[rows], forms.get(name))
        score, skill = _score(values, targets[rows], len(halves[0]), is_classification)
        if skill >= MIN_SKILL:
            metric = "accuracy" if is_classification else "R2"
            leaks.append(Leak(name, score, metric))
    return leaks


def _as_numbers(column: pd.Series, form: TextForm | None) -> np.ndarray:
    """Return the values as numbers in the same order. Missing ones are the least."""
    import pandas as pd

    if isinstance(form, NumberText):
        values = form.parse_all(column)
    elif isinstance(form, str) or pd.api.types.is_datetime64_any_dtype(column):
        values = as_times(column, form or ISO)
    elif pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        codes = pd.factorize(column.astype(str).where(column.notna(), None))[0]
        values = np.where(codes < 0, np.nan, codes)
    is_known = np.isfinite(values)
    known = values[is_known]
    least = 0.0
    if len(known):
        # Far below all other values, so that it is never mistaken for the nearest one.
        least = known.min() - np.ptp(known) - 1.0
    return np.where(is_known, values, least)


def _score(
    values: np.ndarray, targets: np.ndarray, num_read: int, is_classification: bool
) -> tuple[float, float]:
    """Return how well the first rows predict the others, and the skill compared with a guess."""
    distinct, place = np.unique(values[:num_read], return_inverse=True)
    read, rest, wanted = targets[:num_read], values[num_read:], targets[num_read:]
    if is_classification:
        counts = np.zeros((len(distinct), int(targets.max()) + 1), dtype=np.int64)
        np.add.at(counts, (place, read), 1)
        mistakes = counts.argmax(axis=1)[_nearest(distinct, rest)] != wanted
        of_guess = np.mean(wanted != np.bincount(read).argmax())
        return 1.0 - float(mistakes.mean()), _avoided(float(mistakes.mean()), float(of_guess))
    means = np.bincount(place, weights=read) / np.bincount(place)
    squared_error = float(np.mean((np.interp(rest, distinct, means) - wanted) ** 2))
    r2 = _avoided(squared_error, float(np.mean((wanted - read.mean()) ** 2)))
    return r2, r2


def _nearest(distinct: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the place of the number next to each value among rising numbers."""
    above = np.searchsorted(distinct, values).clip(1, max(1, len(distinct) - 1))
    above = np.minimum(above, len(distinct) - 1)
    below = np.maximum(above - 1, 0)
    return np.where(values - distinct[below] <= distinct[above] - values, below, above)


def _avoided(error: float, of_guess: float) -> float:
    if of_guess <= 0.0:
        return 0.0
    return 1.0 - error / of_guess

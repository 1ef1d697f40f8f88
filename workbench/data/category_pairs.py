"""Two columns together as the mean target of the rows that share both values.

A shop and a year together may tell much more than each of them. Trees find this out by themselves
where both columns have few values. Where one has many categories, they cannot: a category is only
its mean target to them, and its rows are not together.

Source: the combinations of categories of Prokhorenkova et al., CatBoost: Unbiased Boosting with
Categorical Features (2018), section 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from workbench.data.category_targets import (
    cross_fitted_means,
    scaled_counts,
    scaled_means,
    show_cross_fitted,
)
from workbench.data.column_encoding import Column

if TYPE_CHECKING:
    import pandas as pd

MANY_CATEGORIES = 32
MAX_PAIRS = 10
# Numbers with more different values are quantities, whose exact values tell little.
_MAX_NUMBERS = 300
_MIN_ROWS_PER_PAIR = 1.2
# By how much more of the variance of the targets than each of the two columns a pair must explain.
_MIN_GAIN = 0.01


@dataclass(frozen=True)
class PairSide:
    """One of the two columns. Its values are counted from 0.

    Other values have the last number. Where the column has numbers, missing ones have the number
    before. A missing category is a category.

    Attributes:
        column: The column.
        numbers: The sorted different values of a column of numbers, or empty for categories.
    """

    column: Column
    numbers: tuple[float, ...] = ()

    @property
    def num_values(self) -> int:
        """How many values there are, with the one that stands for all others."""
        if self.numbers:
            return len(self.numbers) + 2
        return len(self.column.ranks) + 1

    def places(self, values: pd.Series) -> np.ndarray:
        """Return the number of the value of each row.

        Args:
            values: The column in any table that has it.
        """
        given = self.column.numbers(values)
        missing, unknown = np.isnan(given), self.num_values - 1
        if not self.numbers:
            return np.where(missing, unknown, given).astype(np.int64)
        known = np.array(self.numbers)
        place = np.minimum(np.searchsorted(known, given), len(known) - 1)
        place = np.where(known[place] == given, place, unknown)
        return np.where(missing, len(known), place).astype(np.int64)


@dataclass(frozen=True)
class CategoryPair:
    """The learnt encoding of two columns together.

    Attributes:
        sides: The two columns.
        keys: The sorted pairs of the train rows. A pair is the place of the first value times the
            number of second values, plus the place of the second value.
        table: The numbers of each pair, and at last those of an unknown one: how often it occurs,
            and its mean targets.
        target_scales: Mean and divisor of the mean targets.
    """

    sides: tuple[PairSide, PairSide]
    keys: np.ndarray = field(repr=False, compare=False)
    table: np.ndarray = field(repr=False, compare=False)
    target_scales: tuple[tuple[float, float], ...]

    @property
    def width(self) -> int:
        """The number of encoded numbers per row."""
        return self.table.shape[1]

    def encode(self, columns: Mapping[str, pd.Series]) -> np.ndarray:
        """Return rows as (rows, width) numbers.

        Args:
            columns: The columns of any table, by name.

        Raises:
            DataError: As `Column.encode`.
        """
        return self.table[self._places(columns)]

    def encode_train(
        self, columns: Mapping[str, pd.Series], targets: np.ndarray | None
    ) -> np.ndarray:
        """Return the train rows as numbers that do not show a row its own target.

        Args:
            columns: The columns of the rows that the pair was learnt from, by name.
            targets: Their targets, as `category_targets.target_numbers` returns them.
        """
        places = self._places(columns)
        encoded = self.table[places]
        if targets is not None:
            show_cross_fitted(encoded, places, targets, len(self.keys), self.target_scales)
        return encoded

    def _places(self, columns: Mapping[str, pd.Series]) -> np.ndarray:
        keys = _keys_of(self.sides, columns)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, place, len(self.keys))


def learn_pairs(
    columns: Sequence[Column], values: Mapping[str, pd.Series], targets: np.ndarray
) -> tuple[CategoryPair, ...]:
    """Return the pairs that tell more about the targets than each of their columns.

    One of the columns has many categories. The other one has categories, or few numbers. There are
    none for several classes or targets: on two tables, they raised the log loss by 6 % and 14 %.

    Args:
        columns: The learnt columns.
        values: The train rows, by the name of the column.
        targets: Their targets, as `category_targets.target_numbers` returns them.
    """
    sides = [side for column in columns if (side := _side_of(column, values)) is not None]
    if targets.shape[1] > 1 or not any(_has_many_categories(side) for side in sides):
        return ()
    explained = {
        side.column.name: _explained(side.places(values[side.column.name]), targets)
        for side in sides
    }
    gains: list[tuple[float, tuple[PairSide, PairSide], np.ndarray, np.ndarray]] = []
    for pair in itertools.combinations(sides, 2):
        if not any(_has_many_categories(side) for side in pair):
            continue
        known, places = np.unique(_keys_of(pair, values), return_inverse=True)
        if len(known) * _MIN_ROWS_PER_PAIR > len(targets):
            continue
        alone = max(explained[side.column.name] for side in pair)
        gain = _explained(places, targets) - alone
        if gain > _MIN_GAIN:
            gains.append((gain, pair, known, places))
    gains.sort(key=lambda item: -item[0])
    return tuple(
        _learn_pair(pair, known, places, targets) for _, pair, known, places in gains[:MAX_PAIRS]
    )


def _side_of(column: Column, values: Mapping[str, pd.Series]) -> PairSide | None:
    if column.ranks:
        return PairSide(column)
    if column.kind != "number":
        return None
    numbers = column.numbers(values[column.name])
    known = np.unique(numbers[~np.isnan(numbers)])
    if not 1 < len(known) <= _MAX_NUMBERS:
        return None
    return PairSide(column, tuple(known.tolist()))


def _has_many_categories(side: PairSide) -> bool:
    return len(side.column.ranks) > MANY_CATEGORIES


def _keys_of(sides: tuple[PairSide, PairSide], columns: Mapping[str, pd.Series]) -> np.ndarray:
    first, second = (side.places(columns[side.column.name]) for side in sides)
    return first * sides[1].num_values + second


def _explained(places: np.ndarray, targets: np.ndarray) -> float:
    """Return the part of the variance of targets that the means of other rows explain."""
    means = cross_fitted_means(places, targets, int(places.max()) + 1)
    total = ((targets - targets.mean(axis=0)) ** 2).sum()
    if total == 0.0:
        return 0.0
    return float(1.0 - ((targets - means) ** 2).sum() / total)


def _learn_pair(
    sides: tuple[PairSide, PairSide], keys: np.ndarray, places: np.ndarray, targets: np.ndarray
) -> CategoryPair:
    means, scales = scaled_means(places, targets, len(keys))
    table = np.concatenate([scaled_counts(places, len(keys)), means], axis=1)
    return CategoryPair(sides, keys, table, scales)

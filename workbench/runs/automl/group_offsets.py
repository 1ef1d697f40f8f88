"""What is added to a predicted number because its group was learned from, such as a person.

A grouped table is split so that all rows of a group are on one side, and its score answers how good
predictions are for new groups. Such models never see the group. Once they are fitted to all rows,
what a known group has left above or below its predictions is added to them, shrunken towards 0 for
a group of few rows. A new group gets nothing, so its predictions and the score stay as they are.

Source: the best linear unbiased prediction of a random intercept (Robinson, That BLUP Is a Good
Thing, Statistical Science 6, 1991), with the variances by the method of moments.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from workbench.data.column_encoding import Column
from workbench.data.number_texts import text_of_category
from workbench.data.plain_frames import distinct_values

if TYPE_CHECKING:
    import pandas as pd


MAX_GROUPS = 100_000
"""With more groups, the offsets would take more space than most models."""
_FEWEST_PER_GROUP = 1.2
"""With fewer rows per group, hardly any group tells how much its rows differ."""


def group_texts(values: pd.Series) -> np.ndarray:
    """Return the group of each row as text, None where it is missing, shape [rows].

    Args:
        values: The column with the groups.
    """
    codes, distinct = distinct_values(values)
    known: Collection[str] = ()
    texts = [text_of_category(value, known) for value in distinct]
    return np.array([*texts, None], dtype=object)[codes]


def learn_offsets(name: str, groups: np.ndarray, residuals: np.ndarray) -> Column | None:
    """Return a column of groups whose encoding is the offset of each, or None if they do not pay.

    On eight tables of 1,800 to 9,600 rows with 46 to 3,800 groups, the error for other rows of
    known groups fell by 52, 31, 16, 11, 10, 6, 0.6 and 0.3 %. Residuals of the rows that a model
    learned from were better than those of folds: what the model knows of a group by its other
    columns is not added twice.

    Args:
        name: The column with the groups.
        groups: The group of each row as text, None where it is missing, shape [rows].
        residuals: What is missing from the prediction of each row, in the unit of the target, shape
            [rows].
    """
    known = np.array([group is not None for group in groups], dtype=bool)
    if not known.any():
        return None
    labels, places, counts = np.unique(
        groups[known].astype(str), return_inverse=True, return_counts=True
    )
    num_rows, num_groups = len(places), len(labels)
    if not 2 <= num_groups <= MAX_GROUPS or num_rows < _FEWEST_PER_GROUP * num_groups:
        return None
    left = residuals[known]
    means = np.bincount(places, left) / counts
    within = float(((left - means[places]) ** 2).sum() / (num_rows - num_groups))
    between = float(means.var(ddof=1) - (within / counts).mean())
    if not between > 0.0:
        return None
    offsets = means * counts / (counts + within / between)
    ranks: dict[str | None, int] = {label: place for place, label in enumerate(labels.tolist())}
    ranks[None] = num_groups
    table = np.concatenate([offsets, [0.0, 0.0]])[:, None]  # a missing and an unknown group
    return Column(name, "lookup", ranks=ranks, table=table)

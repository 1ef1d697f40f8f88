"""Splits of rows that belong together: a group stays on one side, and later rows are held out.

Rows of one group, such as one patient, resemble each other. A row in validation would be too easy
if another row of its group were in train. Rows that follow in time are held out at the end, as a
model predicts later rows. Which columns hold groups and times is left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from workbench.data.splits import split_indices

_FORWARD_FRACTION = 0.12
"""Share of the rows in each validation part of a forward chain."""
_NUM_FORWARD = 3
_PRECISION = 1e9
"""Costs of a place count as equal if they differ by less than a part of this."""


@dataclass(frozen=True)
class RowBlocks:
    """Which rows belong together, and when each of them was measured.

    Attributes:
        groups: The group of each row by number from 0, or None if each row is independent.
        times: The time of each row, or None if time does not matter. No time is missing.
    """

    groups: np.ndarray | None = field(default=None, repr=False)
    times: np.ndarray | None = field(default=None, repr=False)

    def take(self, rows: np.ndarray) -> RowBlocks:
        """Return the blocks of some of the rows.

        Args:
            rows: The numbers of the rows.
        """
        groups = None
        if self.groups is not None:
            groups = np.unique(self.groups[rows], return_inverse=True)[1]
        return RowBlocks(groups, None if self.times is None else self.times[rows])


def hold_out(
    num_rows: int, fraction: float, seed: int, *, classes: np.ndarray | None, blocks: RowBlocks
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a part of the rows, the same way for the same seed.

    Args:
        num_rows: Number of rows, at least 2.
        fraction: Share of the rows to hold out.
        seed: Seed of the split.
        classes: Class of each row. Each class keeps its share as far as groups allow it.
        blocks: Which rows belong together.

    Returns:
        Sorted row numbers: those that remain, and those that are held out. Neither is empty if
        there are two groups or times. With times, rows before the held-out ones whose group is
        among them are in neither part.
    """
    if blocks.times is not None:
        begin, end = _last_part(blocks.times, fraction)
        return _before(blocks, begin, end)
    if blocks.groups is None:
        return split_indices(num_rows, validation_fraction=fraction, seed=seed, classes=classes)
    num_groups = int(blocks.groups.max()) + 1
    parts = grouped_folds(
        blocks.groups, min(num_groups, round(1 / fraction)), seed, classes=classes
    )
    held_out = min(
        parts, key=lambda rows: _unlikeness(rows, num_rows, fraction=fraction, classes=classes)
    )
    return np.setdiff1d(np.arange(num_rows), held_out), held_out


def folds_of(
    num_rows: int,
    num_folds: int,
    seed: int,
    *,
    fraction: float,
    classes: np.ndarray | None,
    blocks: RowBlocks,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Choose the train and the validation rows of each fold.

    Args:
        num_rows: Rows to learn from.
        num_folds: A single fold holds out a part. Several folds hold out each row once. With times,
            several folds are three, each of which holds out later rows than it learns from, the
            last rows first.
        seed: Seed of the split.
        fraction: Share of the rows that a single fold holds out.
        classes: Class of each row, for stratified folds.
        blocks: Which rows belong together.

    Returns:
        Sorted row numbers, none empty if there are enough groups or times.
    """
    if num_folds == 1:
        return [hold_out(num_rows, fraction, seed, classes=classes, blocks=blocks)]
    if blocks.times is not None:
        return _forward_chain(blocks)
    if blocks.groups is not None:
        num_folds = min(num_folds, int(blocks.groups.max()) + 1)
        parts = grouped_folds(blocks.groups, num_folds, seed, classes=classes)
    else:
        order = np.random.default_rng(seed).permutation(num_rows)
        if classes is not None:
            order = order[np.argsort(classes[order], kind="stable")]
        parts = [np.sort(order[first::num_folds]) for first in range(num_folds)]
    return [(np.setdiff1d(np.arange(num_rows), part), part) for part in parts]


def grouped_folds(
    groups: np.ndarray, num_folds: int, seed: int, *, classes: np.ndarray | None
) -> list[np.ndarray]:
    """Divide rows into parts of about the same size and classes, without splitting groups.

    Args:
        groups: The group of each row, by number from 0.
        num_folds: Number of parts, at most the number of groups.
        seed: Seed of the order in which groups of one size are distributed.
        classes: Class of each row, or None.

    Returns:
        Sorted row numbers: disjoint and complete, none empty.
    """
    num_groups = int(groups.max()) + 1
    if classes is None:
        classes = np.zeros(len(groups), dtype=np.int64)
    counts = np.zeros((num_groups, int(classes.max()) + 1))
    np.add.at(counts, (groups, classes), 1.0)
    order = np.random.default_rng(seed).permutation(num_groups)
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    wanted = np.maximum(counts.sum(axis=0) / num_folds, 1e-9).tolist()
    # Plain numbers: there may be as many groups as rows, and arrays of few numbers are slow.
    of_groups: list[list[tuple[int, float, float]]] = [[] for _ in range(num_groups)]
    present = np.argwhere(counts)
    for (group, label), count in zip(present.tolist(), counts[counts > 0].tolist(), strict=True):
        of_groups[group].append((label, count, count / wanted[label]))
    filled = [[0.0] * counts.shape[1] for _ in range(num_folds)]
    sizes = [0.0] * num_folds
    fold_of = [0] * num_groups
    # The largest groups first, each where it adds least to the sum of squared shares.
    for group in order.tolist():
        of_group = of_groups[group]
        costs = [
            round(_PRECISION * sum((2.0 * fold[label] + n) * part for label, n, part in of_group))
            for fold in filled
        ]
        _, _, place = min(zip(costs, sizes, range(num_folds), strict=True))
        fold_of[group] = place
        for label, count, _ in of_group:
            filled[place][label] += count
            sizes[place] += count
    of_row = np.array(fold_of)[groups]
    return [np.flatnonzero(of_row == number) for number in range(num_folds)]


def _unlikeness(
    rows: np.ndarray, num_rows: int, *, fraction: float, classes: np.ndarray | None
) -> float:
    """Return how far a part is from the wanted size and classes. Less is better."""
    if classes is None:
        return abs(len(rows) - fraction * num_rows)
    counts = np.bincount(classes).astype(float)
    part = np.bincount(classes[rows], minlength=len(counts))
    present = counts > 0
    wanted = fraction * counts[present]
    # Nothing can be learnt about a class that is held out entirely.
    lost = float((part[present] == counts[present]).sum()) * num_rows
    return lost + float(((part[present] - wanted) ** 2 / wanted).sum())


def _last_part(times: np.ndarray, fraction: float) -> tuple[float, float]:
    """Return the first time of the last part of the rows, and infinity."""
    distinct, counts = np.unique(times, return_counts=True)
    if len(distinct) < 2:
        return float(distinct[0]), np.inf
    before = np.cumsum(counts)[:-1]  # rows before each time but the first
    nearest = int(np.abs(before - (1.0 - fraction) * len(times)).argmin())
    return float(distinct[nearest + 1]), np.inf


def _before(blocks: RowBlocks, begin: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows before a time, and those from it up to another time."""
    assert blocks.times is not None
    held_out = np.flatnonzero((blocks.times >= begin) & (blocks.times < end))
    before = np.flatnonzero(blocks.times < begin)
    if blocks.groups is not None:
        before = before[~np.isin(blocks.groups[before], blocks.groups[held_out])]
    return before, held_out


def _forward_chain(blocks: RowBlocks) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return folds that each validate on later rows than they learn from, up to the last rows.

    The fold with the last rows comes first: a run that has no time for the others is left with the
    model that knows the most about what comes next.
    """
    assert blocks.times is not None
    shares = [number * _FORWARD_FRACTION for number in range(_NUM_FORWARD, 0, -1)]
    begins = sorted({_last_part(blocks.times, share)[0] for share in shares})
    ends = [*begins[1:], np.inf]
    folds = [_before(blocks, begin, end) for begin, end in zip(begins, ends, strict=True)][::-1]
    return [part for part in folds if len(part[0]) and len(part[1])]

"""Groups stay whole, later rows are held out, and classes keep their shares as far as possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.row_splits import RowBlocks, folds_of, grouped_folds, hold_out


@given(
    st.lists(st.integers(1, 30), min_size=3, max_size=25),
    st.integers(0, 1000),
    st.booleans(),
    st.sampled_from([1, 3, 5]),
)
def test_groups_are_never_on_both_sides(sizes, seed, has_classes, num_folds):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    classes = (groups % 3) if has_classes else None
    blocks = RowBlocks(groups)
    rest, held_out = hold_out(len(groups), 0.2, seed, classes=classes, blocks=blocks)
    assert len(rest)
    assert len(held_out)
    assert sorted([*rest, *held_out]) == list(range(len(groups)))
    assert not set(groups[rest]) & set(groups[held_out])
    folds = folds_of(len(groups), num_folds, seed, fraction=0.2, classes=classes, blocks=blocks)
    assert len(folds) == (1 if num_folds == 1 else min(num_folds, len(sizes)))
    for train, validation in folds:
        assert len(train)
        assert len(validation)
        assert not set(groups[train]) & set(groups[validation])
    if num_folds > 1:
        assert sorted(np.concatenate([part for _, part in folds])) == list(range(len(groups)))


@given(
    st.lists(st.integers(0, 40), min_size=10, max_size=300).filter(lambda t: len(set(t)) > 2),
    st.sampled_from([1, 5]),
)
def test_later_rows_are_held_out(times, num_folds):
    when = np.array(times, dtype=float)
    blocks = RowBlocks(None, when)
    rest, held_out = hold_out(len(when), 0.2, 0, classes=None, blocks=blocks)
    assert len(rest)
    assert len(held_out)
    assert when[rest].max() < when[held_out].min(), "rows of one moment stay together"
    folds = folds_of(len(when), num_folds, 0, fraction=0.2, classes=None, blocks=blocks)
    assert len(folds) in ((1,) if num_folds == 1 else (1, 2, 3))
    for train, validation in folds:
        assert when[train].max() < when[validation].min()
    assert set(np.flatnonzero(when == when.max())) <= set(folds[0][1]), "the last rows come first"


def test_earlier_rows_of_a_held_out_group_are_in_no_part():
    groups = np.arange(100) // 5
    groups[10] = 19
    blocks = RowBlocks(groups, np.arange(100.0))
    rest, held_out = hold_out(100, 0.2, 0, classes=None, blocks=blocks)
    assert held_out.tolist() == list(range(80, 100))
    assert 10 not in rest
    assert len(rest) == 79


def test_groups_keep_the_shares_of_classes():
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(100), random.integers(2, 9, 100))
    classes = (random.random(100) < 0.2)[groups].astype(int)
    share = classes.mean()
    parts = grouped_folds(groups, 5, 0, classes=classes)
    for part in parts:
        assert abs(len(part) - len(groups) / 5) <= 4
        assert abs(classes[part].mean() - share) < 0.03


def test_a_class_of_one_group_is_learnt_from():
    groups = np.repeat(np.arange(6), 10)
    classes = (groups == 2).astype(int)
    for seed in range(5):
        rest, _ = hold_out(60, 0.2, seed, classes=classes, blocks=RowBlocks(groups))
        assert set(classes[rest]) == {0, 1}


@given(
    st.lists(st.integers(2, 40), min_size=3, max_size=5),
    st.integers(0, 1000),
    st.sampled_from([1, 3, 5]),
    st.booleans(),
)
def test_each_sample_is_held_out_once_and_every_class_is_left_to_learn_from(
    counts, seed, number, stratified
):
    classes = np.repeat(np.arange(len(counts)), counts)
    folds = folds_of(
        len(classes),
        number,
        seed,
        fraction=0.2,
        classes=classes if stratified else None,
        blocks=RowBlocks(),
    )
    parts = [part for _, part in folds]
    assert len(parts) == number
    assert all(len(part) for part in parts)
    held_out = np.concatenate(parts)
    assert len(set(held_out)) == len(held_out)
    assert number == 1 or len(held_out) == len(classes)
    if stratified:
        for train, _ in folds:
            assert set(classes[train]) == set(range(len(counts)))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_splits_in_the_same_way(seed):
    groups = np.random.default_rng(0).integers(0, 30, 200)
    groups = np.unique(groups, return_inverse=True)[1]
    first, second = (
        hold_out(200, 0.2, seed, classes=None, blocks=RowBlocks(groups))[1] for _ in range(2)
    )
    assert first.tolist() == second.tolist()

"""Of all choices of blocks that fit into memory, the one that computes the least again is found."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.strategies.kept_blocks import BlockCost, PassCost

BLOCKS = st.builds(
    BlockCost, st.integers(0, 50), st.integers(0, 20).map(float), st.integers(0, 20)
)  # whole numbers, so that sums are exact
PASSES = st.builds(PassCost, st.lists(BLOCKS, max_size=8).map(tuple), st.integers(0, 30))


def held_at_each_moment(cost: PassCost, kept: list[bool]) -> list[int]:
    """What is kept while each block is in its backward pass, by going through the pass."""
    moments, held = [], 0
    for block, is_kept in zip(cost.blocks, kept, strict=True):
        held += block.before_bytes + (block.own_bytes if is_kept else 0)
    held += cost.after_bytes
    moments.append(held)
    held -= cost.after_bytes
    for block, is_kept in reversed(list(zip(cost.blocks, kept, strict=True))):
        moments.append(held + (0 if is_kept else block.own_bytes))
        held -= block.before_bytes + (block.own_bytes if is_kept else 0)
    assert held == 0
    return moments


@given(PASSES, st.integers(0, 300))
def test_the_choice_is_the_best_of_all(cost: PassCost, limit_bytes: int) -> None:
    choices = [list(kept) for kept in itertools.product([False, True], repeat=len(cost.blocks))]
    fitting = [kept for kept in choices if max(held_at_each_moment(cost, kept)) <= limit_bytes]
    chosen = cost.choose_kept(limit_bytes)
    if not fitting:
        assert chosen is None
        assert cost.least_bytes > limit_bytes
    else:
        assert chosen in fitting
        assert cost.again_s(chosen) == min(cost.again_s(kept) for kept in fitting)
        assert cost.least_bytes <= limit_bytes


@given(PASSES, st.data())
def test_the_peak_is_the_most_that_is_held_in_the_backward_pass(
    cost: PassCost, data: st.DataObject
) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(cost.blocks), max_size=len(cost.blocks)))
    assert cost.peak_bytes(kept) == max(held_at_each_moment(cost, kept))
    assert cost.least_bytes <= cost.peak_bytes(kept) <= cost.most_bytes


def test_many_blocks_that_all_differ_are_chosen_among_within_the_limit() -> None:
    rng = random.Random(0)
    blocks = [
        BlockCost(rng.randrange(1, 10**9), rng.random(), rng.randrange(10**6)) for _ in range(200)
    ]
    cost = PassCost(tuple(blocks))
    limit_bytes = (cost.least_bytes + cost.most_bytes) // 2
    kept = cost.choose_kept(limit_bytes)
    assert kept is not None
    assert cost.peak_bytes(kept) <= limit_bytes
    # Taking the most seconds a byte first is nearly the best where each block is small beside the
    # limit.
    greedy, again_s = [False] * len(blocks), cost.again_s([False] * len(blocks))
    for number in sorted(
        range(len(blocks)), key=lambda at: -blocks[at].seconds / blocks[at].own_bytes
    ):
        greedy[number] = True
        if cost.peak_bytes(greedy) > limit_bytes:
            greedy[number] = False
    assert cost.again_s(greedy) < 0.7 * again_s
    assert cost.again_s(kept) <= cost.again_s(greedy) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("limit_bytes", "expected"), [(30, [True] * 3), (25, [False, True, True]), (9, None)]
)
def test_of_equal_blocks_some_are_kept(limit_bytes: int, expected: list[bool] | None) -> None:
    cost = PassCost(tuple(BlockCost(10, seconds) for seconds in (1.0, 2.0, 3.0)))
    assert cost.choose_kept(limit_bytes) == expected

"""Which blocks of a model keep their activations, and which are computed again, within a number of
bytes.

Every block's inputs are kept in any case. A block that keeps the rest of its activations takes
memory from its forward to its backward pass, one that does not only while it is computed again. Of
all choices that fit, the one that computes the least again is found by dynamic programming. What
blocks cost is measured by others.

Source: the knapsack of Beaumont et al. 2021, "Efficient Combination of Rematerialization and
Offloading for Training DNNs", restricted to single blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_MAX_STATES = 1024
"""Choices that are compared at each block.

Beyond, of those that take about as much memory the fastest.
"""


@dataclass(frozen=True)
class BlockCost:
    """What a block costs in one forward pass.

    Attributes:
        own_bytes: What it keeps beside its inputs unless it is computed again.
        seconds: How long computing it again takes, or another measure of that, >= 0.
        before_bytes: What is kept in any case from before this block on: its inputs, and what lies
            between the block before and this one.
    """

    own_bytes: int
    seconds: float
    before_bytes: int = 0


@dataclass(frozen=True)
class PassCost:
    """What a forward pass costs.

    Attributes:
        blocks: Its blocks in the order in which they are computed.
        after_bytes: What is kept in any case after the last one.
    """

    blocks: tuple[BlockCost, ...]
    after_bytes: int = 0

    @property
    def least_bytes(self) -> int:
        """The most that is kept at any moment if all blocks are computed again."""
        return self.peak_bytes([False] * len(self.blocks))

    @property
    def most_bytes(self) -> int:
        """The same if none is."""
        return self.peak_bytes([True] * len(self.blocks))

    def peak_bytes(self, kept: Sequence[bool]) -> int:
        """Return the most that is kept at any moment, from the first block's forward to its
        backward pass.

        Args:
            kept: For each block whether it keeps its activations.
        """
        held, peak = 0, 0
        for block, is_kept in zip(self.blocks, kept, strict=True):
            held += block.before_bytes
            peak = max(peak, held + block.own_bytes)
            held += block.own_bytes * is_kept
        return max(peak, held + self.after_bytes)

    def again_s(self, kept: Sequence[bool]) -> float:
        """Return how long the blocks take that are computed again; argument as in `peak_bytes`."""
        return sum(
            block.seconds for block, is_kept in zip(self.blocks, kept, strict=True) if not is_kept
        )

    def choose_kept(self, limit_bytes: float) -> list[bool] | None:
        """Return which blocks keep their activations so that the least is computed again.

        Args:
            limit_bytes: The most that may be kept at any moment.

        Returns:
            For each block whether it keeps its activations; None where not even computing all of
            them again is enough.
        """
        states: list[_State] = [_State(0, 0.0, None)]
        always = 0
        for block in self.blocks:
            always += block.before_bytes
            # What a block keeps is there in its backward pass, however it came about.
            room = limit_bytes - always - block.own_bytes
            fitting = [state for state in states if state.kept_bytes <= room]
            states = _thinned(
                _fastest(itertools.chain.from_iterable(_next(each, block) for each in fitting))
            )
        room = limit_bytes - always - self.after_bytes
        fitting = [state for state in states if state.kept_bytes <= room]
        if not fitting:
            return None
        return _decisions(min(fitting, key=lambda state: (state.again_s, state.kept_bytes)))


class _State(NamedTuple):
    """What some choice for the first blocks costs.

    `last` is the choice for the last one and the others.
    """

    kept_bytes: int
    again_s: float
    last: tuple[bool, _State] | None


def _next(state: _State, block: BlockCost) -> list[_State]:
    return [
        _State(state.kept_bytes, state.again_s + block.seconds, (False, state)),
        _State(state.kept_bytes + block.own_bytes, state.again_s, (True, state)),
    ]


def _fastest(states: Iterable[_State]) -> list[_State]:
    """Return, by memory, the states that no other one beats in both memory and time."""
    found: list[_State] = []
    for state in sorted(states, key=lambda each: (each.kept_bytes, each.again_s)):
        if not found or state.again_s < found[-1].again_s:
            found.append(state)
    return found


def _thinned(states: list[_State]) -> list[_State]:
    if len(states) <= _MAX_STATES:
        return states
    width = states[-1].kept_bytes // _MAX_STATES + 1
    return list({state.kept_bytes // width: state for state in states}.values())


def _decisions(state: _State) -> list[bool]:
    found: list[bool] = []
    while state.last is not None:
        is_kept, state = state.last
        found.append(is_kept)
    return found[::-1]

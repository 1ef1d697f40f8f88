"""Chooses the blocks of a model that keep their activations, within a limit of bytes.

The inputs of a block are always kept. If a block keeps its other activations too, they take memory
from its forward to its backward pass. Otherwise they take memory only while the block is
recomputed. Among all choices that fit, dynamic programming finds the one that recomputes the least.

The costs of blocks are measured in forward passes that keep nothing, so a pass can be measured even
if its activations would not fit. Computing with fake tensors takes no time, so operations are
counted instead.

Source: the knapsack of Beaumont et al. 2021, "Efficient Combination of Rematerialization and
Offloading for Training DNNs", restricted to single blocks.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree
from torch.utils.flop_counter import FlopCounterMode

from workbench.foundation.errors import ExperimentError
from workbench.training.strategies.recompute import Block
from workbench.training.strategies.tensor_shards import local_part

_MAX_STATES = 1024
"""How many choices are compared at each block. If there are more, only the fastest of those that
take about the same memory remain.
"""
_NUM_TIMED = 2
_FLOPS_PER_BYTE = 2.5
"""A byte that is written takes about as long as this many operations of a matrix product."""


@dataclass(frozen=True)
class BlockCost:
    """The cost of a block in one forward pass.

    Attributes:
        own_bytes: Bytes that it keeps in addition to its inputs, unless it is recomputed.
        seconds: How long recomputing it takes. On fake tensors, a number of operations instead.
        before_bytes: Bytes that are always kept before this block: its inputs, and tensors between
            the previous block and this one.
    """

    own_bytes: int
    seconds: float
    before_bytes: int = 0


@dataclass(frozen=True)
class PassCost:
    """The cost of a forward pass.

    Attributes:
        blocks: Its blocks in the order of computation.
        after_bytes: Bytes that are always kept after the last block.
    """

    blocks: tuple[BlockCost, ...]
    after_bytes: int = 0

    @property
    def least_bytes(self) -> int:
        """The peak of what is kept if all blocks are recomputed."""
        return self.peak_bytes([False] * len(self.blocks))

    @property
    def most_bytes(self) -> int:
        """The peak of what is kept if no block is recomputed."""
        return self.peak_bytes([True] * len(self.blocks))

    def peak_bytes(self, kept: Sequence[bool]) -> int:
        """Return the peak of what is kept from the first forward to the last backward pass.

        Args:
            kept: Whether each block keeps its activations.
        """
        held, peak = 0, 0
        for block, is_kept in zip(self.blocks, kept, strict=True):
            held += block.before_bytes
            peak = max(peak, held + block.own_bytes)
            held += block.own_bytes * is_kept
        return max(peak, held + self.after_bytes)

    def again_s(self, kept: Sequence[bool]) -> float:
        """Return how long the recomputed blocks take. See `peak_bytes` for the argument."""
        return sum(
            block.seconds for block, is_kept in zip(self.blocks, kept, strict=True) if not is_kept
        )

    def choose_kept(self, limit_bytes: float) -> list[bool] | None:
        """Choose the blocks that keep their activations, such that the least is recomputed.

        Args:
            limit_bytes: The most that may be kept at any moment.

        Returns:
            Whether each block keeps its activations. None if the limit is too low even if all
            blocks are recomputed.
        """
        # A knapsack. A state is a choice for the blocks so far. Only states that no other state
        # beats in both memory and time are continued with the next block.
        states: list[_State] = [_State(0, 0.0, None)]
        always = 0
        for block in self.blocks:
            always += block.before_bytes
            # The activations of a block exist in its backward pass, whether kept or recomputed.
            room = limit_bytes - always - block.own_bytes
            fitting = [state for state in states if state.kept_bytes <= room]
            states = _thinned(
                _fastest(itertools.chain.from_iterable(_next(state, block) for state in fitting))
            )
        room = limit_bytes - always - self.after_bytes
        fitting = [state for state in states if state.kept_bytes <= room]
        if not fitting:
            return None
        return _decisions(min(fitting, key=lambda state: (state.again_s, state.kept_bytes)))


class _State(NamedTuple):
    """The cost of a choice for the first blocks.

    `last` links to the decision about the last block and the state before it.
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
    """Return the states that no other state beats in both memory and time, sorted by memory."""
    fastest: list[_State] = []
    for state in sorted(states, key=lambda state: (state.kept_bytes, state.again_s)):
        if not fastest or state.again_s < fastest[-1].again_s:
            fastest.append(state)
    return fastest


def _thinned(states: list[_State]) -> list[_State]:
    if len(states) <= _MAX_STATES:
        return states
    # States are sorted by memory, and more memory means less time. So the last state of each
    # interval, which overwrites the others in the dict, is the fastest.
    width = states[-1].kept_bytes // _MAX_STATES + 1
    return list({state.kept_bytes // width: state for state in states}.values())


def _decisions(state: _State) -> list[bool]:
    decisions: list[bool] = []
    while state.last is not None:
        is_kept, state = state.last
        decisions.append(is_kept)
    return decisions[::-1]


class KeepsTooMuchError(ExperimentError, MemoryError):
    """A forward pass keeps more than it may. A smaller micro batch may fit.

    Attributes:
        excess: How many times the limit it keeps, if that is known.
    """

    excess: float | None = None


def keep_what_fits(
    blocks: Sequence[Block],
    model: nn.Module,
    compute: Callable[[], Any],
    limit_bytes: int,
    agree: Callable[[PassCost], PassCost] = lambda cost: cost,
) -> None:
    """Let blocks keep as many activations as fit, so that the least is recomputed.

    Args:
        blocks: The blocks of the model.
        model: The model on its device. Its buffers and random numbers do not change.
        compute: Makes a forward pass over one micro batch.
        limit_bytes: Bytes that the pass may keep.
        agree: Makes the costs equal on all workers that compute blocks together.

    Raises:
        KeepsTooMuchError: If the pass keeps more even if all blocks are recomputed.
    """
    computed, cost = measure_pass(blocks, model, compute)
    cost = agree(cost)
    kept = cost.choose_kept(limit_bytes)
    if kept is None:
        error = KeepsTooMuchError(
            f"a forward pass keeps {cost.least_bytes:,} bytes even if all blocks are recomputed,"
            f" and the limit is {limit_bytes:,}",
            field="plan.recompute",
            allowed=(
                f"at least {cost.least_bytes}B for each micro batch that is under way, or blocks"
            ),
            next_step="Raise plan.recompute, or set plan.micro_batch to less.",
        )
        error.excess = cost.least_bytes / max(limit_bytes, 1)
        raise error
    for block, is_kept in zip(computed, kept, strict=True):
        block.is_recomputed = not is_kept


def measure_pass(
    blocks: Sequence[Block], model: nn.Module, compute: Callable[[], Any]
) -> tuple[list[Block], PassCost]:
    """Return the blocks in the order of computation, and the cost of the pass.

    See `keep_what_fits` for the arguments.
    """
    buffers = list(model.buffers())
    before = [buffer.clone() for buffer in buffers]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        torch.enable_grad(),
    ):
        meter = _Meter(model, blocks, device)
        meter.watch(compute)
        if not meter.is_fake:
            # The first pass warms up. Of the others, the fastest counts: delays by other processes
            # only make a block slower.
            for _ in range(_NUM_TIMED):
                again = _Meter(model, blocks, device)
                again.watch(compute)
                meter.costs = {
                    block: min(cost, again.costs[block]) for block, cost in meter.costs.items()
                }
    with torch.no_grad():
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
    return list(meter.costs), meter.result()


@dataclass
class _Held:
    """A kept storage. It belongs to a block alone, or is kept anyway from some block on."""

    num_bytes: int
    place: int
    is_own: bool


class _Meter:
    """Watches one forward pass, and lets it keep nothing."""

    def __init__(self, model: nn.Module, blocks: Sequence[Block], device: torch.device) -> None:
        self._model, self._blocks, self._device = model, blocks, device
        # Weak, because a freed storage may give its address to another one.
        self._seen: weakref.WeakKeyDictionary[Any, _Held] = weakref.WeakKeyDictionary()
        self._held: list[_Held] = []
        self._current: Block | None = None
        self.costs: dict[Block, float] = {}
        self.is_fake = any(
            isinstance(local_part(parameter), FakeTensor) for parameter in model.parameters()
        )

    def watch(self, compute: Callable[[], Any]) -> None:
        """Make a forward pass."""
        for block in self._blocks:
            block.meter = _OfBlock(self, block)
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._see_saved, lambda nothing: nothing):
                compute()
        finally:
            for block in self._blocks:
                block.meter = None

    def result(self) -> PassCost:
        """Return the cost of the pass."""
        own, before = [0] * len(self.costs), [0] * (len(self.costs) + 1)
        for held in self._held:
            (own if held.is_own else before)[held.place] += held.num_bytes
        costs = zip(own, self.costs.values(), before[:-1], strict=True)
        return PassCost(tuple(BlockCost(*cost) for cost in costs), before[-1])

    @contextlib.contextmanager
    def inside(self, block: Block, inputs: Any) -> Iterator[None]:
        """Watch a block."""
        self.costs.setdefault(block, 0.0)
        place = self._place_of(block)
        for value in _pytree.tree_leaves(inputs):
            if isinstance(value, Tensor):
                self._see_input(value, place)
        self._current = block
        counter = FlopCounterMode(display=False) if self.is_fake else contextlib.nullcontext()
        began_s = self._now_s()
        held_before = len(self._held)
        try:
            with counter:
                yield
        finally:
            if isinstance(counter, FlopCounterMode):
                written = sum(held.num_bytes for held in self._held[held_before:])
                self.costs[block] += counter.get_total_flops() + _FLOPS_PER_BYTE * written
            else:
                self.costs[block] += self._now_s() - began_s
            self._current = None

    def _now_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return perf_counter()

    def _see_saved(self, tensor: Tensor) -> None:
        """Count a tensor that autograd would keep, and let it keep nothing."""
        storage: Any = local_part(tensor).untyped_storage()
        held = self._seen.get(storage)
        if held is not None:
            is_same = self._current is not None and self._place_of(self._current) == held.place
            held.is_own = held.is_own and is_same
            return
        if any(
            local_part(held_tensor).untyped_storage()._cdata == storage._cdata
            for held_tensor in self._persistent()
        ):
            return
        if self._current is None:
            self._hold(storage, len(self.costs), False)
        else:
            self._hold(storage, self._place_of(self._current), True)

    def _see_input(self, tensor: Tensor, place: int) -> None:
        """Count an input of a block. It is kept even if the block is recomputed."""
        storage: Any = local_part(tensor).untyped_storage()
        held = self._seen.get(storage)
        if held is None:
            self._hold(storage, place, False)
        else:  # it is an activation of an earlier block, which must keep it now
            held.is_own = False

    def _hold(self, storage: Any, place: int, is_own: bool) -> None:
        held = self._seen[storage] = _Held(storage.nbytes(), place, is_own)
        self._held.append(held)

    def _place_of(self, block: Block) -> int:
        return list(self.costs).index(block)

    def _persistent(self) -> Iterator[Tensor]:
        yield from self._model.parameters()
        yield from self._model.buffers()


@dataclass(frozen=True)
class _OfBlock:
    """The meter for one block."""

    meter: _Meter
    block: Block

    def inside(self, inputs: Any) -> contextlib.AbstractContextManager[None]:
        return self.meter.inside(self.block, inputs)

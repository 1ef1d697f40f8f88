"""Makes what a data set draws at random a function of seed, epoch and sample, and nothing else.

Augmentations are therefore the same whichever process reads a sample. Reading also leaves the
generators of the training, from which dropout draws, untouched. Only the global generators of
Python, numpy and torch are seeded. A data set's own generators are left alone.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

_NUM_WATCHED = 8
"""After this many batches, a data set that has drawn nothing is assumed to draw never."""


def seed_of(*key: int) -> int:
    """Return the seed for a key, such as (seed, epoch, sample)."""
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, numpy and, if it is loaded, torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.random.default_generator.manual_seed(seed)


class RandomStates:
    """The states of the global generators while a data set is read."""

    def __init__(self, seed: int) -> None:
        """Start with a seed."""
        self._seed = seed
        self._states: tuple[Any, ...] | None = None

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the generators continue where they last were in here, and restore them after."""
        outside = _states()
        if self._states is None:
            seed_generators(self._seed)
        else:
            _set_states(self._states)
        try:
            yield
        finally:
            self._states = _states()
            _set_states(outside)


class Draws:
    """Reads batches of one split so that what is drawn follows from seed, epoch and sample."""

    def __init__(self, split: Any) -> None:
        """Read a split, as it is if it draws nothing."""
        self._split = split
        self._is_drawing = False
        self._num_watched = _NUM_WATCHED if getattr(split, "draws_samples", False) else 0

    def batch(self, indices: np.ndarray, *, epoch: int, seed: int) -> tuple[Any, Any]:
        """Return the samples at `indices` as one batch."""
        if not self._is_drawing and not self._num_watched:
            return self._split.batch(indices)
        outside = _states()
        try:
            if not self._is_drawing:
                seed_generators(0)
                before = _states()
                batch = self._split.batch(indices)
                if _are_equal(before, _states()):
                    self._num_watched -= 1
                    return batch
                self._is_drawing = True
            return self._split.batch(
                indices, before_sample=lambda index: seed_generators(seed_of(seed, epoch, index))
            )
        finally:
            _set_states(outside)


def _states() -> tuple[Any, ...]:
    torch = sys.modules.get("torch")
    return (
        random.getstate(),
        np.random.get_state(),
        None if torch is None else torch.get_rng_state(),
    )


def _set_states(states: tuple[Any, ...]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    if states[2] is not None:
        sys.modules["torch"].set_rng_state(states[2])


def _are_equal(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    if before[0] != after[0] or (before[2] is None) != (after[2] is None):
        return False
    same_array = all(
        np.array_equal(left, right) for left, right in zip(before[1], after[1], strict=True)
    )
    return same_array and (before[2] is None or bool((before[2] == after[2]).all()))

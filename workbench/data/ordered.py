"""Splits that set the order of their samples themselves: streams, and data sets with a sampler.

Samples are named by their position in the order of an epoch. Every worker walks through the same
order and takes the positions that are its own, so no sample is lost or seen twice, whatever the
order is.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from workbench.data.collating import collate
from workbench.data.sample_seeding import RandomStates, seed_of
from workbench.data.splits import BeforeSample, fetch_samples
from workbench.foundation.errors import DataError

Collate = Callable[[Sequence[Any]], tuple[Any, Any]]


@runtime_checkable
class OrderedSplit(Protocol):
    """A split whose samples come in an order of its own."""

    def begin(self, epoch: int, seed: int) -> None:
        """Begin an epoch: the same (epoch, seed) gives the same order on every worker.

        Args:
            epoch: Which epoch, from 0.
            seed: Seed of the training.
        """
        ...


class SharedGenerator(NamedTuple):
    """A generator of torch that a DataLoader shares with its sampler."""

    generator: Any
    is_drawn_once: bool
    """Whether the loader draws its own number before the first epoch only, not before each."""

    def draw(self, epoch: int) -> None:
        """Draw the number that a DataLoader draws before its sampler begins an epoch."""
        if epoch == 0 or not self.is_drawn_once:
            torch = sys.modules["torch"]
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)


class SampledSplit:
    """A map-style data set in the order of a sampler, which may leave out and repeat samples."""

    draws_samples = True

    def __init__(
        self,
        dataset: Any,
        sampler: Iterable[int],
        gather: Collate = collate,
        *,
        num_samples: int | None = None,
        shared: SharedGenerator | None = None,
    ) -> None:
        """Take over a sampler of a known length.

        Args:
            dataset: Samples by number.
            sampler: Yields the numbers of an epoch. What it draws from torch's, numpy's or Python's
                generator follows from the seed and the epoch. Generators that it holds itself go on
                from epoch to epoch, as in a loop of torch. `set_epoch` is called if there is one.
            gather: From samples to a batch.
            num_samples: How many of its numbers are used, the first ones; None for all.
            shared: Its generator, if the DataLoader draws from it, too.
        """
        self._dataset, self._sampler, self._gather = dataset, sampler, gather
        self._shared = shared
        self._order: list[int] | None = None
        self._stated: int = len(sampler)  # type: ignore[arg-type]
        self._num_samples = self._stated if num_samples is None else num_samples
        self._generators = OwnGenerators(sampler)
        self._num_drawn = 0
        self._begun: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self._num_samples

    def begin(self, epoch: int, seed: int) -> None:
        """Draw the order of an epoch; see OrderedSplit."""
        key = (epoch, 0 if self._generators else seed)
        if self._begun == key:
            return
        if not self._generators:
            with RandomStates(seed_of(seed, epoch)).in_use():
                self._order = self._drawn(epoch)
        else:
            self._follow(epoch, seed)
        self._begun = key

    def _follow(self, epoch: int, seed: int) -> None:
        """Draw the orders of all epochs up to one, since each begins where the generators were
        left.
        """
        if self._num_drawn > epoch:
            self._generators.restart()
            self._num_drawn = 0
        while self._num_drawn <= epoch:
            with RandomStates(seed_of(seed, self._num_drawn)).in_use():
                if self._shared is not None:
                    self._shared.draw(self._num_drawn)
                self._order = self._drawn(self._num_drawn)
            self._num_drawn += 1

    def _drawn(self, epoch: int) -> list[int]:
        _set_epoch(self._sampler, epoch)
        order = [int(number) for number in self._sampler]
        if len(order) != self._stated:
            raise DataError(
                f"the sampler yielded {len(order)} numbers and states a length of {self._stated}",
                field="data",
            )
        return order

    def batch(
        self, indices: np.ndarray, *, before_sample: BeforeSample | None = None
    ) -> tuple[Any, Any]:
        """Return the samples at some positions of the epoch as one batch; see MapSplit.batch."""
        if self._order is None:
            self.begin(0, 0)
        assert self._order is not None
        numbers = [self._order[int(index)] for index in indices]
        if before_sample is not None:  # a sample that is repeated is drawn anew
            positions, at_position = iter(indices), before_sample
            before_sample = lambda _: at_position(int(next(positions)))  # noqa: E731
        return self._gather(fetch_samples(self._dataset, numbers, before_sample))


class StreamSplit:
    """An iterable data set.

    Positions are served by reading on, or from the start again if they lie behind.

    It is read with random generators of its own, so that a stream that shuffles is the same on
    every worker.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        num_samples: int,
        gather: Collate = collate,
        *,
        repeats: bool = True,
    ) -> None:
        """Wrap a stream.

        Args:
            dataset: Can be iterated over again and again; `set_epoch` is called if there is one.
            num_samples: Samples of an epoch.
            gather: From samples to a batch.
            repeats: Whether a stream that ends before is begun again; refused otherwise.
        """
        self._repeats = repeats
        self._dataset, self._num_samples, self._gather = dataset, num_samples, gather
        self._epoch, self._seed = 0, 0
        self._random = RandomStates(0)
        self._generators = OwnGenerators(dataset)
        self._reader: Iterator[Any] | None = None
        self._position = 0

    def __len__(self) -> int:
        return self._num_samples

    def begin(self, epoch: int, seed: int) -> None:
        """Begin an epoch with the first sample; see OrderedSplit."""
        self._epoch, self._seed = epoch, seed
        self._reader = None

    def batch(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return the samples at rising positions of the epoch as one batch.

        A repeated one is read once.
        """
        if self._reader is None or int(indices[0]) < self._position:
            self._random = RandomStates(seed_of(self._seed, self._epoch))
            self._generators.restart(self._epoch)
            self._reader, self._position = self._read(), 0
        samples = []
        with self._random.in_use():
            for index in indices:
                ahead = int(index) - self._position
                samples.append(
                    next(itertools.islice(self._reader, ahead, None)) if ahead >= 0 else samples[-1]
                )
                self._position = int(index) + 1
        return self._gather(samples)

    def _read(self) -> Iterator[Any]:
        while True:
            _set_epoch(self._dataset, self._epoch)
            num_read = 0
            for num_read, sample in enumerate(self._dataset, start=1):  # noqa: B007
                yield sample
            if num_read == 0 or not self._repeats:
                raise DataError(
                    f"the stream ended after {num_read} of {self._num_samples} samples",
                    field="data",
                    next_step="State the number that it has.",
                )


class OwnGenerators:
    """The generators that a sampler or a data set holds, and the states in which they came."""

    def __init__(self, owner: Any) -> None:
        """Look for generators among the attributes of `owner`, and remember their states."""
        found = vars(owner).values() if hasattr(owner, "__dict__") else ()
        accessible = [(each, _access(each)) for each in found]
        self._generators = [(each, access) for each, access in accessible if access is not None]
        self._first = [access.read(each) for each, access in self._generators]

    def __bool__(self) -> bool:
        return bool(self._generators)

    def restart(self, epoch: int = 0) -> None:
        """Set the states in which the generators came, or others that follow from these.

        Args:
            epoch: Which epoch begins; that of a stream cannot be reached by drawing all the earlier
                ones.
        """
        for (generator, access), state in zip(self._generators, self._first, strict=True):
            access.write(generator, state)
            if epoch:
                _reseed(generator, epoch)


class _Access(NamedTuple):
    """How the state of a kind of generator is read and written."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]


def _access(value: Any) -> _Access | None:
    """Return how the state of a generator is read and written; None if a value is none."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return _Access(torch.Generator.get_state, torch.Generator.set_state)
    if isinstance(value, random.Random):
        return _Access(random.Random.getstate, random.Random.setstate)
    if isinstance(value, np.random.RandomState):
        return _Access(np.random.RandomState.get_state, np.random.RandomState.set_state)
    if isinstance(value, np.random.Generator):
        return _Access(lambda each: each.bit_generator.state, _set_bits)
    return None


def _set_bits(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


def _reseed(generator: Any, epoch: int) -> None:
    """Give a generator a seed that follows from the state that it has and an epoch."""
    if isinstance(generator, random.Random):
        generator.seed(seed_of(generator.getrandbits(32), epoch))
    elif isinstance(generator, np.random.RandomState):
        generator.seed(seed_of(int(generator.randint(2**31)), epoch) % 2**32)
    elif isinstance(generator, np.random.Generator):
        drawn = int(generator.integers(2**31))
        kind = type(generator.bit_generator)
        generator.bit_generator.state = kind(seed_of(drawn, epoch)).state
    else:
        generator.manual_seed(seed_of(generator.initial_seed() % 2**63, epoch))


def _set_epoch(source: Any, epoch: int) -> None:
    """Let a sampler or a data set know the epoch."""
    if callable(getattr(source, "set_epoch", None)):
        source.set_epoch(epoch)

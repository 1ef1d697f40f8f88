"""Splits that set the order of their samples themselves: streams, and data sets with a sampler.

Samples are numbered by their position in the order of an epoch. Every worker walks through the same
order and takes its own positions, so no sample is lost or seen twice, whatever the order is.
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
    """A split that orders its samples itself."""

    def begin(self, epoch: int, seed: int) -> None:
        """Start an epoch. The same epoch and seed give the same order on every worker.

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
        """Draw the number that a DataLoader draws before its sampler starts an epoch."""
        if epoch == 0 or not self.is_drawn_once:
            torch = sys.modules["torch"]
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)


class SampledSplit:
    """A map-style data set in the order of a sampler, which may skip and repeat samples."""

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
                generator follows from the seed and the epoch. Its own generators continue from
                epoch to epoch, as in a loop of torch. `set_epoch` is called if there is one.
            gather: Makes a batch of samples.
            num_samples: How many of the first numbers are used, or None for all.
            shared: Its generator, if the DataLoader also draws from it.
        """
        self._dataset, self._sampler, self._gather = dataset, sampler, gather
        self._shared = shared
        self._order: list[int] | None = None
        self._num_promised: int = len(sampler)  # type: ignore[arg-type]
        self._num_samples = self._num_promised if num_samples is None else num_samples
        self._generators = OwnGenerators(sampler)
        self._num_drawn = 0
        self._begun: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self._num_samples

    def begin(self, epoch: int, seed: int) -> None:
        """Draw the order of an epoch."""
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
        """Draw the orders of all epochs up to one, as each continues with the same generators."""
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
        if len(order) != self._num_promised:
            raise DataError(
                f"the sampler yielded {len(order)} numbers, but its length is {self._num_promised}",
                field="data",
                next_step="Correct its __len__.",
            )
        return order

    def batch(
        self, indices: np.ndarray, *, before_sample: BeforeSample | None = None
    ) -> tuple[Any, Any]:
        """Return the samples at some positions of the epoch as one batch."""
        if self._order is None:
            self.begin(0, 0)
        assert self._order is not None
        numbers = [self._order[int(index)] for index in indices]
        if before_sample is not None:  # a repeated sample is drawn once for each position
            positions, at_position = iter(indices), before_sample
            before_sample = lambda _: at_position(int(next(positions)))  # noqa: E731
        return self._gather(fetch_samples(self._dataset, numbers, before_sample))


class StreamSplit:
    """An iterable data set, which is read on, or from the start again for an earlier position.

    It is read with its own random generators, so a stream that shuffles is the same on every
    worker.
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
            dataset: Can be iterated over repeatedly. `set_epoch` is called if there is one.
            num_samples: Samples of an epoch.
            gather: Makes a batch of samples.
            repeats: Whether a stream that ends early starts again. Otherwise that is an error.
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
        """Start an epoch with the first sample."""
        self._epoch, self._seed = epoch, seed
        self._reader = None

    def batch(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return samples at rising positions as one batch. A repeated one is read once."""
        if self._reader is None or int(indices[0]) < self._position:
            self._random = RandomStates(seed_of(self._seed, self._epoch))
            self._generators.restart(self._epoch)
            self._reader, self._position = self._read(), 0
        samples = []
        with self._random.in_use():
            for index in indices:
                ahead = int(index) - self._position
                if ahead >= 0:
                    samples.append(next(itertools.islice(self._reader, ahead, None)))
                else:
                    samples.append(samples[-1])
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
                    next_step="Set the option to the number that it has.",
                )


class OwnGenerators:
    """The random generators of a sampler or a data set, and their first states."""

    def __init__(self, owner: Any) -> None:
        """Find generators among the attributes of `owner`, and remember their states."""
        values = getattr(owner, "__dict__", {}).values()
        accessible = [(value, _access(value)) for value in values]
        self._generators = [
            (generator, access) for generator, access in accessible if access is not None
        ]
        self._first = [access.read(generator) for generator, access in self._generators]

    def __bool__(self) -> bool:
        return bool(self._generators)

    def restart(self, epoch: int = 0) -> None:
        """Restore the first states of the generators, or other states that follow from these.

        Args:
            epoch: Which epoch starts. A later epoch of a stream gets a derived state, because
                reading all epochs before it would take too long.
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
    """Return how to read and write the state of a generator, or None for other values."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return _Access(torch.Generator.get_state, torch.Generator.set_state)
    if isinstance(value, random.Random):
        return _Access(random.Random.getstate, random.Random.setstate)
    if isinstance(value, np.random.RandomState):
        return _Access(np.random.RandomState.get_state, np.random.RandomState.set_state)
    if isinstance(value, np.random.Generator):
        return _Access(lambda generator: generator.bit_generator.state, _set_bits)
    return None


def _set_bits(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


def _reseed(generator: Any, epoch: int) -> None:
    """Give a generator a seed that follows from its state and an epoch."""
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
    """Notify a sampler or a data set of the epoch, if it can be."""
    if callable(getattr(source, "set_epoch", None)):
        source.set_epoch(epoch)

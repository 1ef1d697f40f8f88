"""Splits that set the order of their samples themselves: streams, and data sets with a sampler.

Samples are named by their position in the order of an epoch. Every worker walks through the same order and
takes the positions that are its own, so no sample is lost or seen twice, whatever the order is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from workbench.data.collating import collate
from workbench.data.draws import RandomStates, seed_of
from workbench.data.splits import BeforeSample, fetch_samples
from workbench.errors import DataError

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


class SampledSplit:
    """A map-style data set in the order of a sampler, which may leave out and repeat samples."""

    draws_samples = True

    def __init__(self, dataset: Any, sampler: Iterable[int], gather: Collate = collate) -> None:
        """Take over a sampler of a known length.

        Args:
            dataset: Samples by number.
            sampler: Yields the numbers of an epoch. It draws from torch's, numpy's or Python's generator or
                from its own `generator`, each of which is seeded here; `set_epoch` is called if there is one.
            gather: From samples to a batch.
        """
        self._dataset, self._sampler, self._gather = dataset, sampler, gather
        self._order: list[int] | None = None
        self._length = len(sampler)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._length

    def begin(self, epoch: int, seed: int) -> None:
        """Draw the order of an epoch; see OrderedSplit."""
        with RandomStates(seed_of(seed, epoch)).in_use():
            _prepare(self._sampler, epoch, seed)
            self._order = [int(number) for number in self._sampler]
        if len(self._order) != self._length:
            raise DataError(
                f"the sampler yielded {len(self._order)} numbers and states a length of {self._length}",
                field="data",
            )

    def batch(self, indices: np.ndarray, *, before_sample: BeforeSample | None = None) -> tuple[Any, Any]:
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
    """An iterable data set: positions are served by reading on, or from the start again if they lie behind.

    It is read with random generators of its own, so that a stream that shuffles is the same on every worker.
    """

    def __init__(
        self, dataset: Iterable[Any], num_samples: int, gather: Collate = collate, *, repeats: bool = True
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
        self._reader: Iterator[Any] | None = None
        self._position = 0

    def __len__(self) -> int:
        return self._num_samples

    def begin(self, epoch: int, seed: int) -> None:
        """Begin an epoch with the first sample; see OrderedSplit."""
        self._epoch, self._seed = epoch, seed
        self._reader = None

    def batch(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return the samples at rising positions of the epoch as one batch; a repeated one is read once."""
        if self._reader is None or int(indices[0]) < self._position:
            self._random = RandomStates(seed_of(self._seed, self._epoch))
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
            _prepare(self._dataset, self._epoch, self._seed)
            num_read = 0
            for num_read, sample in enumerate(self._dataset, start=1):  # noqa: B007
                yield sample
            if num_read == 0 or not self._repeats:
                raise DataError(
                    f"the stream ended after {num_read} of {self._num_samples} samples", field="data",
                    next_step="State the number that it has.",
                )  # fmt: skip


def _prepare(source: Any, epoch: int, seed: int) -> None:
    """Let a sampler or a data set know the epoch, and seed a generator that it holds."""
    generator: Any = getattr(source, "generator", None)
    if hasattr(generator, "manual_seed"):
        generator.manual_seed(seed_of(seed, epoch))
    if callable(getattr(source, "set_epoch", None)):
        source.set_epoch(epoch)

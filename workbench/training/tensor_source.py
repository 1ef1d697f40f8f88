"""Turns the samples of a split into tensors on the device.

Samples are read within the step, loaded by processes ahead of it, or picked from data on the
device. In the last case, indices are copied for many micro batches at once. For a small model,
copying the indices of one step would take as long as several layers.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.data import Datasets, Split
from workbench.data.batches import (
    drawn_batches,
    global_batches,
    num_batches,
    num_equal_batches,
    worker_part,
)
from workbench.data.loader_arguments import PLAIN, LoaderArguments
from workbench.data.ordered_splits import OrderedSplit
from workbench.data.sample_seeding import Draws
from workbench.data.splits import ArraySplit
from workbench.training.loaders import Loaders, Loading, Wanted, as_tensors
from workbench.training.strategies.strategy import MicroBatch

RESIDENT_BYTES = 1 << 30
PICKED_AHEAD = 256
"""Number of micro batches whose indices are copied at once."""
_NUM_FEW = 2  # normalisation over a batch needs more than one


class Source:
    """Returns batches of a split as tensors on one device.

    Arrays of up to 1 GiB are copied to a GPU once. Copying each batch might take longer than its
    step.
    """

    def __init__(
        self,
        split: Split,
        device: torch.device,
        *,
        loaders: Loaders | None = None,
        part: str = "train",
        order: LoaderArguments = PLAIN,
    ) -> None:
        """Make a source of the samples of a split.

        Args:
            split: The samples.
            device: The device where they are needed.
            loaders: The processes that load batches, or None to load them when they are needed.
            part: Which part of the data it is: train, validation or test.
            order: The order of the samples in an epoch of training.
        """
        self._split = split
        self._draws = Draws(split)
        self._device = device
        self._part = part
        self._order = order
        self._resident: Resident | None = None
        self.epoch = self.seed = 0
        """Seeds of everything that is drawn for the samples."""
        self.all_indices = np.arange(len(split))
        self._checks: list[Callable[[Any], None]] = []
        if device.type == "cuda" and isinstance(split, ArraySplit):
            arrays = (split.inputs, split.targets)
            if sum(array.nbytes for array in arrays) <= RESIDENT_BYTES:
                self._resident = Resident(*(self._move(np.array(array)) for array in arrays))
        # Data on the device needs no loaders.
        self._loaders = loaders if self._resident is None else None
        if self._loaders is not None:
            self._loaders.add(part, split)

    def __len__(self) -> int:
        return len(self.all_indices)

    def look_at_targets(self, check: Callable[[Any], None]) -> None:
        """Let the targets of all later batches be checked, before they leave the CPU.

        Args:
            check: Receives a tensor or an array, and raises an error if something is wrong with it.
        """
        self._checks.append(check)

    def batches(
        self,
        *,
        global_batch: int,
        epoch: int,
        seed: int,
        start: int = 0,
        sample_rate: float | None = None,
    ) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the global batches of an epoch of training.

        See `data.batches.global_batches`.

        Samples come in random order, unless the split has a fixed order or keeps the order of the
        data. With a `sample_rate`, each batch takes every sample with this probability. See
        `data.batches.drawn_batches`.
        """
        self.epoch, self.seed = epoch, seed
        is_ordered = isinstance(self._split, OrderedSplit)
        if isinstance(self._split, OrderedSplit):
            self._split.begin(epoch, seed)
        if sample_rate is not None:
            num_left = self.num_batches(global_batch) - start
            return drawn_batches(len(self), sample_rate=sample_rate, num_batches=num_left)
        return global_batches(
            len(self),
            global_batch=global_batch,
            epoch=epoch,
            seed=seed,
            shuffle=not (is_ordered or self._order.keeps_order),
            start=start,
            groups=getattr(self._split, "shuffle_groups", None),
            drops_last=self._order.drops_last,
        )

    def num_batches(self, global_batch: int) -> int:
        """Return the number of global batches in an epoch of training."""
        return num_batches(len(self), global_batch, drops_last=self._order.drops_last)

    def ahead(self, batches: Iterable[WorkerBatch]) -> Iterator[WorkerBatch]:
        """Yield batches of this source, which loader processes prepare if there are any.

        Args:
            batches: The batches of the next steps. With loaders, or with samples on the device,
                this is iterated a few steps ahead.
        """
        if self._loaders is None and self._resident is None:
            yield from batches
            return
        # Loading pulls micro batches out of `batches`, a few steps ahead of the training. Their
        # steps wait here until the training gets to them.
        waiting: deque[WorkerBatch] = deque()

        def wanted() -> Iterator[Wanted]:
            for batch in batches:
                waiting.append(batch)
                yield from (
                    Wanted(self._part, batch.epoch, batch.seed, indices)
                    for indices in batch.micro_batches
                )

        loading = self._load(wanted())
        while waiting:
            batch = waiting.popleft()
            batch.follow(loading)
            yield batch
            batch.leave()

    def micro_batches(self, batch: WorkerBatch) -> Iterator[MicroBatch]:
        """Yield the micro batches of one batch of this source, as if `ahead` had prepared it."""
        for prepared in self.ahead([batch]):
            yield from prepared

    def _load(self, wanted: Iterator[Wanted]) -> Loading | Picking:
        if self._resident is not None:
            return self._resident.load(micro_batch.indices for micro_batch in wanted)
        assert self._loaders is not None
        return self._loaders.load(wanted)

    def fetch(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return (inputs, targets) of the samples at `indices`.

        Each is a tensor, or a tuple or mapping of tensors.
        """
        if self._resident is not None:
            return self._resident.load([indices]).next()
        return self.move(self._draws.batch(indices, epoch=self.epoch, seed=self.seed))

    def move(self, batch: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return (inputs, targets) as tensors on the device."""
        inputs, targets = batch
        if isinstance(targets, np.ndarray | Tensor):
            for check in self._checks:
                check(targets)
        return self._move(inputs), self._move(targets)

    def _move(self, values: Any) -> Any:
        tensors = as_tensors(values)
        if self._device.type == "cpu":
            return tensors
        return self._copy(tensors)

    def _copy(self, values: Any) -> Any:
        if isinstance(values, Mapping):
            return {name: self._copy(part) for name, part in values.items()}
        if isinstance(values, tuple):
            return tuple(self._copy(part) for part in values)
        if not isinstance(values, Tensor):
            return values
        return values.to(self._device, non_blocking=True)


def sources_of(
    datasets: Datasets, device: torch.device, num_loaders: int
) -> tuple[Source, Source, Loaders | None]:
    """Return the sources of training and validation samples, and the loaders.

    Args:
        datasets: The data of a trial.
        device: The device where the samples are needed.
        num_loaders: Processes that load ahead, or 0 to load within the step.
    """
    loaders = Loaders(num_loaders, device, datasets.loading) if num_loaders else None
    train = Source(datasets.train, device, loaders=loaders, order=datasets.order)
    validation = Source(datasets.validation, device, loaders=loaders, part="validation")
    return train, validation, loaders


class WorkerBatch:
    """One worker's samples of one optimizer step. See strategies.strategy.StepBatch."""

    def __init__(
        self,
        source: Source,
        indices: np.ndarray,
        *,
        micro_batch: int,
        replica: int = 0,
        num_replicas: int = 1,
        is_measured: bool = False,
    ) -> None:
        """Take a worker's part of a step.

        Args:
            source: The source of the samples.
            indices: The samples of the step, over all workers.
            micro_batch: Samples that a worker computes at once.
            replica: Number of the replica that the worker belongs to.
            num_replicas: Number of replicas that divide the step.
            is_measured: Whether the noise of the gradient is measured in this step.
        """
        self._source = source
        self.num_samples = len(indices)
        """Samples of the step, over all workers."""
        self.is_measured = is_measured
        self.epoch, self.seed = source.epoch, source.seed
        """Seeds of everything that is drawn for the samples."""
        self._own = worker_part(indices, replica, num_replicas)
        # A smaller last step may leave a worker without samples. See `micro_batches`.
        self._spare = indices[:1]
        self._micro_batch = micro_batch
        self._num_micro_batches = num_equal_batches(len(indices), micro_batch, num_replicas)
        self._loading: Loading | Picking | None = None
        self._num_loaded = 0
        self._last_loaded: tuple[Any, Any] | None = None

    def __len__(self) -> int:
        return self._num_micro_batches

    @property
    def micro_batches(self) -> Iterator[np.ndarray]:
        """The samples of each micro batch."""
        for first in range(0, self._num_micro_batches * self._micro_batch, self._micro_batch):
            indices = self._own[first : first + self._micro_batch]
            # A worker without samples must still exchange with the others. It computes a sample
            # with weight 0.
            yield indices if len(indices) else self._spare

    def __iter__(self) -> Iterator[MicroBatch]:
        # Weights count samples over all workers. Padding has no own samples, so its weight is 0.
        num_left = len(self._own)
        for number, indices in enumerate(self.micro_batches):
            inputs, targets = self._load(number, indices)
            num_own = min(len(indices), num_left)
            num_left -= num_own
            yield MicroBatch(inputs, targets, num_own / self.num_samples)

    def follow(self, loading: Loading | Picking) -> None:
        """Take the micro batches from `loading`, which loads them in this order."""
        self._loading = loading

    def leave(self) -> None:
        """Drop unused micro batches of this step, so that the next ones belong to the next step."""
        self._last_loaded = None
        while (
            self._loading is not None
            and self._num_loaded < len(self)
            and not self._loading.is_stale
        ):
            self._loading.next()
            self._num_loaded += 1

    def _load(self, number: int, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a micro batch.

        It was loaded ahead, or kept if a step uses its only micro batch again. Otherwise it is read
        now.
        """
        # An evaluation in between makes the request stale, because loaders serve one at a time.
        if self._loading is not None and self._num_loaded == number and not self._loading.is_stale:
            self._num_loaded += 1
            loaded = self._source.move(self._loading.next())
            self._last_loaded = loaded if len(self) == 1 else None
            return loaded
        return self._last_loaded or self._source.fetch(indices)


class Resident:
    """The inputs and targets of a split on one device."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs = inputs
        self.targets = targets

    def load(self, wanted: Iterable[np.ndarray]) -> Picking:
        """Start to pick micro batches by the indices of their samples."""
        return Picking(self, iter(wanted))


class Picking:
    """Micro batches in the order of the request. See loaders.Loading."""

    is_stale = False

    def __init__(self, resident: Resident, wanted: Iterator[np.ndarray]) -> None:
        self._resident = resident
        self._wanted = wanted
        self._coming: deque[Tensor] = deque()
        self._copy_indices()

    def next(self) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of the next micro batch."""
        indices = self._coming.popleft()
        if not self._coming:
            self._copy_indices()
        return self._resident.inputs[indices], self._resident.targets[indices]

    def _copy_indices(self) -> None:
        if coming := list(itertools.islice(self._wanted, PICKED_AHEAD)):
            indices = torch.from_numpy(np.concatenate(coming)).to(self._resident.inputs.device)
            self._coming.extend(indices.split([len(micro_batch) for micro_batch in coming]))


def few_inputs(split: Split) -> Any:
    """Return the inputs of two samples, on the CPU."""
    source = Source(split, torch.device("cpu"))
    return source.fetch(np.resize(np.arange(len(source)), _NUM_FEW))[0]

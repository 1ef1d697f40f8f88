"""The processes of a worker that load micro batches ahead of its steps, in the order of the steps.

They are forked when the first batch is needed, so they share the memory of the data set. They serve
all epochs and evaluations of a trial. The samples of a micro batch, and everything that is drawn
for them, depend neither on the number of processes nor on their speed. They use torch's DataLoader.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from workbench.data import Split
from workbench.data.loader_arguments import LoaderArguments
from workbench.data.ordered_splits import OrderedSplit, StreamSplit
from workbench.data.sample_seeding import Draws
from workbench.foundation.errors import DataError, WorkbenchError, first_line_of
from workbench.models.model_calls import map_tensors

_GRACE_S = 5.0
BATCHES_AHEAD = 2
"""Maximum number of ready micro batches per process, unless your own loaders set a number."""


class Wanted(NamedTuple):
    """The order to load one micro batch, as a loader process receives it."""

    part: str
    epoch: int
    seed: int
    indices: np.ndarray


@dataclass
class Loading:
    """Micro batches that are being loaded, in the order of the request."""

    batches: Iterator[Any]
    is_stale: bool = field(default=False)
    """Whether other batches have been requested since."""

    def next(self) -> tuple[Any, Any]:
        """Return the inputs and targets of the next micro batch, as tensors on the CPU.

        Raises:
            DataError: If it could not be loaded, or a process has ended.
        """
        try:
            with named_losses():
                loaded = next(self.batches)
        except (OSError, EOFError) as error:  # a process ended while it sent a batch
            raise _lost(error) from error
        if isinstance(loaded, _Failure):
            raise loaded.error from _InLoader(f"\n{loaded.text}")
        return loaded.inputs, loaded.targets


class Loaders:
    """The loader processes of one worker of a trial. They start with the first request."""

    def __init__(
        self, num: int, device: torch.device, arguments: Mapping[str, LoaderArguments] | None = None
    ) -> None:
        """Prepare the loaders, without starting them.

        Args:
            num: Number of processes, at least 1.
            device: The device of the batches. For a GPU, they are put into pinned memory.
            arguments: The arguments of your own loaders, by part. All parts share the processes, so
                the largest number counts.
        """
        self._arguments = arguments or {}
        given = [own.prefetch_factor for own in self._arguments.values() if own.prefetch_factor]
        self.batches_ahead = max(given, default=BATCHES_AHEAD)
        """Maximum number of micro batches that each process has ready."""
        self._num = num
        self._pins = device.type == "cuda"
        self._splits: dict[str, Split] = {}
        self._wanted: Iterable[Wanted] = ()
        self._loader: DataLoader[Any] | None = None
        self._current: Loading | None = None

    def add(self, part: str, split: Split) -> None:
        """Add a split, before the first request."""
        assert self._loader is None
        self._splits[part] = split

    @property
    def has_work(self) -> bool:
        """Whether there is a split to load. Data on the device needs no loading."""
        return bool(self._splits)

    def load(self, wanted: Iterable[Wanted]) -> Loading:
        """Start to load micro batches, and drop those that are still being loaded."""
        if self._current is not None:
            self._current.is_stale = True
        self._wanted = wanted
        # Python warns about forks with threads. Our threads hold no lock that loading needs.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*use of fork.*", DeprecationWarning)
            warnings.filterwarnings("ignore", ".*suggested max number of worker.*")
            if self._loader is None:
                self._loader = self._make()
            self._current = Loading(iter(self._loader))
        return self._current

    def close(self) -> None:
        """End the processes."""
        loader, self._loader, self._current = self._loader, None, None
        iterator = getattr(loader, "_iterator", None)
        if iterator is None:
            return
        # Torch may notice only now that a process was killed. The training has ended anyway.
        with contextlib.suppress(RuntimeError):
            iterator._shutdown_workers()
        for process in iterator._workers:
            process.join(_GRACE_S)

    def _make(self) -> DataLoader[Any]:
        # Each process would read a stream from its start, so more of them would not be faster.
        is_stream = any(
            isinstance(_innermost(split), StreamSplit) for split in self._splits.values()
        )
        return DataLoader(
            _Reader(self._splits),  # type: ignore[arg-type]
            batch_size=None,
            sampler=_Sampler(lambda: self._wanted),  # type: ignore[arg-type]
            num_workers=1 if is_stream else self._num,
            prefetch_factor=self.batches_ahead,
            timeout=max((own.timeout_s for own in self._arguments.values()), default=0.0),
            persistent_workers=True,
            pin_memory=self._pins,
            collate_fn=_unchanged,
            worker_init_fn=functools.partial(_begin, arguments=list(self._arguments.values())),
            multiprocessing_context="fork",
            generator=torch.Generator(),  # do not draw from the global one, which dropout uses
        )


@contextlib.contextmanager
def named_losses() -> Iterator[None]:
    """Translate torch's error about a process that ended. It may interrupt at any place.

    Raises:
        DataError: If a loader process has ended.
    """
    try:
        yield
    except RuntimeError as error:
        if "DataLoader timed out" in str(error):
            raise DataError(
                f"a batch took longer than the timeout of the DataLoader: {error}",
                field="data",
                next_step="Allow more time, or find out what __getitem__ waits for.",
            ) from error
        # An error in your worker_init_fn also mentions the process, but it explains itself.
        if "DataLoader worker" not in str(error) or str(error).startswith("Caught "):
            raise
        raise _lost(error) from error


def _lost(error: Exception) -> DataError:
    return DataError(
        f"a process that loads data was ended: {str(error).strip()}",
        field="plan.loaders",
        next_step="Check if memory or /dev/shm was full. Fewer loaders need less of both.",
    )


class _Sampler:
    """The requested batches, for torch's loader."""

    def __init__(self, wanted: Callable[[], Iterable[Wanted]]) -> None:
        self._wanted = wanted

    def __iter__(self) -> Iterator[Wanted]:
        return iter(self._wanted())


class _Reader:
    """Reads micro batches in a loader process."""

    def __init__(self, splits: Mapping[str, Split]) -> None:
        self._splits = splits
        self._draws = {part: Draws(split) for part, split in splits.items()}
        self._begun: dict[str, tuple[int, int]] = {}

    def __getitem__(self, wanted: Wanted) -> Any:
        part, epoch, seed, indices = wanted
        split = self._splits[part]
        try:
            if isinstance(split, OrderedSplit) and self._begun.get(part) != (epoch, seed):
                split.begin(epoch, seed)
                self._begun[part] = (epoch, seed)
            inputs, targets = self._draws[part].batch(indices, epoch=epoch, seed=seed)
            return Loaded(as_tensors(inputs), as_tensors(targets))
        except Exception as error:
            return _Failure.of(error, split, wanted)


@dataclass(frozen=True)
class Loaded:
    """A micro batch of a loader process on its way to the training."""

    inputs: Any
    targets: Any

    def pin_memory(self) -> Loaded:
        """Return the micro batch in pinned memory, from which a GPU copies.

        Torch calls this method. Its own way would turn some tuples into lists.
        """
        pin = functools.partial(map_tensors, Tensor.pin_memory)
        return Loaded(pin(self.inputs), pin(self.targets))


@dataclass(frozen=True)
class _Failure:
    """An error of a loader process on its way to the training."""

    error: Exception
    text: str

    @classmethod
    def of(cls, error: Exception, split: Split, wanted: Wanted) -> _Failure:
        text = "".join(traceback.format_exception(error))
        if isinstance(error, WorkbenchError):
            return cls(error, text)
        name = _unreadable_sample(split, wanted)
        return cls(
            DataError(
                f"{name} cannot be loaded: {type(error).__name__}: {first_line_of(error)}",
                field="data",
                next_step=(
                    "See the traceback for the place. plan.loaders 0 loads in the training process."
                ),
            ),
            text,
        )


class _InLoader(Exception):
    """The traceback in a loader process, as text."""


def as_tensors(values: Any) -> Any:
    """Return a batch whose arrays are tensors that share their memory."""
    if isinstance(values, Mapping):
        return {name: as_tensors(part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(as_tensors(part) for part in values)
    # A list holds values such as texts, which stay on the CPU.
    if isinstance(values, Tensor | list):
        return values
    return torch.from_numpy(np.ascontiguousarray(values))


def _unchanged(batch: Any) -> Any:
    return batch


def _begin(number: int, *, arguments: Sequence[LoaderArguments]) -> None:
    """Prepare a forked process with your own functions.

    Objects from before the fork are neither copied nor closed here.
    """
    gc.freeze()
    here: Any = get_worker_info()
    reader = here.dataset
    for own in arguments:
        if own.worker_init is not None:
            object.__setattr__(here, "dataset", own.dataset)  # torch forbids a plain assignment
            own.worker_init(number)
    object.__setattr__(here, "dataset", reader)


def _innermost(split: Split) -> Any:
    """Return the split inside a wrapper that adds targets to the inputs."""
    return getattr(split, "split", split)


def _unreadable_sample(split: Split, wanted: Wanted) -> str:
    """Return words for the part that cannot be loaded: a single sample, if it fails alone."""
    part = "training" if wanted.part == "train" else wanted.part
    if not isinstance(split, OrderedSplit):
        for index in wanted.indices:
            try:
                with contextlib.redirect_stdout(None):
                    split.batch(np.array([index]))
            except Exception:
                return f"sample {index} of the {part} data"
    return f"a batch of the {part} data"

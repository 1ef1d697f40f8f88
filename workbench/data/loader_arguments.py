"""What the arguments of a user's DataLoader mean here: followed, noted, or rejected by name.

| Argument | What happens |
|---|---|
| dataset, collate_fn | used |
| shuffle=False | train is visited in the order of the data. In an evaluation it means nothing |
| shuffle=True | another order in each epoch, drawn from `generator` or else from the seed |
| sampler, generator | the numbers that torch would draw in each epoch. Not `DistributedSampler` |
| batch_sampler | a BatchSampler of torch: its sampler and its drop_last. No others |
| batch_size | the plan decides on it, with a note. drop_last of an evaluation uses it. Not None |
| drop_last | followed, in training by the global batch of the plan |
| num_workers, prefetch_factor | used if `plan.loaders` is left open |
| worker_init_fn, timeout | used wherever there are loaders. No worker_init_fn with a stream |
| multiprocessing_context | fork. No others |
| pin_memory, pin_memory_device, persistent_workers | always as the device and a training need it |
| in_order=False | noted: batches come in their order |

Torch is not imported, because code that made its objects has loaded it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.foundation.errors import DataError


@dataclass(frozen=True)
class LoaderArguments:
    """How a part of the data is read, according to the user's DataLoader.

    Attributes:
        keeps_order: Whether an epoch visits the samples in the order of the data.
        drops_last: Whether a smaller last batch is dropped.
        batch_size: Samples of a batch, or None without a loader.
        num_workers: Processes that load ahead, or 0 if it was left open.
        prefetch_factor: Batches that each of them holds ready, or None for torch's default.
        timeout_s: Seconds that a batch may take, or 0 for any time.
        worker_init: Called in each of these processes with its number.
        dataset: What the process finds as the data set of `torch.utils.data.get_worker_info`.
        is_in_order: Whether batches come in their order.
    """

    keeps_order: bool = False
    drops_last: bool = False
    batch_size: int | None = None
    num_workers: int = 0
    prefetch_factor: int | None = None
    timeout_s: float = 0.0
    worker_init: Callable[[int], Any] | None = None
    dataset: Any = None
    is_in_order: bool = True


PLAIN = LoaderArguments()
"""The arguments of a data set without a loader."""


def arguments_of(loader: Any, torch_data: Any, whose: str) -> tuple[LoaderArguments, Any]:
    """Read the arguments of a DataLoader.

    Args:
        loader: The DataLoader.
        torch_data: The module torch.utils.data.
        whose: What it loads, for messages.

    Returns:
        The arguments, and the sampler if it does more than shuffle or count.

    Raises:
        DataError: If an argument cannot be followed. It says which one, and what to do.
    """
    _refuse(loader, torch_data, whose)
    is_stream = isinstance(loader.dataset, torch_data.IterableDataset)
    batches = loader.batch_sampler
    # A batch sampler that the user made brings its own sampler, and the loader's is a default.
    is_given = loader.batch_size is None and not is_stream
    source = batches if is_given else loader
    sampler = source.sampler
    if not is_stream:
        _refuse_sampler(sampler, torch_data, whose)
    arguments = LoaderArguments(
        keeps_order=not is_stream and type(sampler) is torch_data.SequentialSampler,
        drops_last=bool(source.drop_last),
        batch_size=int(source.batch_size),
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor,
        timeout_s=loader.timeout,
        worker_init=loader.worker_init_fn,
        dataset=loader.dataset,
        is_in_order=getattr(loader, "in_order", True),
    )
    # The workbench shuffles by itself, with the seed of the trial and across all workers.
    if is_stream or _is_plain(sampler, torch_data, len(loader.dataset)):
        return arguments, None
    return arguments, sampler


def _is_plain(sampler: Any, torch_data: Any, num_samples: int) -> bool:
    """Return whether a sampler visits each sample once, in order or shuffled by torch's seed."""
    if type(sampler) is torch_data.SequentialSampler:
        return len(sampler) == num_samples
    return (
        type(sampler) is torch_data.RandomSampler
        and sampler.generator is None
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source) == num_samples
    )


def _refuse(loader: Any, torch_data: Any, whose: str) -> None:
    is_stream = isinstance(loader.dataset, torch_data.IterableDataset)
    if type(loader).__iter__ is not torch_data.DataLoader.__iter__:
        raise DataError(
            f"{whose} is a {type(loader).__name__}, which makes its batches itself (__iter__)",
            field="data",
            next_step=(
                "Return its data set, or a DataLoader of torch with its sampler and its collate_fn."
            ),
        )
    batches = loader.batch_sampler
    if batches is None:
        raise DataError(
            f"{whose} makes no batches (batch_size=None), but the plan decides which samples make a"
            " batch",
            field="data",
            next_step=(
                "Return the data set itself if it yields single samples. One that yields whole"
                " batches must yield their samples."
            ),
        )
    if type(batches) is not torch_data.BatchSampler:
        raise DataError(
            f"{whose} has a batch_sampler of type {type(batches).__name__}, "
            "but the plan decides which samples make a batch",
            field="data",
            next_step="Give the DataLoader a sampler instead, which orders the samples.",
        )
    if loader.worker_init_fn is not None and is_stream:
        raise DataError(
            f"{whose} is a stream with a worker_init_fn, but a single process reads the whole"
            " stream",
            field="data",
            next_step="Remove worker_init_fn, and let the stream yield all its samples.",
        )
    context = loader.multiprocessing_context
    if context is not None and context.get_start_method() != "fork":
        raise DataError(
            f"{whose} has multiprocessing_context={context.get_start_method()!r}, but the processes"
            " that load data here share its memory, and are forked",
            field="data",
            allowed="'fork'",
            next_step=(
                "Remove multiprocessing_context. With num_workers=0 and plan.loaders 0 the"
                " training process loads by itself."
            ),
        )


def _refuse_sampler(sampler: Any, torch_data: Any, whose: str) -> None:
    if isinstance(sampler, torch_data.DistributedSampler):
        raise DataError(
            f"{whose} has a DistributedSampler, but the plan gives each worker its part of a batch",
            field="data",
            next_step="Remove the sampler, or use one for all samples.",
        )
    if not hasattr(sampler, "__len__"):
        raise DataError(
            f"{whose} has a sampler of type {type(sampler).__name__}, which has no length",
            field="data",
            next_step="Give it __len__: how many numbers it yields in an epoch.",
        )


def notes_on(
    arguments: Mapping[str, LoaderArguments],
    *,
    global_batch: int,
    num_loaders: int,
    draws_samples: bool,
) -> list[str]:
    """Return notes on arguments that are not followed as written.

    Args:
        arguments: The arguments of each part of the data that has a loader.
        global_batch: Samples of a step.
        num_loaders: Processes that load ahead on each worker.
        draws_samples: Whether a private training draws the samples of a step.
    """
    notes = []
    train = arguments.get("train", PLAIN)
    if train.batch_size not in (None, 1, global_batch):
        notes.append(
            f"the DataLoader of train has batch_size={train.batch_size}, and a step takes"
            f" {global_batch} samples: set training.global_batch to {train.batch_size} to train"
            " with its size"
        )
    if train.keeps_order and draws_samples:
        notes.append(
            "the DataLoader of train has shuffle=False, but a private training draws the samples of"
            " each step at random, on which its promise rests"
        )
    wanted = max((loader.num_workers for loader in arguments.values()), default=0)
    if wanted and wanted != num_loaders:
        notes.append(
            f"the DataLoader has num_workers={wanted}, but {num_loaders} processes load ahead,"
            " because plan.loaders says so"
        )
    if not all(loader.is_in_order for loader in arguments.values()):
        notes.append("the DataLoader has in_order=False, but batches come in their order")
    return notes

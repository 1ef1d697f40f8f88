"""What other libraries call a data set, as a split: torch data sets and loaders, streams, plain sequences.

Torch is not imported: what is made of it has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from workbench.data.collating import collate, inputs_and_targets
from workbench.data.ordered import Collate, SampledSplit, StreamSplit
from workbench.data.splits import MapSplit, Split
from workbench.errors import DataError, ExperimentError

_TABLE_PACKAGES = ("pandas", "polars", "pyarrow", "modin", "cudf", "dask")
_TABLES = ("DataFrame", "Series", "LazyFrame", "Table", "RecordBatch")
_LENGTHS = {"train": "samples_per_epoch", "validation": "validation_samples", "test": "test_samples"}


def as_split(dataset: Any, options: Mapping[str, Any], *, part: str, name: str) -> Split:
    """Return a data set as a split.

    Args:
        dataset: A split; a map-style or iterable data set of torch or Hugging Face; a plain sequence; or a
            `torch.utils.data.DataLoader`, of which data set, sampler and `collate_fn` are used. How many
            samples make a batch is left to the plan.
        options: The options of the data, for the length of a stream that does not know its own.
        part: train, validation or test.
        name: Name of the data, for messages.

    Raises:
        DataError: If it is something else, or has no samples.
        ExperimentError: If the length of a stream is missing.
    """
    _refuse_tables(dataset, f"{part} of {name}")
    torch_data = sys.modules.get("torch.utils.data")
    gather: Collate = collate
    if torch_data is not None and isinstance(dataset, torch_data.DataLoader):
        _refuse_ignored(dataset, f"{part} of {name}")
        gather = _gathering(dataset.collate_fn, torch_data)
        own_order = _sampler_of(dataset, torch_data, f"{part} of {name}")
        dataset = dataset.dataset
        if own_order is not None:
            return _with_samples(SampledSplit(dataset, own_order, gather), f"{part} of {name}")
    is_stream = torch_data is not None and isinstance(dataset, torch_data.IterableDataset)
    if is_stream or not (hasattr(dataset, "__getitem__") or hasattr(dataset, "batch")):
        return _stream(dataset, options, gather, part=part, name=name)
    if not hasattr(dataset, "__len__"):
        raise DataError(
            f"{part} of {name} is an object of type {type(dataset).__name__} without a length", field="data",
            next_step="Give it __len__, or make it iterable without __getitem__.",
        )  # fmt: skip
    # Some map-style data sets have a method `batch` that means something else.
    split = MapSplit(dataset, gather) if hasattr(dataset, "__getitem__") else cast(Split, dataset)
    return _with_samples(split, f"{part} of {name}")


def _refuse_tables(dataset: Any, whose: str) -> None:
    """Refuse tables, of which no column is known to be the target."""
    package, kind = type(dataset).__module__.partition(".")[0], type(dataset).__name__
    if package in _TABLE_PACKAGES and kind in _TABLES:
        raise DataError(
            f"{whose} is a {kind} of {package}, and which of its columns is the target is unknown",
            field="data", allowed="(input, target) pairs",
            next_step="Return pairs, for example list(zip(frame[features].to_numpy('float32'), "
            "frame['target'].to_numpy())); or write the table to a file, and use the data set `table`.",
        )  # fmt: skip


def _with_samples(split: Split, whose: str) -> Split:
    if len(split) == 0:
        raise DataError(f"{whose} has no samples", field="data")
    return split


def _stream(dataset: Any, options: Mapping[str, Any], gather: Collate, *, part: str, name: str) -> Split:
    if not hasattr(dataset, "__iter__") or iter(dataset) is dataset:
        raise DataError(
            f"{part} of {name} is an object of type {type(dataset).__name__}",
            field="data",
            allowed="a data set with __len__ and __getitem__, or one that can be iterated over repeatedly",
        )
    option = _LENGTHS[part]
    try:
        length = options[option] if option in options else len(dataset)
    except TypeError as error:
        raise ExperimentError(
            f"{part} of {name} is a stream that does not know its length", field=f"data.{option}",
            next_step=f"Add {option} to the options of data.",
        ) from error  # fmt: skip
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise ExperimentError(
            f"{length!r} is not a number of samples", field=f"data.{option}", allowed=">= 1"
        )
    return StreamSplit(dataset, length, gather, repeats=part == "train")


def _refuse_ignored(loader: Any, whose: str) -> None:
    """Refuse arguments of a loader that would change the training and are not followed."""
    if loader.drop_last:
        raise DataError(
            f"{whose} has drop_last=True, but every sample is used: the last batch of an epoch is smaller",
            field="data",
            next_step="Leave drop_last out. To use fewer samples, leave them out of the data set.",
        )  # fmt: skip
    if loader.worker_init_fn is not None:
        raise DataError(
            f"{whose} has a worker_init_fn, but processes of the workbench load samples (plan.loaders)",
            field="data", next_step="Leave it out, and do its work in __getitem__: the generators of Python, "
            "numpy and torch are seeded for each sample.",
        )  # fmt: skip


def _sampler_of(loader: Any, torch_data: Any, whose: str) -> Any:
    """Return the sampler of a loader where it does more than to shuffle or to count."""
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return None
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not torch_data.BatchSampler:
        raise DataError(
            f"{whose} has a batch_sampler of type {type(loader.batch_sampler).__name__}, "
            "and the plan decides which samples make a batch",
            field="data", next_step="Give the DataLoader a sampler instead, which orders the samples.",
        )  # fmt: skip
    if loader.batch_sampler is None:
        raise DataError(
            f"{whose} makes no batches (batch_size=None), and the plan decides which samples make a batch",
            field="data", next_step="Return the data set itself.",
        )  # fmt: skip
    sampler = loader.sampler
    if isinstance(sampler, torch_data.DistributedSampler):
        raise DataError(
            f"{whose} has a DistributedSampler, but each worker is given its part of a batch by the plan",
            field="data", next_step="Leave the sampler out, or use one for all samples.",
        )  # fmt: skip
    is_plain = type(sampler) is torch_data.SequentialSampler or (
        type(sampler) is torch_data.RandomSampler
        and sampler.generator is None
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)
    )
    return None if is_plain else sampler


def _gathering(collate_fn: Callable[[Any], Any], torch_data: Any) -> Collate:
    if collate_fn is torch_data.default_collate:
        return collate
    return lambda samples: inputs_and_targets(collate_fn(list(samples)))

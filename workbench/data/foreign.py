"""Data sets of other libraries as splits: torch data sets and loaders, streams, sequences.

Torch is not imported, because code that made its objects has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from workbench.data.collating import collate, inputs_and_targets
from workbench.data.loader_arguments import PLAIN, LoaderArguments, arguments_of
from workbench.data.ordered import Collate, SampledSplit, SharedGenerator, StreamSplit
from workbench.data.splits import ArraySplit, MapSplit, Split
from workbench.foundation.errors import DataError, ExperimentError

_TABLE_PACKAGES = ("pandas", "polars", "pyarrow", "modin", "cudf", "dask")
_TABLES = ("DataFrame", "Series", "LazyFrame", "Table", "RecordBatch")
_LENGTHS = {
    "train": "samples_per_epoch",
    "validation": "validation_samples",
    "test": "test_samples",
}


def as_split(
    dataset: Any, options: Mapping[str, Any], *, part: str, name: str
) -> tuple[Split, LoaderArguments]:
    """Return a data set as a split, and the settings of the DataLoader around it.

    Args:
        dataset: A split, a map-style or iterable data set of torch or Hugging Face, a plain
            sequence, inputs and targets as two arrays or tensors, or a
            `torch.utils.data.DataLoader`, whose arguments `loader_arguments` explains.
        options: The options of the data, for the length of a stream that does not know its own.
        part: train, validation or test.
        name: Name of the data, for messages.

    Returns:
        The split and the settings. An evaluation whose loader drops its last batch has no such
        samples.

    Raises:
        DataError: If it is something else, or has no samples, or an argument of a loader is not
            followed.
        ExperimentError: If the length of a stream is missing.
    """
    whose = f"{part} of {name}"
    for table in dataset if type(dataset) in (tuple, list) else [dataset]:
        _refuse_tables(table, whose)
    if isinstance(dataset, Mapping):
        raise DataError(
            f"{whose} is a mapping, and it is not clear which member is the target",
            field="data",
            allowed="(inputs, targets), or a data set of (input, target) pairs",
            next_step="Return (train['x'], train['y']) instead, with the names of your columns.",
        )
    if _are_columns(dataset):
        return _with_samples(_columns(*dataset), whose), PLAIN
    torch_data = sys.modules.get("torch.utils.data")
    gather: Collate = collate
    arguments, sampler = PLAIN, None
    if torch_data is not None and isinstance(dataset, torch_data.DataLoader):
        loader = dataset
        arguments, sampler = arguments_of(loader, torch_data, whose)
        gather = _gathering(loader.collate_fn, torch_data)
        dataset = loader.dataset
        if sampler is not None:
            num_used = _num_used(len(sampler), arguments, part, whose)
            generator = _shared_generator(loader, sampler)
            split: Split = SampledSplit(
                dataset, sampler, gather, num_samples=num_used, shared=generator
            )
            return _with_samples(split, whose), arguments
    is_stream = torch_data is not None and isinstance(dataset, torch_data.IterableDataset)
    if is_stream or not (hasattr(dataset, "__getitem__") or hasattr(dataset, "batch")):
        length = _length_of_stream(dataset, options, part=part, name=name)
        num_used = _num_used(length, arguments, part, whose)
        return StreamSplit(dataset, num_used, gather, repeats=part == "train"), arguments
    if not hasattr(dataset, "__len__"):
        raise DataError(
            f"{whose} is an object of type {type(dataset).__name__} without a length",
            field="data",
            next_step="Give it __len__, or make it iterable without __getitem__.",
        )
    num_used = _num_used(len(dataset), arguments, part, whose)
    if num_used < len(dataset):
        assert torch_data is not None
        dataset = torch_data.Subset(dataset, range(num_used))
    # Some map-style data sets have a method `batch` that means something else.
    split = MapSplit(dataset, gather) if hasattr(dataset, "__getitem__") else cast(Split, dataset)
    return _with_samples(split, whose), arguments


def _num_used(num_samples: int, arguments: LoaderArguments, part: str, whose: str) -> int:
    """Return the number of samples, without a last batch that an evaluation drops.

    The size of the loader's batches decides, not the plan's. Otherwise two trials would be judged
    on different samples.
    """
    if part == "train" or not arguments.drops_last or num_samples == 0:
        return num_samples
    assert arguments.batch_size is not None
    num_used = num_samples // arguments.batch_size * arguments.batch_size
    if num_used == 0:
        raise DataError(
            f"{whose} has drop_last=True, but {num_samples} samples are too few for a batch of"
            f" {arguments.batch_size}",
            field="data",
            next_step="Remove drop_last, or use a smaller batch_size.",
        )
    return num_used


def _shared_generator(loader: Any, sampler: Any) -> Any:
    """Return the generator that a loader and its sampler share, or None if they share none.

    Such a loader draws a seed before its sampler draws an epoch.
    """
    if loader.generator is None or loader.generator is not getattr(sampler, "generator", None):
        return None
    return SharedGenerator(loader.generator, loader.persistent_workers)


def _refuse_tables(dataset: Any, whose: str) -> None:
    """Reject tables, because nothing tells which column is the target."""
    package, kind = type(dataset).__module__.partition(".")[0], type(dataset).__name__
    if package in _TABLE_PACKAGES and kind in _TABLES:
        raise DataError(
            f"{whose} is a {kind} of {package}, and it is not clear which column is the target",
            field="data",
            allowed="(input, target) pairs",
            next_step=(
                "Return pairs, for example list(zip(frame[features].to_numpy('float32'),"
                " frame['target'].to_numpy())). Or write the table to a file, and use the data set"
                " `table`."
            ),
        )


def _are_columns(dataset: Any) -> bool:
    """Return whether a part is inputs and targets in one array each."""
    return (
        type(dataset) in (tuple, list)
        and len(dataset) == 2
        and all(
            isinstance(column, np.ndarray) or type(column).__module__ == "torch"
            for column in dataset
        )
        and all(column.ndim > 0 for column in dataset)
    )


def _columns(inputs: Any, targets: Any) -> Split:
    if isinstance(inputs, np.ndarray) and isinstance(targets, np.ndarray):
        return ArraySplit(inputs, targets)
    if len(inputs) != len(targets):
        raise DataError(
            f"inputs of shape {tuple(inputs.shape)} and targets of shape {tuple(targets.shape)} do"
            " not have the same number of samples",
            field="data",
            allowed="one target for each input, the sample first",
        )
    torch = sys.modules["torch"]  # one of the two is a tensor
    return MapSplit(
        torch.utils.data.TensorDataset(torch.as_tensor(inputs), torch.as_tensor(targets))
    )


def _with_samples(split: Split, whose: str) -> Split:
    if len(split) == 0:
        raise DataError(f"{whose} has no samples", field="data")
    return split


def _length_of_stream(dataset: Any, options: Mapping[str, Any], *, part: str, name: str) -> int:
    # A generator or an open file is its own iterator: after one epoch there would be nothing left.
    if not hasattr(dataset, "__iter__") or iter(dataset) is dataset:
        raise DataError(
            f"{part} of {name} is an object of type {type(dataset).__name__}",
            field="data",
            allowed=(
                "a data set with __len__ and __getitem__, or one that can be iterated over"
                " repeatedly"
            ),
        )
    option = _LENGTHS[part]
    try:
        length = options[option] if option in options else len(dataset)
    except TypeError as error:
        raise ExperimentError(
            f"{part} of {name} is a stream that does not know its length",
            field=f"data.{option}",
            next_step=f"Add {option} to the options of data.",
        ) from error
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise ExperimentError(
            f"{length!r} is not a number of samples", field=f"data.{option}", allowed=">= 1"
        )
    return length


def _gathering(collate_fn: Callable[[Any], Any], torch_data: Any) -> Collate:
    if collate_fn is torch_data.default_collate:
        return collate
    return lambda samples: inputs_and_targets(collate_fn(list(samples)))

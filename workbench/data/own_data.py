"""Custom data: a function of the options that returns `Datasets` or a pair (train, validation).

Data sets of other libraries become splits: torch data sets and loaders, streams, sequences. Torch
is not imported, because code that made its objects has loaded it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.data.collating import collate, inputs_and_targets, leaves
from workbench.data.loader_arguments import PLAIN, LoaderArguments, arguments_of
from workbench.data.ordered_splits import Collate, SampledSplit, SharedGenerator, StreamSplit
from workbench.data.splits import ArraySplit, Datasets, MapSplit, Split
from workbench.experiment.metric_declarations import Task
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import DataError, ExperimentError

_TABLE_PACKAGES = ("pandas", "polars", "pyarrow", "modin", "cudf", "dask")
_TABLES = ("DataFrame", "Series", "LazyFrame", "Table", "RecordBatch")
_LENGTHS = {
    "train": "samples_per_epoch",
    "validation": "validation_samples",
    "test": "test_samples",
}
_ALLOWED = "(input, target) pairs or mappings of arrays, tensors or numbers"


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


class Description(BaseModel):
    """The description of a pair of data sets, given in the options."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task: Task = Field(description="The task: classification, regression, language_model or other.")
    num_outputs: int | None = Field(None, ge=1, description="Number of classes or of targets.")
    vocabulary_size: int | None = Field(
        None, ge=1, description="Number of token ids, if inputs are tokens."
    )
    class_names: tuple[str, ...] = Field((), description="Names of the classes.")


def load_own(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    name: str,
    training_seed: int | None = None,
) -> Datasets:
    """Call a user's function and describe what it returned.

    Args:
        function: Called with a copy of the options. Returns `Datasets`, or (train, validation) or
            (train, validation, test) of what `foreign.as_split` takes.
        options: Its options. For a pair they also need `task`. They need `num_outputs`,
            `vocabulary_size` and `class_names` if the samples do not determine them, and the
            lengths of streams.
        name: Name of the data.
        training_seed: Passed if the function has a parameter of this name: repeats of a training
            can then learn from different parts of the data, such as the folds of a
            cross-validation.

    Raises:
        ExperimentError: If the function takes no options, or the description is missing or wrong.
        DataError: If the function returned something else, or a split without samples.
    """
    seeds = {"training_seed": training_seed} if takes_training_seed(function) else {}
    named = _named_options(function, options) | seeds
    _check_callable(function, options, named, name)
    returned = function(dict(options), **named)
    if isinstance(returned, Datasets):
        return returned
    splits, loading = _as_splits(returned, options, name)
    description = _describe(options, name)
    inputs, targets = _first_batch(splits[0], name)
    return Datasets(
        name=name,
        task=description.task,
        train=splits[0],
        validation=splits[1],
        test=next(iter(splits[2:]), None),
        input_shape=tuple(getattr(inputs, "shape", ())[1:]),
        num_outputs=_num_outputs(description, targets, name),
        vocabulary_size=description.vocabulary_size,
        class_names=description.class_names,
        target_shape=tuple(targets.shape[1:]) if description.task == "detection" else (),
        loading=loading,
    )


def takes_training_seed(function: Callable[..., Any]) -> bool:
    """Return whether a function takes the seed of a training, which differs between repeats."""
    try:
        return "training_seed" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # no signature
        return False


def _named_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that have their own parameter, after the first one that takes them all."""
    try:
        _, *others = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # no signature, or no parameter
        return {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        item.name: options[item.name]
        for item in others
        if item.kind in kinds and item.name in options
    }


def _check_callable(
    function: Callable[..., Any], options: Mapping[str, Any], seeds: Mapping[str, Any], name: str
) -> None:
    """Reject a function that cannot be called with the options."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # no signature
        return
    try:
        signature.bind(dict(options), **seeds)
    except TypeError as error:
        raise ExperimentError(
            f"{name}{signature} cannot be called with the options of data: {error}",
            field="data",
            allowed="a function of one mapping, which may be empty",
            next_step=f"Write it as: def {getattr(function, '__name__', 'load')}(options)",
        ) from error


def _as_splits(
    returned: Any, options: Mapping[str, Any], name: str
) -> tuple[list[Split], dict[str, LoaderArguments]]:
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        raise DataError(
            f"{name} returned an object of type {type(returned).__name__}",
            field="data",
            allowed="Datasets, or a pair (train, validation) of data sets or DataLoaders",
        )
    parts = ("train", "validation", "test")[: len(returned)]
    loaded = [
        as_split(dataset, options, part=part, name=name)
        for part, dataset in zip(parts, returned, strict=True)
    ]
    loading: dict[str, LoaderArguments] = {
        part: arguments for part, (_, arguments) in zip(parts, loaded, strict=True)
    }
    return [split for split, _ in loaded], loading


def _describe(options: Mapping[str, Any], name: str) -> Description:
    try:
        return Description.model_validate(dict(options))
    except ValidationError as error:
        problem = refusal(error, at="data")
        if problem.field == "data.task" and "task" not in options:
            raise ExperimentError(
                f"{name} returned data sets without a task",
                field=problem.field,
                allowed=get_args(Task),
                next_step="Add the task to the options of data, or return workbench.data.Datasets.",
            ) from error
        raise problem from error


def _first_batch(split: Split, name: str) -> tuple[Any, Any]:
    try:
        inputs, targets = split.batch(np.arange(1))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the first sample of {name} does not make a batch: {error}",
            field="data",
            allowed=_ALLOWED,
        ) from error
    for part, values in (("inputs", inputs), ("targets", targets)):
        if not any(_is_numeric(leaf) for leaf in leaves(values)):
            kinds = sorted({type(leaf).__name__ for leaf in leaves(values)})
            raise DataError(
                f"the {part} of {name} are of type {', '.join(kinds)}",
                field="data",
                allowed=_ALLOWED,
                next_step=(
                    "Return numbers, such as the number of a class from 0 in place of its name."
                ),
            )
    return inputs, targets


def _is_numeric(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "biuf"
    return hasattr(values, "shape")


def _num_outputs(description: Description, targets: Any, name: str) -> int:
    if description.num_outputs is not None:
        return description.num_outputs
    shape = getattr(targets, "shape", (1,))
    if description.task in ("regression", "other"):
        if len(shape) < 2:
            return 1
        return int(shape[1])
    if description.task == "language_model" and description.vocabulary_size is not None:
        return description.vocabulary_size
    if description.class_names:
        return len(description.class_names)
    raise ExperimentError(
        f"{name} does not specify the number of outputs",
        field="data.num_outputs",
        next_step="Add num_outputs, or class_names, or for a language model vocabulary_size.",
    )

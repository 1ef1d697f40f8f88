"""Custom data: a function of the options that returns `Datasets` or a pair (train, validation)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.data.collating import leaves
from workbench.data.foreign import as_split
from workbench.data.loader_arguments import LoaderArguments
from workbench.data.splits import Datasets, Split
from workbench.experiment.metric_declarations import Task
from workbench.experiment.refusals import refusal
from workbench.foundation.errors import DataError, ExperimentError

_ALLOWED = "(input, target) pairs or mappings of arrays, tensors or numbers"


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

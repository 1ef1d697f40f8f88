"""Custom data: a function of the options that returns `Datasets` or a pair (train, validation)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.data.splits import Datasets, Split, Task, as_split
from workbench.errors import DataError, ExperimentError
from workbench.experiment.refusals import refusal


class Description(BaseModel):
    """The description of a pair of data sets, given in the options."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task: Task = Field(description="The task: classification, regression or language_model.")
    num_outputs: int | None = Field(None, ge=1, description="Number of classes or of targets.")
    vocabulary_size: int | None = Field(None, ge=1, description="Number of token ids, if inputs are tokens.")
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
            (train, validation, test) of map-style data sets or splits.
        options: Its options. For a pair they also hold `task` and, where the samples do not determine them,
            `num_outputs`, `vocabulary_size` and `class_names`.
        name: Name of the data.
        training_seed: Passed if the function has a parameter of this name: repeats of a training can
            then learn from different parts of the data, such as the folds of a cross-validation.

    Raises:
        ExperimentError: If the description is missing or wrong.
        DataError: If the function returned something else, or a split without samples.
    """
    seeds = {"training_seed": training_seed} if takes_training_seed(function) else {}
    returned = function(dict(options), **seeds)
    if isinstance(returned, Datasets):
        return returned
    splits = _as_splits(returned, name)
    description = _describe(options, name)
    inputs, targets = _first_batch(splits[0], name)
    return Datasets(
        name=name,
        task=description.task,
        train=splits[0],
        validation=splits[1],
        test=splits[2] if len(splits) == 3 else None,
        input_shape=tuple(inputs.shape[1:]),
        num_outputs=_num_outputs(description, targets, name),
        vocabulary_size=description.vocabulary_size,
        class_names=description.class_names,
    )


def takes_training_seed(function: Callable[..., Any]) -> bool:
    """Tell whether the data that a function returns may differ from one repeat of a training to the next."""
    try:
        return "training_seed" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # no signature
        return False


def _as_splits(returned: Any, name: str) -> list[Split]:
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        raise DataError(
            f"{name} returned an object of type {type(returned).__name__}",
            field="data",
            allowed="Datasets, or a pair (train, validation) of map-style data sets",
        )
    for part, dataset in zip(("train", "validation", "test"), returned, strict=False):
        _check_map_style(dataset, f"{part} of {name}")
    return [as_split(dataset) for dataset in returned]


def _check_map_style(dataset: Any, whose: str) -> None:
    if not hasattr(dataset, "__len__") or not (hasattr(dataset, "__getitem__") or hasattr(dataset, "batch")):
        raise DataError(
            f"{whose} is an object of type {type(dataset).__name__}",
            field="data",
            allowed="a data set with __len__ and __getitem__ (not an iterable one)",
        )
    if len(dataset) == 0:
        raise DataError(f"{whose} has no samples", field="data")


def _describe(options: Mapping[str, Any], name: str) -> Description:
    try:
        return Description.model_validate(dict(options))
    except ValidationError as error:
        found = refusal(error, at="data")
        if found.field == "data.task" and "task" not in options:
            raise ExperimentError(
                f"{name} returned data sets without a task",
                field=found.field,
                allowed=get_args(Task),
                next_step="Add the task to the options of data, or return workbench.data.Datasets.",
            ) from error
        raise found from error


def _first_batch(split: Split, name: str) -> tuple[Any, Any]:
    try:
        inputs, targets = split.batch(np.arange(1))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the first sample of {name} is not a pair of arrays: {error}",
            field="data",
            allowed="(input, target) pairs of arrays, tensors or numbers",
        ) from error
    for part, values in (("inputs", inputs), ("targets", targets)):
        is_numeric = hasattr(values, "shape")
        if isinstance(values, np.ndarray):
            is_numeric = values.dtype.kind in "biuf"
        if not is_numeric:
            kind = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
            raise DataError(
                f"the {part} of {name} are of type {kind}",
                field="data",
                allowed="(input, target) pairs of arrays, tensors or numbers",
            )
    return inputs, targets


def _num_outputs(description: Description, targets: Any, name: str) -> int:
    if description.num_outputs is not None:
        return description.num_outputs
    if description.task == "regression":
        return int(targets.shape[1]) if len(targets.shape) > 1 else 1
    if description.task == "language_model" and description.vocabulary_size is not None:
        return description.vocabulary_size
    if description.class_names:
        return len(description.class_names)
    raise ExperimentError(
        f"{name} does not specify the number of outputs",
        field="data.num_outputs",
        next_step="Add num_outputs, or class_names, or for a language model vocabulary_size.",
    )

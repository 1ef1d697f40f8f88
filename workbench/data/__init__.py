"""Named data sets, split into train and validation, and the batches that workers draw from them.

`load` turns a name and its options, a `package.module:function`, or a callable into `Datasets`.
Data that is expensive to read is cached on disk. Everything here is numpy and plain sequences.
Tensors, devices and models belong to `training` and `models`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from workbench.data.options import DatasetOptions, existing_path
from workbench.data.splits import Datasets, Split
from workbench.experiment.components import Component
from workbench.experiment.metric_declarations import Task
from workbench.foundation.artifacts import is_url
from workbench.foundation.errors import DataError, WorkbenchError
from workbench.foundation.registry import Registry, load_object

if TYPE_CHECKING:
    from workbench.data.table_summary import TableSummary

__all__ = [
    "DATASETS",
    "Datasets",
    "Split",
    "check_options",
    "check_path",
    "load",
    "notes_of",
    "summary_of",
    "task_of",
]

DATASETS = Registry(
    "dataset",
    {
        "digits": "workbench.data.bundled:DigitsOptions",
        "breast_cancer": "workbench.data.bundled:BreastCancerOptions",
        "text": "workbench.data.text:TextOptions",
        "images": "workbench.data.images:ImagesOptions",
        "table": "workbench.data.tables:TableOptions",
        "series": "workbench.data.series:SeriesOptions",
        "labelled_text": "workbench.data.labelled_text:LabelledTextOptions",
        "tagged_text": "workbench.data.tagged_text:TaggedTextOptions",
        "masks": "workbench.data.masks:MasksOptions",
        "boxes": "workbench.data.boxes:BoxesOptions",
        "conversations": "workbench.data.conversations:ConversationsOptions",
    },
    group="workbench.datasets",
    needs=("parse", "load"),
)


def check_options(name: str, options: Mapping[str, Any]) -> DatasetOptions:
    """Check the options of a named data set without reading any data.

    Args:
        name: A name that `DATASETS` knows.
        options: Values by option.

    Raises:
        ExperimentError: If the name or an option is wrong. Its field is `data.<option>`.
    """
    kind: type[DatasetOptions] = DATASETS.load(name, field="data")
    return kind.parse(options, name=name)


def check_path(name: str, path: str) -> None:
    """Reject a missing path, or a URL for a data set that cannot read URLs.

    Args:
        name: The name of the data set.
        path: The path or URL as the user wrote it.

    Raises:
        DataError: If it cannot be read.
    """
    if not is_url(path):
        existing_path(Path(path))
    elif name in DATASETS and not DATASETS.load(name, field="data").reads_urls:
        raise DataError(f"{name} reads files of this machine only", field="data.path")


def task_of(data: Component) -> Task | None:
    """Return the task of the data of an experiment without loading it.

    None if that is not possible.

    Args:
        data: The data of an experiment.
    """
    if data.is_reference:
        given = data.options.get("task")
        return next((task for task in get_args(Task) if task == given), None)
    try:
        return check_options(data.name, data.options).find_task()
    except WorkbenchError:
        return None


def summary_of(data: Component) -> TableSummary | None:
    """Return what the table of an experiment consists of, which takes reading it.

    None for other data.

    Args:
        data: The data of an experiment.

    Raises:
        ExperimentError: If the name or an option is wrong.
        DataError: If the data is missing or cannot be read or understood.
    """
    if data.is_reference:
        return None
    return check_options(data.name, data.options).summary()


def notes_of(data: Component) -> tuple[str, ...]:
    """Return what users should know about how data is read. This may read all of it."""
    if data.is_reference:
        return ()
    return check_options(data.name, data.options).notes()


def load(
    data: str | Callable[[Mapping[str, Any]], Any],
    options: Mapping[str, Any],
    *,
    cache: Path | None = None,
    seed: int = 0,
    training_seed: int | None = None,
) -> Datasets:
    """Load a data set and split it.

    Args:
        data: A name that `DATASETS` knows, `package.module:function`, or a callable. A function is
            called with the options, and with `training_seed` if it has such a parameter. It returns
            `Datasets` or a pair (train, validation).
        options: Options of the data set.
        cache: Folder of the cache. None means the default folder.
        seed: Seed of the division into train and validation.
        training_seed: Seed of the training, which differs between repeats, or None outside of a
            training.

    Returns:
        The splits and their description.

    Raises:
        ExperimentError: If the name or an option is wrong.
        DataError: If the source is missing or cannot be read or understood.
    """
    if isinstance(data, str) and ":" not in data:
        return check_options(data, options).load(seed=seed, cache=cache)
    from workbench.data.own import load_own

    function: Any = data
    name = getattr(data, "__qualname__", type(data).__name__)
    if isinstance(data, str):
        function = load_object(data, field="data")
        name = data
    return load_own(function, options, name=name, training_seed=training_seed)

"""Named data sets, split into train and validation, and the batches that workers draw from them.

`load` turns a name and its options, a `package.module:function`, or a callable into
`Datasets`. Data that is expensive to read is cached on disk. Everything here is numpy and plain
sequences. Tensors, devices and models belong to `training` and `models`.

- Loading and batches: `splits`, `options`, `batches`, `collating`, `ordered_splits`,
  `sample_seeding`, `augmentation`, `cache`.
- Files of tables: `tables`, `table_files`, `table_formats`, `table_sources`, `text_layout`,
  `plain_frames`.
- Columns of tables: `column_encoding`, `column_notes`, `number_texts`, `dates`, `table_texts`,
  `category_targets`, `category_pairs`.
- Rows and targets of tables: `row_splits`, `targets`, `total_rows`, `unusual_rows`, `leaks`,
  `table_summary`.
- Images: `images`, `image_folders`, `pixels`, `boxes`, `masks`, `scenes`.
- Texts: `character_text`, `labelled_text`, `tagged_text`, `tokens`.
- Conversations: `conversations`, `chat_records`, `chat_tokens`.
- Series and environments: `series`, `cartpole`.
- Small data sets that come along: `bundled`.
- Your own data: `own_data`, `loader_arguments`.
- Data behind a URL: `shards`, `shard_server`.
- As others see a data set: `encoders`, `reading`, `preview`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import JsonValue

from workbench.data.options import DatasetOptions, existing_path
from workbench.data.splits import Datasets, Split
from workbench.experiment.components import Component
from workbench.experiment.metric_declarations import Task
from workbench.experiment.searched_fields import DATA_PREFIX, data_params
from workbench.foundation.artifacts import is_url
from workbench.foundation.errors import DataError, ExperimentError, WorkbenchError
from workbench.foundation.registry import Registry, load_object

if TYPE_CHECKING:
    from workbench.data.table_summary import TableSummary

__all__ = [
    "DATASETS",
    "Datasets",
    "Split",
    "check_options",
    "check_path",
    "check_searched_option",
    "load",
    "notes_of",
    "samples_of",
    "summary_of",
    "task_of",
    "with_searched_options",
]

DATASETS = Registry(
    "dataset",
    {
        "digits": "workbench.data.bundled:DigitsOptions",
        "breast_cancer": "workbench.data.bundled:BreastCancerOptions",
        "text": "workbench.data.character_text:TextOptions",
        "images": "workbench.data.images:ImagesOptions",
        "table": "workbench.data.tables:TableOptions",
        "series": "workbench.data.series:SeriesOptions",
        "labelled_text": "workbench.data.labelled_text:LabelledTextOptions",
        "text_pairs": "workbench.data.labelled_text:TextPairsOptions",
        "tagged_text": "workbench.data.tagged_text:TaggedTextOptions",
        "masks": "workbench.data.masks:MasksOptions",
        "boxes": "workbench.data.boxes:BoxesOptions",
        "conversations": "workbench.data.conversations:ConversationsOptions",
        "preferences": "workbench.data.conversations:PreferencesOptions",
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


def with_searched_options(data: Component, params: Mapping[str, JsonValue]) -> Component:
    """Return the data of a trial, with the searched options in place.

    Args:
        data: The data of the experiment.
        params: The configuration of the trial.
    """
    searched = {
        name.removeprefix(DATA_PREFIX): value for name, value in data_params(params).items()
    }
    if not searched:
        return data
    needed: dict[str, JsonValue] = {}
    if not data.is_reference:
        kind: type[DatasetOptions] = DATASETS.load(data.name, field="data")
        for option in searched:
            needed |= kind.searchable.get(option, {})
    return data.model_copy(update={"options": {**needed, **data.options, **searched}})


def check_searched_option(data: Component, option: str, values: Iterable[object]) -> None:
    """Reject an option of the data that trials cannot differ in, and values that it cannot have.

    Args:
        data: The data of an experiment.
        option: The searched option.
        values: Values to check.

    Raises:
        ExperimentError: If the option is also set or unknown, if trials would be scored on other
            samples or in another unit, or if a value is not allowed.
    """
    field = f"search.data.{option}"
    if option in data.options:
        raise ExperimentError(
            f"data.{option} is both set to {data.options[option]!r} and searched",
            field=field,
            next_step="Remove one of the two.",
        )
    if data.is_reference:  # its samples are compared when a trial loads them
        return
    kind: type[DatasetOptions] = DATASETS.load(data.name, field="data")
    searchable = list(kind.searchable) or "no options"
    if option not in kind.model_fields:
        raise ExperimentError(f"{data.name} has no such option", field=field, allowed=searchable)
    if option not in kind.searchable:
        raise ExperimentError(
            f"with another {option}, trials would be scored on other samples or in another unit, so"
            " they could not be compared",
            field=field,
            allowed=searchable,
            next_step=f"Set data.{option}, and start a run for each value.",
        )
    for value in values:
        try:
            kind.parse({**data.options, option: value}, name=data.name)
        except ExperimentError as error:
            raise error.about(field) from error


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


def notes_of(data: Component, *, here: Path | None = None) -> tuple[str, ...]:
    """Return what users should know about how data is read. This may read all of it.

    Args:
        data: The data.
        here: Where relative paths start, or None for the working directory.
    """
    if data.is_reference:
        return ()
    options = check_options(data.name, data.options)
    if here is not None:
        paths = {name: value for name, value in options if isinstance(value, Path)}
        options = options.model_copy(
            update={name: here / path.expanduser() for name, path in paths.items()}
        )
    return options.notes()


def samples_of(data: Component) -> tuple[str, ...]:
    """Return a few samples in words, as the model sees them, if the data can show them."""
    if data.is_reference:
        return ()
    return check_options(data.name, data.options).samples()


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
    from workbench.data.own_data import load_own

    function: Any = data
    name = getattr(data, "__qualname__", type(data).__name__)
    if isinstance(data, str):
        function = load_object(data, field="data")
        name = data
    return load_own(function, options, name=name, training_seed=training_seed)

"""Take apart what the user gives: samples, their kind, and their targets.

Data comes as arrays, data frames, files, texts or by the name of a data set. Only its form is
examined here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.encoders import SampleKind
from workbench.data.plain_frames import (
    PlainFrame,
    check_plain,
    column_of,
    frame_of_arrow,
    name_of_column,
    plain_column,
    plain_frame,
)
from workbench.data.sample_folders import IMAGE_SIZE, is_sample_folder, read_sample_folder
from workbench.data.table_sources import read_source
from workbench.data.total_rows import without_total
from workbench.foundation.errors import ArgumentError, DataError
from workbench.foundation.refusals import closest

if TYPE_CHECKING:
    import pandas as pd

NAMED = ("digits", "breast_cancer")


def take_apart(
    data: Any, target: str | None, query: str | None = None
) -> tuple[Any, pd.Series, str | None, tuple[str, ...]]:
    """Return the samples, their targets, the name of the target, and what was converted."""
    import pandas as pd

    converted: tuple[str, ...] = ()
    if isinstance(data, str) and data in NAMED:
        samples, values = _bundled(data)
        return samples, pd.Series(values), None, ()
    if isinstance(data, str | Path) and is_sample_folder(data):
        return _take_folder(data, target)
    if isinstance(data, str | Path):
        try:
            data, converted = read_source(data, query=query, other_names=NAMED)
        except DataError as error:
            raise error.about("data") from error
    data = _as_pandas(data)
    if isinstance(data, pd.DataFrame):
        samples, targets, name, of_frame = _take_column(data, target)
        return samples, targets, name, (*converted, *of_frame)
    if isinstance(data, tuple) and len(data) == 2:
        if target is not None:
            raise ArgumentError("a pair (X, y) already contains the target", field="target")
        return _take_pair(*data)
    raise ArgumentError(
        f"data of type {type(data).__name__} is not supported",
        field="data",
        allowed="a pair (X, y), a data frame or the path of a table with target, or "
        + ", ".join(NAMED),
    )


def take(samples: Any, indices: np.ndarray) -> Any:
    """Return some of the samples.

    Args:
        samples: A data frame or an array.
        indices: The numbers of the samples.
    """
    if hasattr(samples, "iloc"):
        return samples.iloc[indices]
    return samples[indices]


def samples_of(given: Any) -> tuple[SampleKind, Any]:
    """Return the kind of samples, and the samples as a data frame or an array.

    Args:
        given: Samples without targets.

    Raises:
        DataError: If they are of no kind that can be learnt from.
    """
    import pandas as pd

    given = _as_pandas(given)
    if isinstance(given, pd.Series) and not pd.api.types.is_numeric_dtype(given):
        given = given.to_numpy(dtype=object)
    if isinstance(given, pd.DataFrame):
        return "table", as_frame(given).table
    if isinstance(given, Sequence) and len(given) and all(isinstance(item, str) for item in given):
        return "texts", _as_texts(np.array(given, dtype=object))
    values = _as_array(given)
    if (
        values.dtype.kind in "OUST"
        and values.ndim == 1
        and len(values)
        and isinstance(values[0], str)
    ):
        return "texts", _as_texts(values.astype(object))
    if values.dtype.kind not in "biufO" or values.ndim not in (1, 2, 3, 4):
        raise DataError(
            f"samples of type {values.dtype} and shape {values.shape} are not supported",
            field="data",
            allowed=(
                "a data frame, (samples, features), (samples, height, width[, channels]), or texts"
            ),
        )
    if values.ndim > 2:
        return "images", _as_images(values)
    columns = values.reshape(len(values), -1)
    frame = pd.DataFrame({f"x{index}": columns[:, index] for index in range(columns.shape[1])})
    return "table", frame.infer_objects()


def as_frame(frame: pd.DataFrame) -> PlainFrame:
    """Return a table with plain columns, whose names are strings.

    Args:
        frame: The table.

    Raises:
        DataError: If two columns have one name, or a column holds values that are not single.
    """
    named = frame.set_axis([name_of_column(name) for name in frame.columns], axis=1)
    twice = named.columns[named.columns.duplicated()]
    if len(twice):
        raise DataError(
            f"there are two columns {twice[0]!r}", field="data", next_step="Rename one of them."
        )
    return plain_frame(named, keeps_others=True)


def _as_pandas(data: Any) -> Any:
    """Return a table of another library, a mapping of columns or a list of rows as a data frame."""
    import pandas as pd

    if isinstance(data, pd.DataFrame | pd.Series | np.ndarray):
        return data
    if isinstance(data, Mapping):
        return pd.DataFrame(data)
    if isinstance(data, list):
        if data and all(isinstance(row, Mapping) for row in data):
            return pd.DataFrame(data)
        return data
    if hasattr(data, "collect") and hasattr(data, "lazy"):  # a lazy frame of polars
        data = data.collect()
    if hasattr(data, "__arrow_c_stream__"):
        return frame_of_arrow(data)
    return data


def _take_column(
    table: pd.DataFrame, target: str | None
) -> tuple[pd.DataFrame, pd.Series, str, tuple[str, ...]]:
    """Return what `take_apart` returns of a table, one column of which is predicted."""
    frame, converted = as_frame(table)
    columns = list(frame.columns)
    if target is None:
        raise ArgumentError(
            "a table needs the name of the column to predict", field="target", allowed=columns
        )
    target = name_of_column(target)  # a column may be named by a number
    if target not in columns:
        allowed, meant = closest(target, columns)
        raise DataError(
            f"there is no column {target!r}", field="target", allowed=allowed, next_step=meant
        )
    check_plain(column_of(frame, target).to_frame(), field="target")
    frame, of_total = without_total(frame)
    converted = (*converted, *of_total)
    rest = frame.drop(columns=[target])
    if not len(rest.columns):
        raise DataError("no column is left to predict the target from", field="data")
    return rest, column_of(frame, target), target, converted


def _take_folder(
    folder: str | Path, target: str | None
) -> tuple[Any, pd.Series, str | None, tuple[str, ...]]:
    """Return what `take_apart` returns of a folder with a folder for each class."""
    import pandas as pd

    if target is not None:
        raise ArgumentError(
            "the classes are the names of the folders", field="target", next_step="Remove it."
        )
    samples, classes, are_images = read_sample_folder(folder)
    what = "texts"
    if are_images:
        what = f"images, each resized to {IMAGE_SIZE} x {IMAGE_SIZE} pixels"
    note = f"{len(samples)} {what}, from {len(set(classes))} folders"
    return samples, pd.Series(classes), None, (note,)


def _take_pair(samples: Any, given: Any) -> tuple[Any, pd.Series, str | None, tuple[str, ...]]:
    """Return what `take_apart` returns of samples and targets that are given as a pair."""
    import pandas as pd

    values = given if isinstance(given, pd.Series) else _targets_of(given)
    _check_order(samples, values)
    values = plain_column(values.reset_index(drop=True), field="target")
    converted: tuple[str, ...] = ()
    if isinstance(samples, pd.DataFrame):
        samples, converted = as_frame(samples)
    return samples, values, None if values.name is None else str(values.name), converted


def _targets_of(given: Any) -> pd.Series:
    """Return targets that come as an array, of which samples have one each."""
    import pandas as pd

    values = _as_array(given)
    if values.ndim > 1 and values.size != max(values.shape):
        raise DataError(
            f"the targets are of shape {values.shape}",
            field="target",
            allowed="one target for each sample",
            next_step=(
                "Give the classes as y.argmax(axis=1) if they are one-hot. Predict each of several"
                " numbers in a separate run."
            ),
        )
    return pd.Series(values.ravel())


def _as_array(given: Any) -> np.ndarray:
    """Return the values of an array of another library. Masked values are missing."""
    if np.ma.isMaskedArray(given):
        if given.dtype.kind in "iuf":
            return np.ma.filled(given.astype(np.float64), np.nan)
        return np.ma.filled(given.astype(object), None)
    if hasattr(given, "toarray"):
        raise DataError(
            f"samples of the type {type(given).__name__} are sparse",
            field="data",
            allowed="dense arrays",
            next_step="Pass X.toarray(), if that fits into memory.",
        )
    if hasattr(given, "detach"):  # a tensor of torch
        given = given.detach().cpu()
    return np.asarray(given)


def _check_order(samples: Any, targets: pd.Series) -> None:
    """Refuse samples and targets of pandas that name the same rows in different orders."""
    index = getattr(samples, "index", None)
    if (
        callable(index)
        or index is None
        or not targets.index.is_unique
        or len(index) != len(targets)
    ):
        return
    if not index.equals(targets.index) and set(index) == set(targets.index):
        raise DataError(
            "the rows of X and y have the same names in different orders",
            field="data",
            next_step="Bring y into the order of X: y = y.loc[X.index].",
        )


def _bundled(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all samples of a bundled data set.

    Its own split is not used, as it has no test part.
    """
    from workbench.data import load

    datasets = load(name, {})
    parts = [split.batch(np.arange(len(split))) for split in (datasets.train, datasets.validation)]
    inputs, targets = (np.concatenate([part[index] for part in parts]) for index in range(2))
    if inputs.ndim == 4:
        inputs = inputs[:, 0]
    return inputs, np.array(datasets.class_names)[targets]


def _as_images(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "O" or not np.isfinite(values.astype(np.float64)).all():
        raise DataError(
            "some pixels are not finite numbers", field="data", next_step="Replace them."
        )
    return values


def _as_texts(values: np.ndarray) -> np.ndarray:
    return np.array(
        ["" if value is None or value != value else str(value) for value in values], dtype=object
    )

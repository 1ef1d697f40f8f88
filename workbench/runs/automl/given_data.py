"""Take apart what the user gives: samples, their kind, and their targets.

Data comes as arrays, data frames, files, folders, texts or by the name of a data set. Only its form
is examined here. Rows that the user keeps apart to validate or to test on are read with the rows to
learn from, so that all parts have the same columns and classes.

Folders of images are read into memory at once. `workbench.data.images` reads larger ones, for
experiments.
"""

from __future__ import annotations

import contextlib
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
from workbench.data.table_sources import read_source
from workbench.data.total_rows import without_total
from workbench.foundation.errors import ArgumentError, DataError
from workbench.foundation.validation_errors import closest

if TYPE_CHECKING:
    import pandas as pd
from typing import TYPE_CHECKING

from workbench.data.image_folders import ENDINGS, list_folder, part_names
from workbench.data.table_files import TABLE_ENDINGS
from workbench.foundation.files import visible_below
from workbench.foundation.formatting import format_count
from workbench.foundation.text_tables import absent_columns
from workbench.runs.automl.row_roles import RowRoles

NAMED = ("digits", "breast_cancer")
LEARNING, VALIDATION, TEST = 0, 1, 2
_PURPOSES = {VALIDATION: "validate on", TEST: "test on"}
# With more rows in common, the rows to test on are meant to be of known groups.
_MOST_LOST = 0.5
IMAGE_SIZE = 64
"""Height and width that images are resized to, in pixels."""
_TEXT = ".txt"


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


def columns_of(data: Any, query: str | None = None) -> list[str]:
    """Return the names of the columns of a table, or none if the data is none that can be read.

    Args:
        data: As in `take_apart`.
        query: As in `take_apart`.
    """
    import pandas as pd

    if isinstance(data, str | Path):
        if data in NAMED or is_sample_folder(data):
            return []
        with contextlib.suppress(DataError, ArgumentError):  # `take_apart` tells why
            data, _ = read_source(data, query=query, other_names=NAMED)
    data = _as_pandas(data)
    if not isinstance(data, pd.DataFrame):
        return []
    return list(as_frame(data).table.columns)


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


def with_own_parts(
    kind: SampleKind,
    samples: Any,
    targets: pd.Series,
    own: Mapping[int, tuple[str, Any]],
    *,
    target: str | None,
    unneeded: Sequence[str],
) -> tuple[Any, pd.Series, np.ndarray | None]:
    """Append the samples that the user gave to validate or to test on.

    Returns:
        All samples, their targets, and the part of each. None if there are no such samples.
    """
    import pandas as pd

    all_samples, all_targets, parts = [samples], [targets], [np.zeros(len(targets), dtype=np.int8)]
    for part, (name, data) in own.items():
        if data is None:
            continue
        try:
            more, values, _, _ = take_apart(data, None if isinstance(data, tuple) else target)
            more_kind, more = samples_of(more)
            _check_like(kind, samples, more_kind, more, unneeded)
            if values.isna().all():
                raise DataError("no sample has a target", next_step="Add targets.")
        except (DataError, ArgumentError) as error:
            raise error.about(name) from error
        if kind == "table":
            more = more.reindex(columns=samples.columns)
        all_samples.append(more)
        all_targets.append(values)
        parts.append(np.full(len(values), part, dtype=np.int8))
    if len(parts) == 1:
        return samples, targets, None
    joined: Any
    if kind == "table":
        joined = as_frame(pd.concat(all_samples, ignore_index=True)).table
        joined.attrs = dict(samples.attrs)  # such as decimal commas, which the other files share
    else:
        joined = np.concatenate(all_samples)
    joined_targets = pd.concat(all_targets, ignore_index=True).rename(targets.name)
    return joined, joined_targets, np.concatenate(parts)


def check_classes_of_parts(
    classes: np.ndarray, parts: np.ndarray | None, class_names: Sequence[str]
) -> None:
    """Reject classes that occur only in samples to validate or to test on."""
    if parts is None:
        return
    for part, name in ((VALIDATION, "validation"), (TEST, "test")):
        unknown = np.setdiff1d(classes[parts == part], classes[parts == LEARNING])
        if len(unknown):
            raise DataError(
                f"no sample to learn from is of the class {class_names[unknown[0]]!r}",
                field=name,
                next_step="Add some to the data, or remove this class.",
            )


def without_overlap(roles: RowRoles, parts: np.ndarray | None) -> tuple[np.ndarray, list[str]]:
    """Return which rows are kept so that no group or copy is on both sides, and notes on that.

    Rows to test on are kept, then rows to validate on. A column that most rows share with them
    does not hold groups that must be new, such as the stores of one company.

    Args:
        roles: Which rows belong together.
        parts: The part of each row if the user divided them, or None.

    Returns:
        Whether each row is kept, and the notes.
    """
    groups = roles.blocks.groups
    if parts is None or groups is None:
        return np.ones(0 if parts is None else len(parts), dtype=bool), []
    kept = np.ones(len(parts), dtype=bool)
    notes = []
    what = "the same inputs" if roles.group is None else f"the same `{roles.group}`"
    for part, effect in ((TEST, "the score may be"), (VALIDATION, "scores of validation may be")):
        rows = kept & (parts == part)
        shared = kept & (parts < part) & np.isin(groups, groups[rows])
        if not shared.any():
            continue
        if shared.sum() > _MOST_LOST * (kept & (parts < part)).sum():
            num_known = int(np.isin(groups[rows], groups[shared]).sum())
            notes.append(
                f"{format_count(num_known, 'row')} to {_PURPOSES[part]} have {what} as rows to"
                f" learn from. {effect.capitalize()} too good for new rows"
            )
            continue
        kept &= ~shared
        notes.append(
            f"{format_count(int(shared.sum()), 'row')} not used: they have {what} as rows to"
            f" {_PURPOSES[part]}, so the score would be too good"
        )
    return kept, notes


def _check_like(
    kind: SampleKind, samples: Any, more_kind: SampleKind, more: Any, unneeded: Sequence[str]
) -> None:
    """Reject samples of another kind or shape, and tables that lack columns."""
    if more_kind != kind:
        raise DataError(f"these are {more_kind}, but the samples to learn from are {kind}")
    if kind == "table":
        needed = [name for name in samples.columns if name not in unneeded]
        absent = [name for name in needed if name not in more.columns]
        if absent:
            raise absent_columns(absent, needed)
    elif kind == "images" and more.shape[1:] != samples.shape[1:]:
        raise DataError(
            f"images of shape {more.shape[1:]} were given",
            allowed=f"the shape of those to learn from, {samples.shape[1:]}",
        )


def is_sample_folder(path: str | Path) -> bool:
    """Return whether a path is a folder with folders of images or texts, and no table."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return False
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    tables = {ending for ending in TABLE_ENDINGS if ending != _TEXT}
    if any(entry.suffix.lower() in tables for entry in entries if entry.is_file()):
        return False
    return any(
        file.suffix.lower() in (*ENDINGS, _TEXT)
        for entry in entries
        if entry.is_dir()
        for file in visible_below(entry)
    )


def are_image_files(given: Any) -> bool:
    """Return whether samples are the path of an image file or of a folder, or several of them."""
    paths = [given] if isinstance(given, str | Path) else given
    if not isinstance(paths, Sequence) or not paths:
        return False
    return all(isinstance(path, str | Path) and _is_image_path(Path(path)) for path in paths)


def _is_image_path(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS or path.is_dir()


def read_sample_folder(path: str | Path) -> tuple[np.ndarray, list[str], bool]:
    """Return images or texts, the class of each, and whether they are images.

    Args:
        path: A folder with a folder for each class.

    Raises:
        DataError: If there are fewer than two classes, or a file cannot be read.
    """
    folder = Path(path).expanduser()
    if parts := part_names(folder):
        names = list(parts.values())
        step = f"Give {folder / names[0]}"
        if "test" in parts:
            step += f", and {folder / parts['test']} as the test samples (--test)"
        raise DataError(
            f"{folder} has the parts {' and '.join(names)}, which are no classes",
            field="data",
            allowed="a folder for each class",
            next_step=f"{step}.",
        )
    texts = [file for file in visible_below(folder, f"*{_TEXT}") if file.parent != folder]
    if texts and not any(file.suffix.lower() in ENDINGS for file in visible_below(folder)):
        classes = [file.relative_to(folder).parts[0] for file in texts]
        return np.array([_text_in(file) for file in texts], dtype=object), classes, False
    listed = list_folder(folder)
    classes = [listed.class_names[number] for number in listed.targets]
    return read_images(listed.files.tolist()), classes, True


def read_images(files: Sequence[str]) -> np.ndarray:
    """Return the pixels of image files, uint8, (images, height, width, 3).

    Args:
        files: Image files, or folders of them.

    Raises:
        DataError: If one cannot be read.
    """
    from workbench.data.images import decode_image

    images: list[str] = []
    for file in files:
        path = Path(file).expanduser()
        if path.is_dir():
            images += [str(file) for file in visible_below(path) if file.suffix.lower() in ENDINGS]
        else:
            images.append(str(path))
    pixels = [decode_image(file, IMAGE_SIZE, 3).transpose(1, 2, 0) for file in images]
    if not pixels:
        raise DataError("there are no images", field="data", allowed=sorted(ENDINGS))
    return np.stack(pixels)


def _text_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return file.read_text(encoding="cp1252", errors="replace")

"""Detect the task that a data set poses.

The kind of sample, and whether classes or numbers are predicted.

Data comes as arrays, data frames, files, texts or by the name of a data set. Only its form is
examined here. Splitting and encoding is left to `preparation`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.column_notes import notes_of_numeric_target
from workbench.data.columns import TextForm, check_numbers
from workbench.data.encoders import SampleKind
from workbench.data.leaks import find_leaks
from workbench.data.number_texts import number_text_of
from workbench.data.options import existing_path
from workbench.data.plain_frames import PlainFrame, plain_column, plain_frame
from workbench.data.table_files import TABLE_ENDINGS, check_columns, column_of, read_table
from workbench.data.table_sources import read_source
from workbench.data.tables import are_whole, detect_task, number_classes, read_targets
from workbench.foundation.errors import ArgumentError, DataError
from workbench.foundation.formatting import format_count
from workbench.foundation.table_columns import absent_columns
from workbench.runs.automl.column_roles import UsableColumns, joined_texts, usable_columns
from workbench.runs.automl.row_roles import NONE, RowRoles, find_row_roles, with_copies
from workbench.runs.automl.targets import Task, check_finite, check_targets, numbers_of

if TYPE_CHECKING:
    import pandas as pd

LEARNING, VALIDATION, TEST = 0, 1, 2
_PURPOSES = {"validation": "validate on", "test": "test on"}
MIN_SAMPLES = 20
MIN_PER_CLASS = 3
# A class that is this many times rarer than the most frequent one is reported.
_IMBALANCE = 5.0
# Copies are searched in tables up to this size, as that would take seconds.
_MAX_COMPARED_CELLS = 20_000_000
_NAMED = ("digits", "breast_cancer")


@dataclass(frozen=True)
class Problem:
    """Samples and their targets.

    Attributes:
        kind: The kind of sample.
        task: Whether a class or a number is predicted.
        samples: A data frame, an array of images, or an array of texts.
        targets: Class numbers as int64, or numbers as float64.
        class_names: Names of the classes, by number, or empty for a regression.
        labels: The value of each class as it was given, by number.
        target_name: The name of the target, if it has one.
        notes: What the user should know about the data.
        text_forms: How columns write dates or numbers as text.
        text_columns: The columns of a table that texts are read from.
        target_unit: The sign or word after the numbers of the target, such as CHF, or "" for none.
        roles: Which rows belong together, and their times.
        parts: LEARNING, VALIDATION or TEST for each sample if the user divided them, or None.
        weights: The weight of each sample, all above 0, or None if all are equal.
        weight_column: The column with the weights, or None.
    """

    kind: SampleKind
    task: Task
    samples: Any = field(repr=False)
    targets: np.ndarray = field(repr=False)
    class_names: tuple[str, ...]
    labels: tuple[Any, ...]
    target_name: str | None
    notes: tuple[str, ...]
    text_forms: Mapping[str, TextForm] = field(default_factory=dict)
    text_columns: tuple[str, ...] = ()
    target_unit: str = ""
    roles: RowRoles = field(default_factory=RowRoles)
    parts: np.ndarray | None = field(default=None, repr=False)
    weights: np.ndarray | None = field(default=None, repr=False)
    weight_column: str | None = None

    def __len__(self) -> int:
        return len(self.targets)


def read_problem(
    data: Any,
    target: str | None = None,
    *,
    task: Task | None = None,
    drop: Sequence[str] = (),
    group_column: str | None = None,
    time_column: str | None = None,
    test: Any = None,
    validation: Any = None,
    weight_column: str | None = None,
    query: str | None = None,
) -> Problem:
    """Read data and detect its task.

    Args:
        data: A pair (X, y), where X is a data frame, an array (samples, features), images (samples,
            height, width[, channels]), or texts. A data frame, the path of a table or the address
            of a database, with `target`. Or the name of a bundled data set.
        target: The column to predict, if data is a table.
        task: Whether to predict classes or numbers, or None to detect it from the target.
        drop: Columns of a table that must not be used.
        group_column: The column that says which rows belong together, "none" if rows are
            independent, or None to look for one.
        time_column: The column that says when a row was measured, "none" if time does not matter,
            or None to look for one.
        test: The samples to test on, with targets, or None to hold some out. As `data`.
        validation: The samples to choose by, with targets, or None to hold some out. As `data`.
        weight_column: The column with the weight of each sample, or None if all are equal. A sample
            of weight 0 is not used.
        query: What to select from the database whose address `data` is.

    Raises:
        DataError: If the data is not sufficient to train and test on, such as too few samples or
            only one class, or if a column does not exist.
        ArgumentError: If the type of the data is not supported, or `target` is missing.
    """
    samples, targets, name, converted = _take_apart(data, target, query)
    kind, samples = _samples_of(samples)
    if len(samples) != len(targets):
        raise DataError(
            f"there are {len(samples)} samples and {len(targets)} targets", field="data"
        )
    own = {VALIDATION: ("validation", validation), TEST: ("test", test)}
    samples, targets, parts = _with_own_parts(
        kind, samples, targets, own, target=target or name, unneeded=drop
    )
    targets = targets.infer_objects()  # numbers next to gaps may come as objects
    check_finite(targets)
    written = targets
    targets = read_targets(targets, task)
    weights = None
    if weight_column is not None:
        weights = _weights(kind, samples, weight_column, target=name)
        targets = targets.where(weights > 0)  # a sample of weight 0 is not used
        weights = weights[targets.notna().to_numpy()]
    if parts is not None:
        parts = parts[targets.notna().to_numpy()]
    samples, targets, dropped = _drop_without_target(samples, targets)
    num_learning = len(targets) if parts is None else int((parts == LEARNING).sum())
    notes = list(converted)
    if dropped:
        notes.append(f"{dropped} samples without a target are not used")
    if num_learning < MIN_SAMPLES:
        problem = f"{num_learning} samples with a target are too few to train, validate and test on"
        if dropped:
            problem += f" ({dropped} have none)"
        raise DataError(
            problem,
            field="data",
            allowed=f"at least {MIN_SAMPLES}",
            next_step="Add samples.",
        )
    check_targets(targets, task, num_missing=dropped)
    roles = _roles(
        kind,
        samples,
        targets,
        target=name,
        group_column=group_column,
        time_column=time_column,
    )
    notes += roles.notes
    unused = [column for column in (roles.group, weight_column) if column is not None]
    samples = _without(kind, samples, drop, name, unused=unused)
    kind, samples, usable = _usable(kind, samples)
    roles, of_copies = _together(kind, samples, roles)
    notes += of_copies + _notes_of_overlap(roles, parts)
    wanted = task or (
        "classification" if detect_task(targets) == "classification" else "regression"
    )
    if wanted == "regression":
        numbers = numbers_of(targets)
        notes += notes_of_numeric_target(written, name or "the target")
        form = number_text_of(written, min_share=1.0)
        notes += usable.notes
        notes += _notes_of_leaks(kind, samples, numbers, usable, task=wanted, target=name)
        return Problem(
            kind,
            "regression",
            samples,
            numbers,
            (),
            (),
            name,
            tuple(notes),
            usable.text_forms,
            usable.names if usable.are_texts else (),
            "" if form is None else form.unit,
            roles=roles,
            parts=parts,
            weights=weights,
            weight_column=weight_column,
        )
    class_names, classes = number_classes(targets)
    given = dict(zip(targets.astype(str), targets, strict=True))
    kept, classes, class_names, left_out = _drop_rare(classes, class_names)
    if len(kept) < len(targets):
        samples = take(samples, kept)
        roles = replace(roles, blocks=roles.blocks.take(kept))
        parts = None if parts is None else parts[kept]
        weights = None if weights is None else weights[kept]
    _check_classes_of_parts(classes, parts, class_names)
    notes += left_out + _imbalance(classes, class_names)
    labels = tuple(given[class_name] for class_name in class_names)
    notes += usable.notes
    notes += _notes_of_leaks(kind, samples, classes, usable, task=wanted, target=name)
    return Problem(
        kind,
        "classification",
        samples,
        classes,
        tuple(class_names),
        labels,
        name,
        tuple(notes),
        usable.text_forms,
        usable.names if usable.are_texts else (),
        roles=roles,
        parts=parts,
        weights=weights,
        weight_column=weight_column,
    )


def _weights(
    kind: SampleKind, samples: Any, weight_column: str, *, target: str | None
) -> np.ndarray:
    """Return the weight of each sample."""
    if kind != "table":
        raise ArgumentError(
            f"{kind} have no columns", field="weight_column", next_step="Remove it."
        )
    if weight_column == target and weight_column not in samples.columns:
        raise ArgumentError(f"{weight_column!r} is the column to predict", field="weight_column")
    check_columns(samples.columns, {"weight_column": [weight_column]}, section="")
    return weights_in(samples, weight_column)


def weights_in(samples: pd.DataFrame, weight_column: str) -> np.ndarray:
    """Return the weight of each row of a table.

    Args:
        samples: The table.
        weight_column: The column with the weights.

    Raises:
        DataError: If they are not numbers from 0, or all 0.
    """
    column = column_of(samples, weight_column)
    numbers = np.full(len(column), np.nan)
    if column.dtype.kind in "iufb":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        raise DataError(
            f"the weight in row {wrong[0]} (from 0) is {column.iloc[wrong[0]]!r}",
            field="weight_column",
            allowed="numbers from 0 in each row",
        )
    if not numbers.any():
        raise DataError("all weights are 0", field="weight_column")
    return numbers


def _with_own_parts(
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
            more, values, _, _ = _take_apart(data, None if isinstance(data, tuple) else target)
            more_kind, more = _samples_of(more)
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
        joined = _as_frame(pd.concat(all_samples, ignore_index=True)).table
    else:
        joined = np.concatenate(all_samples)
    joined_targets = pd.concat(all_targets, ignore_index=True).rename(targets.name)
    return joined, joined_targets, np.concatenate(parts)


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


def _check_classes_of_parts(
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


def _notes_of_overlap(roles: RowRoles, parts: np.ndarray | None) -> list[str]:
    """Return notes on rows that the user put on both sides of a split."""
    groups = roles.blocks.groups
    if parts is None or groups is None:
        return []
    notes = []
    for part, name, effect in (
        (VALIDATION, "validation", "so the choice may be wrong"),
        (TEST, "test", "so the score is too good"),
    ):
        num_shared = int(np.isin(groups[parts == part], groups[parts < part]).sum())
        if num_shared:
            what = "are copies of rows" if roles.group is None else f"share their `{roles.group}`"
            other = "to learn from" if roles.group is None else "with rows to learn from"
            notes.append(
                f"{format_count(num_shared, 'row')} to {_PURPOSES[name]} {what} {other}, {effect}"
            )
    return notes


def _roles(
    kind: SampleKind,
    samples: Any,
    targets: pd.Series,
    *,
    target: str | None,
    group_column: str | None,
    time_column: str | None,
) -> RowRoles:
    """Return which rows belong together, and their times."""
    if kind == "table":
        return find_row_roles(
            samples, targets, group_column=group_column, time_column=time_column, target=target
        )
    for option, name in (("group_column", group_column), ("time_column", time_column)):
        if name not in (None, NONE):
            raise ArgumentError(f"{kind} have no columns", field=option, next_step="Remove it.")
    return RowRoles()


def _together(kind: SampleKind, samples: Any, roles: RowRoles) -> tuple[RowRoles, list[str]]:
    """Return roles in which copies of a row belong together, and a note on them.

    One copy may be learnt from, and the model tested on the other.
    """
    if kind != "table" or samples.size > _MAX_COMPARED_CELLS:
        return roles, []
    blocks, num_copies = with_copies(roles.blocks, samples)
    if not num_copies:
        return roles, []
    verb = "repeats" if num_copies == 1 else "repeat"
    note = (
        f"{format_count(num_copies, 'row')} of {len(samples)} {verb} another row: copies are kept"
        " on one side of every split"
    )
    return replace(roles, blocks=blocks), [note]


def read_labelled(data: Any, target: str | None, labels: tuple[Any, ...]) -> tuple[Any, np.ndarray]:
    """Read samples with their targets, for a model that has been trained.

    Args:
        data: As in `read_problem`.
        target: As in `read_problem`.
        labels: The classes that the model knows, by number, or empty for a regression.

    Returns:
        The samples, and class numbers or numbers.

    Raises:
        DataError: If a target is missing, or a class is unknown to the model.
    """
    samples, targets, _, _ = _take_apart(data, target)
    targets = read_targets(targets, "classification" if labels else "regression")
    if not len(targets):
        raise DataError("there are no samples", field="data", allowed="at least one")
    if targets.isna().any():
        raise DataError("some samples have no target", field="target", next_step="Leave them out.")
    if not labels:
        return samples, numbers_of(targets)
    numbers = {_name_of_class(label): number for number, label in enumerate(labels)}
    names = [_name_of_class(value) for value in targets]
    unknown = sorted(set(names) - numbers.keys())
    if unknown:
        raise DataError(
            f"{unknown[0]!r} is not a class of the model", field="target", allowed=list(numbers)
        )
    return samples, np.array([numbers[name] for name in names], dtype=np.int64)


def take(samples: Any, indices: np.ndarray) -> Any:
    """Return some of the samples.

    Args:
        samples: A data frame or an array.
        indices: The numbers of the samples.
    """
    if hasattr(samples, "iloc"):
        return samples.iloc[indices]
    return samples[indices]


def as_samples(kind: SampleKind, given: Any, text_columns: Sequence[str] = ()) -> Any:
    """Return the samples to predict in the form that the model was trained on.

    No samples are an empty list.

    Args:
        kind: The kind of sample.
        given: As in `read_problem`, without targets. A path or a data frame may still have the
            target, and a single string is one sample.
        text_columns: The columns of a table that texts are read from.

    Raises:
        DataError: If these are samples of another kind.
    """
    import pandas as pd

    if isinstance(given, str | Path) and (
        kind == "table" or Path(given).suffix.lower() in TABLE_ENDINGS
    ):
        given = read_table(existing_path(Path(given)))
    elif kind == "texts" and isinstance(given, str):
        given = [given]
    if isinstance(given, Sized) and not len(given):
        return []  # valid for every kind
    given_kind, samples = _samples_of(given)
    if (
        kind == "texts"
        and isinstance(given, pd.DataFrame)
        and (text_columns or len(samples.columns) == 1)
    ):
        return joined_texts(samples, text_columns or list(samples.columns))
    if given_kind != kind:
        raise DataError(
            f"{given_kind} were given to a model that was trained on {kind}", field="data"
        )
    return samples


def _usable(kind: SampleKind, samples: Any) -> tuple[SampleKind, Any, UsableColumns]:
    """Return the samples to learn from and their kind."""
    if kind != "table":
        return kind, samples, UsableColumns((), are_texts=False)
    usable = usable_columns(samples)
    if usable.are_texts:
        return "texts", joined_texts(samples, usable.names), usable
    used = samples[list(usable.names)]
    try:
        check_numbers(used)
    except DataError as error:
        raise error.about("data") from error
    return kind, used, usable


def _without(
    kind: SampleKind,
    samples: Any,
    drop: Sequence[str],
    target: str | None,
    *,
    unused: Sequence[str],
) -> Any:
    """Return the samples without the columns that must not be used."""
    if not drop and not unused:
        return samples
    if kind != "table":
        raise ArgumentError(f"{kind} have no columns to drop", field="drop", next_step="Remove it.")
    if target in drop and target not in samples.columns:
        raise ArgumentError(
            f"{target!r} is the column to predict", field="drop", next_step="Remove it."
        )
    check_columns(samples.columns, {"drop": drop}, section="")
    rest = samples.drop(columns=list(dict.fromkeys((*drop, *unused))))
    if not len(rest.columns):
        raise DataError("no column is left to predict the target from", field="drop")
    return rest


def _notes_of_leaks(
    kind: SampleKind,
    samples: Any,
    targets: np.ndarray,
    usable: UsableColumns,
    *,
    task: Task,
    target: str | None,
) -> list[str]:
    """Return a note for each column of a table that seems to know the target."""
    if kind != "table":
        return []
    columns = {str(name): column_of(samples, name) for name in samples.columns}
    leaks = find_leaks(
        columns, targets, usable.text_forms, is_classification=task == "classification"
    )
    return [
        leak.note(
            "the target" if target is None else f"`{target}`",
            f"--drop {shlex.quote(leak.name)}, or drop=[{leak.name!r}] in Python",
        )
        for leak in leaks
    ]


def _take_apart(
    data: Any, target: str | None, query: str | None = None
) -> tuple[Any, pd.Series, str | None, tuple[str, ...]]:
    """Return the samples, their targets, the name of the target, and what was converted."""
    import pandas as pd

    converted: tuple[str, ...] = ()
    if isinstance(data, str) and data in _NAMED:
        samples, values = _bundled(data)
        return samples, pd.Series(values), None, ()
    if isinstance(data, str | Path):
        try:
            data, converted = read_source(data, query=query, other_names=_NAMED)
        except DataError as error:
            raise error.about("data") from error
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
        + ", ".join(_NAMED),
    )


def _take_column(
    table: pd.DataFrame, target: str | None
) -> tuple[pd.DataFrame, pd.Series, str, tuple[str, ...]]:
    """Return what `_take_apart` returns of a table, one column of which is predicted."""
    columns = [str(name) for name in table.columns]
    if target is None:
        raise ArgumentError(
            "a table needs the name of the column to predict", field="target", allowed=columns
        )
    target = str(target)  # a column may be named by a number
    if target not in columns:
        raise DataError(f"there is no column {target!r}", field="target", allowed=columns)
    frame, converted = _as_frame(table)
    rest = frame.drop(columns=[target])
    if not len(rest.columns):
        raise DataError("no column is left to predict the target from", field="data")
    return rest, column_of(frame, target), target, converted


def _take_pair(samples: Any, given: Any) -> tuple[Any, pd.Series, str | None, tuple[str, ...]]:
    """Return what `_take_apart` returns of samples and targets that are given as a pair."""
    import pandas as pd

    values = given if isinstance(given, pd.Series) else _targets_of(given)
    _check_order(samples, values)
    values = plain_column(values.reset_index(drop=True), field="target")
    converted: tuple[str, ...] = ()
    if isinstance(samples, pd.DataFrame):
        samples, converted = _as_frame(samples)
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


def _samples_of(given: Any) -> tuple[SampleKind, Any]:
    import pandas as pd

    if isinstance(given, pd.Series) and not pd.api.types.is_numeric_dtype(given):
        given = given.to_numpy(dtype=object)
    if isinstance(given, pd.DataFrame):
        return "table", _as_frame(given).table
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


def _as_frame(frame: pd.DataFrame) -> PlainFrame:
    named = frame.set_axis([str(name) for name in frame.columns], axis=1)
    twice = named.columns[named.columns.duplicated()]
    if len(twice):
        raise DataError(
            f"there are two columns {twice[0]!r}", field="data", next_step="Rename one of them."
        )
    return plain_frame(named)


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


def _drop_without_target(samples: Any, targets: pd.Series) -> tuple[Any, pd.Series, int]:
    is_known = targets.notna().to_numpy()
    kept = np.flatnonzero(is_known)
    known = targets.iloc[kept].reset_index(drop=True)
    if len(kept) < len(targets) and are_whole(known):
        known = known.astype("int64")
    return take(samples, kept), known, int((~is_known).sum())


def _name_of_class(value: Any) -> str:
    """Return how a class is compared with others.

    1 and 1.0 are the same, which gaps in a column exchange.
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _drop_rare(
    classes: np.ndarray, class_names: list[str]
) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    """Leave out classes with too few samples to train, validate and test on.

    Returns:
        The rows that are kept, their classes, the names of these, and notes.
    """
    counts = np.bincount(classes, minlength=len(class_names))
    kept = np.flatnonzero(counts >= MIN_PER_CLASS)
    if len(kept) < 2:
        raise DataError(
            f"fewer than two of {len(counts)} classes (such as {class_names[0]!r}) have "
            f"{MIN_PER_CLASS} samples",
            field="target",
            allowed="classes of which there are several samples each, or numbers",
            next_step=(
                "Add samples, or convert the target to a number if it is a quantity or a date."
            ),
        )
    if len(kept) == len(counts):
        return np.arange(len(classes)), classes, class_names, []
    rare = [class_names[number] for number in np.flatnonzero(counts < MIN_PER_CLASS)]
    rows = np.flatnonzero(np.isin(classes, kept))
    of_rare = (
        f"{format_count(len(rare), 'class', 'classes')} with fewer than {MIN_PER_CLASS} samples"
    )
    of_rare += f": {', '.join(rare[:5])}"
    if len(rare) > 5:
        of_rare += ", ..."
    if len(rows) < len(classes) / 2 or len(rows) < MIN_SAMPLES:
        raise DataError(
            f"{len(classes) - len(rows)} of {len(classes)} samples are of {of_rare}",
            field="target",
            allowed=(
                f"classes of which there are at least {MIN_PER_CLASS} samples each, for most of the"
                f" samples and at least {MIN_SAMPLES} of them, or numbers"
            ),
            next_step=(
                "If the target is a quantity, write it in plain numbers, such as 2466. Otherwise"
                " merge rare classes, or choose another column."
            ),
        )
    note = f"left out {format_count(len(classes) - len(rows), 'sample')} of {of_rare}"
    names = [class_names[number] for number in kept]
    return rows, np.searchsorted(kept, classes[rows]), names, [note]


def _imbalance(classes: np.ndarray, class_names: list[str]) -> list[str]:
    counts = np.bincount(classes, minlength=len(class_names))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < _IMBALANCE * counts[least]:
        return []
    return [
        f"classes are imbalanced: {counts[most]} samples of {class_names[most]!r}, {counts[least]}"
        f" of {class_names[least]!r}. Compare balanced_accuracy, as accuracy alone is misleading"
    ]

"""CSV and parquet tables: one column is the target, the others become standardised numbers.

All statistics (means, categories, frequencies) are learnt from the train rows only.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from pydantic import Field

from workbench.data.cache import Cached, cached, file_stamp
from workbench.data.column_encoding import Column, check_numbers, learn_column, text_form_of
from workbench.data.column_notes import notes_of_numeric_target
from workbench.data.dates import DateOrder, with_date_order
from workbench.data.number_texts import number_text_of
from workbench.data.options import DatasetOptions, existing_path, held_out_field
from workbench.data.plain_frames import check_plain, column_of
from workbench.data.reading import Reading, some_of
from workbench.data.splits import ArraySplit, Datasets, divisor, split_in_three, test_split
from workbench.data.table_files import check_columns, read_columns, read_noted_table, read_table
from workbench.data.table_summary import TableSummary, summarise
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError, WorkbenchError
from workbench.foundation.text_tables import PARQUET_ENDINGS

if TYPE_CHECKING:
    import pandas as pd

# A whole-number target with more distinct values than this is treated as a quantity, not as
# classes.
MAX_DETECTED_CLASSES = 20
_MAX_WHOLE = 2**53
"""Beyond it floating-point numbers are no longer exact."""
# Only the first rows of a larger text file are read to find its task.
_MAX_READ_BYTES = 64 * 2**20
_NUM_FIRST_ROWS = 50_000
_READ_WITH = (
    "column_encoding.py",
    "dates.py",
    "number_texts.py",
    "plain_frames.py",
    "splits.py",
    "table_files.py",
    "table_formats.py",
    "text_layout.py",
)


class TableOptions(DatasetOptions):
    """A table with a target column.

    Numbers, times and truth values are standardised. A missing one becomes the mean, and an extra
    column marks it. Numbers may have thousands separators (1,200), and a unit that the whole column
    has, such as %, CHF or m2, which is dropped. Among numbers, `?`, `-`, `NA`, `n/a`, `none` and
    `null` are missing. So is any other text if at least 95 % of the column are numbers. A time may
    also be text if all of a column are dates in one form. It also has its place in the year, the
    week and the day if the train rows span these. Other text becomes one column for each category,
    and a missing one is a category. With more than `max_categories` it becomes the standardised
    rank of its frequency.
    """

    searchable = {"max_categories": {}}

    path: Path = Field(
        description=(
            "A .csv, .tsv, .parquet, .xlsx, .jsonl, .feather or .sqlite file. Text may be "
            "compressed (.csv.gz)."
        )
    )
    target: str = Field(
        min_length=1, description="The column to predict.", json_schema_extra={"column_of": "path"}
    )
    task: Literal["auto", "classification", "regression"] = Field(
        "auto",
        description=(
            "The task. By default, text, booleans and few distinct whole numbers are classes."
        ),
    )
    drop: tuple[str, ...] = Field(
        (), description="Columns that must not be used, such as identifiers."
    )
    drop_missing_targets: bool = Field(
        False, description="Drop rows without a target. Otherwise they are an error."
    )
    dates: DateOrder | None = Field(
        None,
        description=(
            "How to read dates such as 03/04/2024, if no date in the table shows it, or 24-03-04."
        ),
    )
    client: str | None = Field(
        None,
        description=(
            "The column with the client of a row, such as a hospital. It is not an input."
        ),
        json_schema_extra={"column_of": "path"},
    )
    validation_fraction: float = Field(
        0.2,
        gt=0.0,
        lt=1.0,
        description="Share of the rows, of each class if there are classes, that is held out.",
    )
    test_fraction: float = held_out_field()
    validation: Literal["random", "last"] = Field(
        "random",
        description=(
            "Which rows are held out: drawn at random, or the last ones of the file, as a model"
            " that predicts later rows demands."
        ),
    )
    max_categories: int = Field(
        32, ge=1, le=4096, description="Maximum number of categories that get a column each."
    )
    standardise_target: bool = Field(
        True,
        description=(
            "Standardise a regression target for training. This changes the unit of the loss, but"
            " not the unit of errors such as mean_absolute_error."
        ),
    )

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Read, split and encode the table, as DatasetOptions.load does."""
        path = existing_path(self.path)
        made = cached(
            "table",
            {
                "file": file_stamp(path),
                "options": self.model_dump(mode="json", exclude={"path"}),
                "seed": seed,
            },
            lambda: _encode(self._read(), self, seed),
            code=[__file__, *(str(Path(__file__).with_name(name)) for name in _READ_WITH)],
            folder=cache,
        )
        arrays = made.arrays
        owners = None
        if self.client is not None:
            owners = arrays["train_owners"], arrays["validation_owners"]
        return Datasets(
            name="table",
            task=made.facts["task"],
            train=ArraySplit(arrays["train_inputs"], arrays["train_targets"]),
            validation=ArraySplit(arrays["validation_inputs"], arrays["validation_targets"]),
            test=test_split(arrays),
            input_shape=arrays["train_inputs"].shape[1:],
            num_outputs=len(made.facts["class_names"]) or 1,
            class_names=tuple(made.facts["class_names"]),
            owners=owners,
            target_scale=made.facts["target_scale"],
        )

    @property
    def unused(self) -> set[str]:
        """The columns that are not inputs."""
        columns = {self.target, *self.drop}
        if self.client is not None:
            columns.add(self.client)
        return columns

    @property
    def given_task(self) -> Task | None:
        """The task in the options, or None to detect it from the target."""
        if self.task == "auto":
            return None
        return self.task

    def find_task(self) -> Task | None:
        """Return the task, for which the target column is read."""
        if self.given_task is not None:
            return self.given_task
        try:
            return _target_of(*file_stamp(self.path.expanduser()), self.target).task
        except (OSError, WorkbenchError):  # loading it reports this
            return None

    def check_source(self) -> None:
        """Reject a table without the columns in the options, or without some targets."""
        check_columns(read_columns(self.path), self._named_columns)
        target = _target_of(*file_stamp(self.path.expanduser()), self.target)
        if not self.drop_missing_targets:
            _check_known(self.target, target.num_missing, target.rows)

    def _read(self) -> pd.DataFrame:
        """Return the table without the rows to drop. Its index has the row numbers of the file."""
        return self._used_rows(self._with_dates(read_table(existing_path(self.path))))

    def _with_dates(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table with the order of its dates."""
        inputs = table.drop(columns=sorted(self.unused & set(map(str, table.columns))))
        known = with_date_order(
            inputs, self.dates, field="data.dates", how="Set data.dates, such as to ORDER."
        )
        ordered = table.copy(deep=False)
        ordered.attrs = known.attrs
        return ordered

    def _used_rows(self, table: pd.DataFrame) -> pd.DataFrame:
        if not self.drop_missing_targets or self.target not in table.columns:
            return table
        # As it was read: without its markers, a column of numbers in text would be one of text.
        targets = read_targets(column_of(table, self.target), self.given_task)
        known = table.assign(**{self.target: targets}).dropna(subset=[self.target])
        values = column_of(known, self.target)
        if len(known) < len(table) and are_whole(values):
            return known.astype({self.target: "int64"})
        return known

    @property
    def _named_columns(self) -> dict[str, Iterable[str]]:
        columns: dict[str, Iterable[str]] = {"target": [self.target], "drop": self.drop}
        if self.client is not None:
            columns["client"] = [self.client]
        return columns

    def reading(self, *, seed: int) -> Reading:
        """Return how columns are encoded, as DatasetOptions.reading does."""
        table = self._read()
        learnt = _learn(table, self, seed)
        indices = some_of(len(learnt.train))
        rows = table.iloc[learnt.train[indices]].rename(columns=str)
        return Reading(
            {column.name: column_of(rows, column.name).to_numpy() for column in learnt.columns},
            indices,
            learnt.columns,
            target=self.target,
            target_mean=learnt.target_mean,
            target_scale=learnt.target_scale,
        )

    def summary(self) -> TableSummary:
        """Return what the table consists of, as DatasetOptions.summary does."""
        whole, converted = read_noted_table(existing_path(self.path))
        table = self._used_rows(self._with_dates(whole))
        target = _checked_target(table, self)
        is_classification = (self.given_task or detect_task(target)) == "classification"
        written = column_of(whole, self.target)
        left_out = len(written) - len(target)
        notes = []
        if left_out:
            notes.append(f"left out {left_out} of {len(written)} rows without a {self.target!r}")
        notes += converted
        if not is_classification:
            notes += notes_of_numeric_target(written, self.target)
        return summarise(
            {
                str(name): column_of(table, name)
                for name in table.columns
                if name not in self.unused
            },
            target,
            is_classification=is_classification,
            max_categories=self.max_categories,
            dropped=self.drop,
            notes=notes,
            is_split_at_random=self.validation == "random",
        )

    def written_rows(self, num_rows: int) -> tuple[list[str], list[list[str]]] | None:
        """Return the first rows of the file, as DatasetOptions.written_rows does."""
        table = read_table(existing_path(self.path), num_rows).head(num_rows)
        check_columns(table.columns, self._named_columns)
        names = [name for name in table.columns if name not in self.unused]
        columns = [*names, self.target]
        rows = [
            ["" if missing else str(cell) for cell, missing in zip(row, gaps, strict=True)]
            for row, gaps in zip(
                table[columns].to_numpy(object), table[columns].isna().to_numpy(), strict=True
            )
        ]
        return [str(name) for name in columns], rows


def _encode(table: pd.DataFrame, options: TableOptions, seed: int) -> Cached:
    learnt = _learn(table, options, seed)
    train, validation, class_names = learnt.train, learnt.validation, learnt.class_names
    named = {str(name): name for name in table.columns}
    parts = [column.encode(column_of(table, named[column.name])) for column in learnt.columns]
    inputs = np.concatenate(parts, axis=1).astype(np.float32)
    targets = learnt.targets
    # Kept apart, so that each split of a large table is memory-mapped rather than copied.
    arrays = {
        "train_inputs": inputs[train],
        "train_targets": targets[train],
        "validation_inputs": inputs[validation],
        "validation_targets": targets[validation],
    }
    if len(learnt.test):
        arrays |= {"test_inputs": inputs[learnt.test], "test_targets": targets[learnt.test]}
    if options.client is not None:
        clients = column_of(table, named[options.client]).astype(str).to_numpy()
        owners = np.unique(clients, return_inverse=True)[1]
        arrays |= {"train_owners": owners[train], "validation_owners": owners[validation]}
    return Cached(
        arrays,
        {
            "task": learnt.task,
            "class_names": class_names,
            "target_scale": learnt.target_scale,
        },
    )


@dataclass(frozen=True)
class _Learnt:
    """How a table is divided, and how its columns and its target are encoded."""

    task: Task
    class_names: list[str]
    columns: tuple[Column, ...]
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    targets: np.ndarray
    target_mean: float = 0.0
    target_scale: float = 1.0


def _learn(table: pd.DataFrame, options: TableOptions, seed: int) -> _Learnt:
    target = _checked_target(table, options)
    task = options.given_task or detect_task(target)
    class_names, classes = [], None
    if task == "classification":
        class_names, classes = number_classes(target)
    if options.validation == "last":
        num_validation = min(
            len(table) - 1, max(1, round(len(table) * options.validation_fraction))
        )
        num_test = min(len(table) - 1 - num_validation, round(len(table) * options.test_fraction))
        ends = [len(table) - num_validation - num_test, len(table) - num_test]
        train, validation, test = np.split(np.arange(len(table)), ends)
    else:
        train, validation, test = split_in_three(
            len(table),
            validation_fraction=options.validation_fraction,
            test_fraction=options.test_fraction,
            seed=seed,
            classes=classes,
        )
    columns = tuple(
        learn_column(
            column.iloc[train], max_categories=options.max_categories, form=text_form_of(column)
        )
        for name in table.columns
        if name not in options.unused
        for column in (column_of(table, name),)
    )
    if classes is not None:
        return _Learnt(
            task=task,
            class_names=class_names,
            columns=columns,
            train=train,
            validation=validation,
            test=test,
            targets=classes,
        )
    values = _numbers(target)
    mean, scale = 0.0, 1.0
    if options.standardise_target:
        mean = values[train].mean()
        scale = float(divisor(np.asarray(mean), np.asarray(values[train].std())))
        values = (values - mean) / scale
    return _Learnt(
        task=task,
        class_names=[],
        columns=columns,
        train=train,
        validation=validation,
        test=test,
        targets=values.astype(np.float32),
        target_mean=float(mean),
        target_scale=scale,
    )


def _checked_target(table: pd.DataFrame, options: TableOptions) -> pd.Series:
    """Return the target of a table that can be learnt from.

    Raises:
        DataError: If it cannot.
    """
    check_columns(table.columns, options._named_columns)
    if not set(map(str, table.columns)) - options.unused:
        raise DataError("no column is left to predict the target from", field="data.drop")
    if len(table) < 2:
        raise DataError(
            f"the table has {len(table)} row(s)", field="data.path", allowed="at least 2"
        )
    if options.client is not None and (gaps := int(column_of(table, options.client).isna().sum())):
        raise DataError(
            f"{gaps} of {len(table)} rows have no {options.client!r}",
            field="data.client",
            next_step="Remove these rows from the file, or fill in their client.",
        )
    try:
        inputs = table.drop(columns=sorted(options.unused))
        check_plain(inputs)
        check_numbers(inputs)
    except DataError as error:
        raise error.about("data.path") from error
    target = read_targets(column_of(table, options.target), options.given_task)
    _check_known(options.target, int(target.isna().to_numpy().sum()), str(len(target)))
    return target


def _check_known(name: str, num_missing: int, rows: str) -> None:
    if num_missing:
        raise DataError(
            f"{num_missing} of {rows} rows have no {name!r}",
            field="data.target",
            next_step=(
                "Nothing can be learnt from them: set data.drop_missing_targets to true, or remove "
                "them."
            ),
        )


def read_targets(target: pd.Series, task: Task | None) -> pd.Series:
    """Return a target with gaps for missing markers, and numbers for text of numbers.

    Classes keep the text that they are written as.

    Args:
        target: The column to predict.
        task: The task, or None to detect it.
    """
    import pandas as pd

    form = number_text_of(target, min_share=1.0)
    if form is None:
        return target
    numbers = pd.Series(form.parse_all(target), index=target.index, name=target.name)
    known = numbers.notna()
    if (task or detect_task(numbers.dropna())) == "regression":
        return numbers
    return target.where(known)


def are_whole(target: pd.Series) -> bool:
    """Return whether targets are whole numbers that pandas read as 0.0 and 1.0.

    It does so if others are missing. The names of the classes should still be 0 and 1.

    Args:
        target: The column to predict, without missing values.
    """
    if target.dtype.kind != "f":
        return False
    return bool(((target.mod(1) == 0) & (target.abs() <= _MAX_WHOLE)).all())


def detect_task(target: pd.Series) -> Task:
    """Return the task of a target: text, booleans and few distinct whole numbers are classes.

    Args:
        target: The column to predict, without missing values.
    """
    from pandas.api import types

    if types.is_bool_dtype(target) or not types.is_numeric_dtype(target):
        return "classification"
    values = target.to_numpy(dtype=np.float64)
    is_few = len(np.unique(values)) <= min(MAX_DETECTED_CLASSES, max(2, len(values) // 2))
    if is_few and np.array_equal(values, np.round(values)):
        return "classification"
    return "regression"


class _Target(NamedTuple):
    """The target of the rows that were read, and its task if these determine it."""

    task: Task | None
    num_missing: int
    rows: str


@functools.lru_cache(maxsize=32)
def _target_of(path: str, size_bytes: int, _changed_ns: int, target: str) -> _Target:
    """Return what the target of one version of a file shows, or the first rows of a large one."""
    num_rows = None
    if size_bytes > _MAX_READ_BYTES and Path(path).suffix not in PARQUET_ENDINGS:
        num_rows = _NUM_FIRST_ROWS
    values = read_targets(column_of(read_table(Path(path), num_rows, only=target), target), None)
    known = values.dropna()
    num_missing = len(values) - len(known)
    task = None
    if not known.empty:
        task = detect_task(known)
    if num_rows is None:
        return _Target(task, num_missing, str(len(values)))
    if task == "classification":
        task = None  # further rows may have more values, but never fewer
    return _Target(task, num_missing, f"the first {len(values)}")


def number_classes(target: pd.Series) -> tuple[list[str], np.ndarray]:
    """Return the names of the classes, and the number of each row's class as int64.

    Names are in the order of their numbers or of the alphabet, in which small and capital letters
    are alike: `no` comes before `Yes`. Scores of one of two classes are those of the second.

    Args:
        target: The column to predict, without missing values.

    Raises:
        DataError: If there is only one class.
    """
    texts = target.astype(str).to_numpy(dtype=object)
    names = _sort_names(set(texts))
    if len(names) < 2:
        raise DataError(f"every row is of class {names[0]!r}", field="data.target")
    numbers = {name: number for number, name in enumerate(names)}
    return names, np.array([numbers[text] for text in texts], dtype=np.int64)


def _sort_names(names: Iterable[str]) -> list[str]:
    in_order = sorted(names, key=lambda name: (name.casefold(), name))
    try:
        return sorted(in_order, key=float)
    except ValueError:
        return in_order


def _numbers(target: pd.Series) -> np.ndarray:
    try:
        values = target.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the target {target.name!r} is not numeric: {error}",
            field="data.target",
            next_step="Use a column of numbers, or set task to classification.",
        ) from error
    if not np.isfinite(values).all():
        raise DataError(f"{target.name!r} holds infinite values", field="data.target")
    return values

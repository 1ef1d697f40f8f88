"""Detect the task that a data set poses.

The kind of sample, and whether classes or numbers are predicted.

Data comes as arrays, data frames, files, texts or by the name of a data set. Only its form is
examined here. Splitting and encoding is left to `preparation`.
"""

from __future__ import annotations

import functools
import shlex
import warnings
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench.data.column_encoding import TextForm
from workbench.data.column_notes import (
    notes_of_classes,
    notes_of_numeric_target,
    without_infinite,
)
from workbench.data.dates import DateOrder, with_date_order
from workbench.data.encoders import SampleKind
from workbench.data.leaks import find_leaks
from workbench.data.number_texts import number_text_of
from workbench.data.plain_frames import check_plain, column_of, without_values
from workbench.data.table_files import TABLE_ENDINGS, check_columns
from workbench.data.table_formats import split_part
from workbench.data.table_sources import read_source
from workbench.data.table_texts import joined_texts
from workbench.data.tables import are_whole, detect_task, number_classes, read_targets
from workbench.data.total_rows import without_total
from workbench.foundation.errors import ArgumentError, DataError
from workbench.foundation.formatting import format_count
from workbench.runs.automl.column_roles import UsableColumns, usable_columns
from workbench.runs.automl.given_data import (
    LEARNING,
    NAMED,
    TEST,
    VALIDATION,
    are_image_files,
    check_classes_of_parts,
    read_images,
    samples_of,
    take,
    take_apart,
    with_own_parts,
    without_overlap,
)
from workbench.runs.automl.group_offsets import group_texts
from workbench.runs.automl.row_roles import (
    NONE,
    RowRoles,
    find_row_roles,
    target_follows,
    weights_of,
    with_copies,
)
from workbench.runs.automl.several_targets import with_numeric_targets
from workbench.runs.automl.targets import (
    MIN_SAMPLES,
    Task,
    check_finite,
    check_targets,
    drop_rare,
    imbalance_of,
    in_order,
    numbers_of,
    order_of,
    with_one_spelling,
)

if TYPE_CHECKING:
    import pandas as pd

# Copies are searched in tables up to this size, as that would take seconds.
_MAX_COMPARED_CELLS = 20_000_000
# So many different whole numbers may be counts rather than classes.
_FEWEST_COUNTS = 6
_HOW_TO_ORDER = 'Say which it is: --dates ORDER, or dates="ORDER" in Python.'


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
        text_columns: The columns of a table that hold sentences.
        are_files: Whether the samples are image files.
        target_unit: The sign or word after the numbers of the target, such as CHF, or "" for none.
        roles: Which rows belong together, and their times.
        parts: LEARNING, VALIDATION or TEST for each sample if the user divided them, or None.
        weights: The weight of each sample, all above 0, or None if all are equal.
        weight_column: The column with the weights, or None.
        is_ordered: Whether the classes have an order, in which they are numbered.
        target_names: The names of several targets, whose numbers are the columns of `targets`, or
            empty if there is one.
        are_labels: Whether several targets are labels, which are 0 or 1.
        groups: The group of each sample as text, None where it is missing. None without a column of
            groups.
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
    are_files: bool = False
    target_unit: str = ""
    roles: RowRoles = field(default_factory=RowRoles)
    parts: np.ndarray | None = field(default=None, repr=False)
    weights: np.ndarray | None = field(default=None, repr=False)
    weight_column: str | None = None
    is_ordered: bool = False
    target_names: tuple[str, ...] = ()
    are_labels: bool = False
    groups: np.ndarray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.targets)


def read_problem(
    data: Any,
    target: str | None = None,
    *,
    task: Task | Literal["ordinal"] | None = None,
    drop: Sequence[str] = (),
    group_column: str | None = None,
    time_column: str | None = None,
    test: Any = None,
    validation: Any = None,
    weight_column: str | None = None,
    query: str | None = None,
    class_order: Sequence[str] = (),
    dates: DateOrder | None = None,
    text_column: str | None = None,
) -> Problem:
    """Read data and detect its task.

    Args:
        data: A pair (X, y), where X is a data frame, an array (samples, features), images (samples,
            height, width[, channels]), or texts. A data frame, the path of a table or the address
            of a database, with `target`. Or the name of a bundled data set.
        target: The column to predict, if data is a table.
        task: Whether to predict classes, ordered classes or numbers, or None to detect it from the
            target. An ordered Categorical of pandas holds ordered classes.
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
        class_order: The classes from the lowest to the highest, if they are ordered and are neither
            numbers nor an ordered Categorical.
        dates: The order of dates that can be read in two ways, such as day-first for 03/04/2024.
        text_column: The only column to learn from, which holds texts, or None.

    Raises:
        DataError: If the data is not sufficient to train and test on, such as too few samples or
            only one class, or if a column does not exist.
        ArgumentError: If the type of the data is not supported, or `target` is missing.
    """
    samples, targets, name, converted = take_apart(data, target, query)
    order = order_of(targets, task, class_order)
    if task == "ordinal" or order is not None:
        task = "classification"
    if order:
        targets = targets.astype(object)  # the order is known, and gaps may be joined
    kind, samples = samples_of(samples)
    if len(samples) != len(targets):
        raise DataError(
            f"there are {len(samples)} samples and {len(targets)} targets", field="data"
        )
    own = {VALIDATION: ("validation", validation), TEST: ("test", test)}
    samples, targets, parts = with_own_parts(
        kind, samples, targets, own, target=target or name, unneeded=drop
    )
    samples, of_infinite = _with_known_columns(kind, samples, drop, dates)
    targets = targets.infer_objects()  # numbers next to gaps may come as objects
    check_finite(targets)
    written = targets
    targets = read_targets(targets, task)
    num_missing = int(targets.isna().sum())
    weights = None
    if weight_column is not None:
        weights = weights_of(kind, samples, weight_column, target=name)
        targets = targets.where(weights > 0)  # a sample of weight 0 is not used
        weights = weights[targets.notna().to_numpy()]
    if parts is not None:
        parts = parts[targets.notna().to_numpy()]
    num_weightless = int(targets.isna().sum()) - num_missing
    samples, targets = _drop_without_target(samples, targets)
    num_learning = len(targets) if parts is None else int((parts == LEARNING).sum())
    notes = list(dict.fromkeys((*converted, *of_infinite)))
    notes += _notes_of_unused(num_missing, num_weightless)
    unused_counts = {"none": num_missing, "weight 0": num_weightless}
    _check_enough(num_learning, unused_counts)
    check_targets(targets, task, num_missing=num_missing)
    roles = _roles(
        kind,
        samples,
        targets,
        target=name,
        group_column=group_column,
        time_column=time_column,
        own_parts=[part for part, given in own.values() if given is not None],
    )
    notes += roles.notes
    groups = None if roles.group is None else group_texts(column_of(samples, roles.group))
    unused = [column for column in (roles.group, weight_column) if column is not None]
    samples = _without(kind, samples, drop, name, unused=unused)
    kind, samples, usable = _usable(kind, samples, text_column, targets)
    roles, of_copies = _together(kind, samples, roles)
    kept, of_overlap = without_overlap(roles, parts)
    notes += of_copies + of_overlap
    wanted = task or (
        "classification" if detect_task(targets) == "classification" else "regression"
    )
    if task is None and order is None and wanted == "classification":
        notes += _notes_of_counts(targets, name)
    problem = Problem(
        kind=kind,
        task=wanted,
        samples=samples,
        targets=np.empty(0),
        class_names=(),
        labels=(),
        target_name=name,
        notes=tuple(notes),
        text_forms=usable.text_forms,
        text_columns=usable.texts,
        are_files=kind == "images" and isinstance(data, str | Path) and data not in NAMED,
        roles=roles,
        parts=parts,
        weights=weights,
        weight_column=weight_column,
        groups=groups,
    )
    if not kept.all():
        assert parts is not None
        _check_enough(int((parts[kept] == LEARNING).sum()), unused_counts)
        places = np.flatnonzero(kept)
        problem = _take_rows(problem, places)
        targets = targets.iloc[places].reset_index(drop=True)
    if wanted == "regression":
        return _of_numbers(problem, targets, written, usable)
    return _of_classes(problem, targets, written, usable, order)


def _with_known_columns(
    kind: SampleKind, samples: Any, drop: Sequence[str], dates: DateOrder | None
) -> tuple[Any, list[str]]:
    """Return samples whose columns can be read and whose dates have a known order, and notes."""
    if kind != "table":
        return samples, []
    samples = without_values(samples, drop)
    check_plain(samples)
    unneeded = [name for name in drop if name in samples.columns]
    samples, notes = without_infinite(samples)
    known = with_date_order(samples.drop(columns=unneeded), dates, how=_HOW_TO_ORDER)
    samples = samples.copy(deep=False)
    samples.attrs = known.attrs
    return samples, notes


def read_several(data: Any, names: Sequence[str], *, task: str | None, **how: Any) -> Problem:
    """Read data with several targets, each of which is a number, or each a label.

    Args:
        data: A table: a data frame, the path of a table or the address of a database.
        names: The targets.
        task: The task that the user chose, or None.
        **how: The other arguments of `read_problem`.

    Raises:
        DataError: As `read_problem`, or if the targets are of different kinds.
        ArgumentError: As `read_problem`, or if an option needs a single target.
    """
    samples, values, _, converted = take_apart(data, names[0], how.pop("query", None))
    if task not in (None, "regression"):
        raise ArgumentError(
            f"the task is {task}, but there are several targets",
            field="task",
            allowed="regression, or none: labels that are 0 or 1 are detected",
        )
    if how.pop("class_order", ()):
        raise ArgumentError("several targets have no order of classes", field="class_order")
    table, are_labels, num_left_out = with_numeric_targets(
        samples.assign(**{names[0]: values.to_numpy()}), names
    )
    drop = tuple(how.pop("drop", ()))
    problems = []
    for name in names:
        others = [other for other in names if other != name]
        unused = (*drop, *others)
        problems.append(read_problem(table, name, task="regression", drop=unused, **how))
    if len({len(problem) for problem in problems}) > 1:
        raise DataError("some rows to test on lack a target", field="test")
    notes = [*converted]
    if num_left_out:
        notes.append(f"{num_left_out} samples without all targets are not used")
    notes += dict.fromkeys(note for problem in problems for note in problem.notes)
    return replace(
        problems[0],
        targets=np.column_stack([problem.targets for problem in problems]),
        target_name=", ".join(names),
        target_names=tuple(names),
        are_labels=are_labels,
        target_unit="",
        notes=tuple(dict.fromkeys(notes)),
    )


def _notes_of_unused(num_missing: int, num_weightless: int) -> list[str]:
    """Return which samples are not used, and why."""
    notes = []
    for count, reason in ((num_missing, "without a target"), (num_weightless, "of weight 0")):
        if count:
            verb = "is" if count == 1 else "are"
            notes.append(f"{format_count(count, 'sample')} {reason} {verb} not used")
    return notes


def _check_enough(num_learning: int, unused: Mapping[str, int]) -> None:
    """Reject too few samples. `unused` has the number of those left out, by what they have."""
    if num_learning >= MIN_SAMPLES:
        return
    problem = f"{num_learning} samples with a target are too few to train, validate and test on"
    reasons = [f"{count} have {what}" for what, count in unused.items() if count]
    if reasons:
        problem += f" ({', '.join(reasons)})"
    raise DataError(
        problem, field="data", allowed=f"at least {MIN_SAMPLES}", next_step="Add samples."
    )


def _of_numbers(
    problem: Problem, targets: pd.Series, written: pd.Series, usable: UsableColumns
) -> Problem:
    """Return the problem with the numbers to predict."""
    numbers = numbers_of(targets)
    name = problem.target_name
    form = number_text_of(written, min_share=1.0)
    notes = [*problem.notes, *notes_of_numeric_target(written, name or "the target")]
    notes += usable.notes
    notes += _notes_of_leaks(
        problem.kind, problem.samples, numbers, usable, task=problem.task, target=name
    )
    return replace(
        problem,
        targets=numbers,
        notes=tuple(notes),
        target_unit="" if form is None else form.unit,
    )


def _notes_of_counts(targets: pd.Series, name: str | None) -> list[str]:
    """Return a note if whole numbers are taken for classes although they may be counts."""
    if targets.dtype.kind not in "iuf" or targets.nunique() < _FEWEST_COUNTS:
        return []
    return [
        f"{name or 'the target'} has {targets.nunique()} different whole numbers, which are taken"
        " for classes. If they are counts or grades, predict a number: task regression"
    ]


def _of_classes(
    problem: Problem,
    targets: pd.Series,
    written: pd.Series,
    usable: UsableColumns,
    order: Sequence[str] | None,
) -> Problem:
    """Return the problem with the classes to predict, without those that are too rare."""
    nearly_numbers = [] if order else notes_of_classes(written.dropna())
    of_spelling: list[str] = []
    if not order:
        targets, of_spelling = with_one_spelling(targets)
    class_names, classes = number_classes(targets)
    if order:
        class_names, classes = in_order(class_names, classes, order)
    given = dict(zip(targets.astype(str), targets, strict=True))
    try:
        kept, classes, class_names, left_out = drop_rare(classes, class_names)
    except DataError as error:
        if not nearly_numbers:
            raise
        problem_in_words, *_, next_step = nearly_numbers[0].rpartition(". To have")
        raise DataError(
            problem_in_words, field="target", next_step=f"To have{next_step}."
        ) from error
    if len(kept) < len(targets):
        problem = _take_rows(problem, kept)
    check_classes_of_parts(classes, problem.parts, class_names)
    notes = [
        *problem.notes,
        *nearly_numbers,
        *of_spelling,
        *left_out,
        *imbalance_of(classes, class_names),
        *usable.notes,
    ]
    notes += _notes_of_leaks(
        problem.kind,
        problem.samples,
        classes,
        usable,
        task=problem.task,
        target=problem.target_name,
    )
    return replace(
        problem,
        targets=classes,
        class_names=tuple(class_names),
        labels=tuple(given[class_name] for class_name in class_names),
        notes=tuple(notes),
        is_ordered=order is not None,
    )


def _take_rows(problem: Problem, rows: np.ndarray) -> Problem:
    return replace(
        problem,
        samples=take(problem.samples, rows),
        roles=replace(problem.roles, blocks=problem.roles.blocks.take(rows)),
        parts=None if problem.parts is None else problem.parts[rows],
        weights=None if problem.weights is None else problem.weights[rows],
        groups=None if problem.groups is None else problem.groups[rows],
    )


def _roles(
    kind: SampleKind,
    samples: Any,
    targets: pd.Series,
    *,
    target: str | None,
    group_column: str | None,
    time_column: str | None,
    own_parts: Sequence[str],
) -> RowRoles:
    """Return which rows belong together, and their times."""
    if kind == "table":
        return find_row_roles(
            samples,
            targets,
            group_column=group_column,
            time_column=time_column,
            target=target,
            own_parts=own_parts,
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
    verb = "has" if num_copies == 1 else "have"
    note = (
        f"{format_count(num_copies, 'row')} of {len(samples)} {verb} the same inputs as another:"
        " such rows are kept on one side of every split"
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
    samples, targets, _, _ = take_apart(data, target)
    targets = read_targets(targets, "classification" if labels else "regression")
    if not len(targets):
        raise DataError("there are no samples", field="data", allowed="at least one")
    if num_missing := int(targets.isna().sum()):
        raise DataError(
            f"{num_missing} of {len(targets)} samples have no target",
            field="target",
            next_step="A score needs it. Leave these samples out.",
        )
    if not labels:
        return samples, numbers_of(targets)
    numbers = {_name_of_class(label): number for number, label in enumerate(labels)}
    plain = {_plain_class(name): name for name in numbers}
    names = [_name_of_class(value) for value in targets]
    if len(plain) == len(numbers):  # as in training, capitals and spaces do not matter
        names = [name if name in numbers else plain.get(_plain_class(name), name) for name in names]
    unknown = sorted(set(names) - numbers.keys())
    if unknown:
        raise DataError(
            f"{unknown[0]!r} is not a class of the model", field="target", allowed=list(numbers)
        )
    return samples, np.array([numbers[name] for name in names], dtype=np.int64)


def read_several_labelled(data: Any, names: Sequence[str]) -> tuple[Any, np.ndarray]:
    """Read a table with several targets, for a model that has been trained.

    Args:
        data: A data frame, or the path of a table.
        names: The targets.

    Returns:
        The samples and (samples, targets) numbers.
    """
    samples, values, _, _ = take_apart(data, names[0])
    table, _, _ = with_numeric_targets(samples.assign(**{names[0]: values.to_numpy()}), names)
    return table.drop(columns=list(names)), table[list(names)].to_numpy(dtype=np.float64)


def as_samples(
    kind: SampleKind,
    given: Any,
    text_columns: Sequence[str] = (),
    decimal_commas: Collection[str] = (),
) -> Any:
    """Return the samples to predict in the form that the model was trained on.

    No samples are an empty list.

    Args:
        kind: The kind of sample.
        given: As in `read_problem`, without targets. A path or a data frame may still have the
            target, and a single string is one sample.
        text_columns: The columns of a table that texts are read from.
        decimal_commas: The columns whose numbers had decimal commas in training.

    Raises:
        DataError: If these are samples of another kind.
    """
    import pandas as pd

    if isinstance(given, str | Path) and (
        kind == "table" or split_part(Path(given))[0].suffix.lower() in TABLE_ENDINGS
    ):
        given = _rows_of_file(given, decimal_commas)
    elif kind == "images" and are_image_files(given):
        files = [given] if isinstance(given, str | Path) else given
        given = read_images([str(file) for file in files])
    elif kind == "texts" and isinstance(given, str):
        given = [given]
    if isinstance(given, Sized) and not len(given):
        return []  # valid for every kind
    given_kind, samples = samples_of(given)
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


def _rows_of_file(path: str | Path, decimal_commas: Collection[str]) -> pd.DataFrame:
    """Return the rows of a table as training reads them. A warning says what is not used."""
    read, of_reading = read_source(path, decimal_commas=decimal_commas)
    table, of_totals = without_total(read)
    for note in (*of_reading, *of_totals):
        warnings.warn(f"{Path(path).name}: {note}", stacklevel=2)
    return table


def _usable(
    kind: SampleKind, samples: Any, text_column: str | None, targets: pd.Series
) -> tuple[SampleKind, Any, UsableColumns]:
    """Return the samples to learn from and their kind."""
    if text_column is not None:
        if kind != "table":
            raise ArgumentError(
                f"{kind} have no columns", field="text_column", next_step="Remove it."
            )
        check_columns(samples.columns, {"text_column": [text_column]}, section="")
        return (
            "texts",
            joined_texts(samples, [text_column]),
            UsableColumns((text_column,), (text_column,)),
        )
    if kind != "table":
        return kind, samples, UsableColumns(())
    usable = usable_columns(samples, functools.partial(target_follows, targets))
    if usable.are_texts:
        return "texts", joined_texts(samples, usable.names), usable
    return kind, samples[list(usable.names)], usable


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


def _drop_without_target(samples: Any, targets: pd.Series) -> tuple[Any, pd.Series]:
    is_known = targets.notna().to_numpy()
    kept = np.flatnonzero(is_known)
    known = targets.iloc[kept].reset_index(drop=True)
    if len(kept) < len(targets) and are_whole(known):
        known = known.astype("int64")
    return take(samples, kept), known


def _name_of_class(value: Any) -> str:
    """Return how a class is compared with others.

    1 and 1.0 are the same, which gaps in a column exchange.
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _plain_class(name: str) -> str:
    """Return a class without the capitals and spaces that do not make it another one."""
    return " ".join(name.split()).casefold()

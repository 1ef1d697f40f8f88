"""Check targets: classes or finite numbers, not all equal, with enough samples of each class.

Classes may have an order, such as grades.

Models may learn the logarithm of a target, such as a price. Errors of prices grow with the price,
and a few high prices decide what is learned. Their logarithm does not have this problem. It is used
if that makes trees better in the unit of the target.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.foundation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_count
from workbench.models.quick_trees import FoldArrays, predicted_by_trees

Task = Literal["classification", "regression"]

_TIMES = ("date", "time", "period")
_MAX_ROWS = 5
# The loss with logarithms must be at most this part of the one without.
_MOST_LOSS_LEFT = 0.95
# Targets that are spread less are nearly proportional to their logarithms.
_LEAST_RATIO = 5.0
MAX_LOGARITHM = 80.0
"""A larger logarithm has no number in float32."""
MIN_SAMPLES = 20
MIN_PER_CLASS = 3
# A class that is this many times rarer than the most frequent one is reported.
_IMBALANCE = 5.0


def check_targets(targets: pd.Series, task: Task | None, *, num_missing: int) -> None:
    """Refuse targets from which nothing can be learnt.

    Args:
        targets: The targets that are known.
        task: Whether to predict classes or numbers, or None to detect it from the targets.
        num_missing: Number of samples without a target.

    Raises:
        DataError: If they are dates, or all equal.
    """
    from pandas.api import types

    name = _name_of(targets)
    kind = types.infer_dtype(targets, skipna=True)
    if kind.startswith(_TIMES) and task != "classification":
        raise DataError(
            f"{name} holds dates or times, such as {targets.iloc[0]}",
            field="target",
            allowed="classes, or numbers",
            next_step=(
                "Predict a number computed from it, such as (dates - dates.min()).dt.days, or, if"
                " the dates are classes, set task to classification."
            ),
        )
    first = targets.iloc[0]
    if targets.astype(str).nunique() == 1:
        value = str(first)
        if isinstance(first, str):
            value = repr(first)
        problem = f"{name} is {value} in every sample"
        next_step = "Add samples that differ in it, or name another column."
        if num_missing:
            problem += " that has one"
            next_step = (
                f"{num_missing} samples have none. If that means another class, fill it in, as in"
                ' y.fillna("no").'
            )
        raise DataError(
            problem,
            field="target",
            allowed="at least two classes, or numbers that differ",
            next_step=next_step,
        )


def numbers_of(targets: pd.Series) -> np.ndarray:
    """Return the targets of a regression as float64.

    Args:
        targets: Targets, none missing.

    Raises:
        DataError: If some are not finite numbers.
    """
    name = _name_of(targets)
    try:
        values = targets.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name} holds values that are not numbers: {error}",
            field="target",
            allowed="numbers for a regression",
            next_step="Correct them, or set task to classification.",
        ) from error
    check_finite(targets)
    return values


def check_finite(targets: pd.Series) -> None:
    """Refuse infinite numbers.

    Args:
        targets: Targets, also missing ones.

    Raises:
        DataError: If some are infinite.
    """
    from pandas.api import types

    if not types.is_numeric_dtype(targets):
        return
    wrong = np.flatnonzero(np.isinf(targets.to_numpy(dtype=np.float64, na_value=np.nan)))
    if len(wrong):
        rows = ", ".join(map(str, wrong[:_MAX_ROWS]))
        if len(wrong) > _MAX_ROWS:
            rows += ", ..."
        raise DataError(
            f"{_name_of(targets)} is infinite in {len(wrong)} of {len(targets)} samples: {rows}"
            " (from 0)",
            field="target",
            allowed="finite numbers",
            next_step="Correct them, or write NaN: samples without a target are not used.",
        )


def _name_of(targets: pd.Series) -> str:
    if targets.name is None:
        return "the target"
    return f"the target {str(targets.name)!r}"


def with_one_spelling(targets: pd.Series) -> tuple[pd.Series, list[str]]:
    """Return classes with one spelling each, and a note if some differ in case or spaces only.

    Args:
        targets: The classes, none missing. Only texts are changed.
    """
    counts = Counter(value for value in targets if isinstance(value, str))
    spellings: dict[str, list[str]] = {}
    for text, _ in counts.most_common():
        spellings.setdefault(" ".join(text.split()).casefold(), []).append(text)
    several = [texts for texts in spellings.values() if len(texts) > 1]
    if not several:
        return targets, []
    usual = {text: texts[0] for texts in several for text in texts}
    shown = "; ".join(
        f"{', '.join(map(repr, others))} as {first!r}" for first, *others in several[:3]
    )
    dots = "; ..." * (len(several) > 3)
    return targets.map(lambda value: usual.get(value, value)), [
        f"classes that differ only in capitals or spaces are one class: {shown}{dots}"
    ]


def logarithms_help(
    folds: Sequence[FoldArrays], loss: Callable[[np.ndarray, np.ndarray], float], seed: int = 0
) -> bool:
    """Return whether trees are better if they learn the logarithms of the targets.

    Args:
        folds: Encoded folds, whose targets are in their own unit.
        loss: The loss that is optimised, of (samples, 1) predictions and targets.
        seed: Seed of the trees.
    """
    targets = np.concatenate([fold[1] for fold in folds] + [fold[3] for fold in folds])
    if not targets.min() > 0:
        return False
    low, high = np.quantile(targets, [0.05, 0.95])
    if high < _LEAST_RATIO * low:
        return False
    losses = np.zeros(2)
    wins = 0
    for train_inputs, train_targets, inputs, wanted in folds:
        plain = predicted_by_trees(train_inputs, train_targets, inputs, seed)
        logarithms = predicted_by_trees(train_inputs, np.log(train_targets), inputs, seed)
        both = [
            loss(predicted[:, None], wanted)
            for predicted in (plain, np.exp(np.minimum(logarithms, MAX_LOGARITHM)))
        ]
        losses += both
        wins += both[1] < both[0]
        if not wins:  # the others would have to make up for it, which takes as long again
            return False
    return bool(losses[1] < _MOST_LOSS_LEFT * losses[0]) and wins > len(folds) / 2


def drop_rare(
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


def imbalance_of(classes: np.ndarray, class_names: list[str]) -> list[str]:
    """Return a note if one class has many more samples than another.

    Args:
        classes: The class of each sample.
        class_names: The names of the classes.
    """
    counts = np.bincount(classes, minlength=len(class_names))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < _IMBALANCE * counts[least]:
        return []
    return [
        f"classes are imbalanced: {counts[most]} samples of {class_names[most]!r}, {counts[least]}"
        f" of {class_names[least]!r}. Compare balanced_accuracy, as accuracy alone is misleading"
    ]


def order_of(
    targets: pd.Series, task: str | None, given: str | Sequence[str] = ()
) -> tuple[str, ...] | None:
    """Return the classes from the lowest to the highest, () for numbers, or None without an order.

    Args:
        targets: The targets as they were given.
        task: The task that the user chose, or None.
        given: The order that the user gave, or empty.

    Raises:
        ArgumentError: If the order is missing, or does not fit the task.
    """
    import pandas as pd

    listed = given.split(",") if isinstance(given, str) else given
    order = tuple(str(name).strip() for name in listed)
    if order and task not in (None, "ordinal"):
        raise ArgumentError(
            f"the task is {task}, but an order of classes is given",
            field="class_order",
            next_step="Remove it, or set task to ordinal.",
        )
    if len(set(order)) < len(order):
        raise ArgumentError("a class is listed twice", field="class_order")
    if task not in (None, "ordinal") or order:
        return order or None
    dtype = targets.dtype
    if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered:
        return tuple(map(str, dtype.categories))
    if task != "ordinal":
        return None
    numbers: Any = pd.to_numeric(targets.dropna().astype(str), errors="coerce")
    if not numbers.notna().all():
        raise ArgumentError(
            "the order of the classes is unknown",
            field="class_order",
            allowed="all classes from the lowest to the highest, such as low,medium,high",
        )
    return ()


def in_order(
    class_names: list[str], classes: np.ndarray, order: Sequence[str]
) -> tuple[list[str], np.ndarray]:
    """Return the names of classes, and the class of each row, numbered in an order.

    Args:
        class_names: The names, by the numbers so far.
        classes: The number of the class of each row.
        order: The order, which may have further classes.

    Raises:
        DataError: If a class has no place in the order.
    """
    unknown = sorted(set(class_names) - set(order))
    if unknown:
        raise DataError(
            f"the class {unknown[0]!r} has no place in the order",
            field="class_order",
            allowed="all classes from the lowest to the highest",
        )
    kept = [name for name in order if name in set(class_names)]
    place = {name: number for number, name in enumerate(kept)}
    return kept, np.array([place[name] for name in class_names], dtype=np.int64)[classes]

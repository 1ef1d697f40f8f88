"""Classes with an order, such as grades: where the order comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.foundation.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import pandas as pd


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

"""Check targets: they must be classes or finite numbers, and not all equal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.foundation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Task = Literal["classification", "regression"]

_TIMES = ("date", "time", "period")
_MAX_ROWS = 5


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

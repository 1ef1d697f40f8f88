"""Several targets of a table: numbers, or labels that a row has or has not.

One model predicts all of them. Labels are 0 or 1, and their predictions are probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.plain_frames import column_of
from workbench.data.table_files import check_columns
from workbench.data.tables import detect_task, read_targets
from workbench.foundation.errors import ArgumentError, DataError
from workbench.models.class_scores import macro_roc_auc
from workbench.runs.automl.score_intervals import Scale, Score

if TYPE_CHECKING:
    import pandas as pd

MAX_TARGETS = 50
_SHARE = 0.5


def split_targets(target: Any, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of several targets, or () if there is one or none.

    Args:
        target: What the user gave: a name, names with commas between them, a list, or None.
        columns: The columns of the table, which may have commas in their names, or None.
    """
    if isinstance(target, str):
        names = _names_in(target, columns or ())
    elif target is None or not isinstance(target, list | tuple):
        return ()
    else:
        names = [str(name) for name in target]
    if len(names) < 2:
        return ()
    if len(set(names)) < len(names):
        raise ArgumentError("a target is listed twice", field="target")
    if len(names) > MAX_TARGETS:
        raise ArgumentError(
            f"{len(names)} targets are listed",
            field="target",
            allowed=f"at most {MAX_TARGETS}",
            next_step="Predict some of them in another run.",
        )
    return tuple(names)


def _names_in(text: str, columns: Sequence[str]) -> list[str]:
    """Return the names in a text with commas between them. A column of several words wins."""
    words = text.split(",")
    names = []
    start = 0
    while start < len(words):
        end = start + 1
        for later in range(len(words), end, -1):
            if ",".join(words[start:later]).strip() in columns:
                end = later
                break
        names.append(",".join(words[start:end]).strip())
        start = end
    return [name for name in names if name]


def with_numeric_targets(
    table: pd.DataFrame, names: Sequence[str]
) -> tuple[pd.DataFrame, bool, int]:
    """Return a table whose targets are numbers, and without rows that lack one of them.

    Args:
        table: The table.
        names: The targets.

    Returns:
        The table, whether the targets are labels, and the number of rows that are left out.

    Raises:
        DataError: If a column does not exist, or targets are neither all numbers nor all labels.
    """
    check_columns(list(table.columns), {"target": list(names)}, section="")
    columns: dict[str, Any] = {name: read_targets(column_of(table, name), None) for name in names}
    known = np.logical_and.reduce([values.notna().to_numpy() for values in columns.values()])
    table = table.iloc[np.flatnonzero(known)].reset_index(drop=True)
    numbers: dict[str, pd.Series] = {}
    labels, others = [], []
    for name, values in columns.items():
        kept = values[known].reset_index(drop=True).infer_objects()
        if _is_label(kept):
            labels.append(name)
            kept = kept.astype(float)
        elif kept.dtype.kind in "iuf":
            others.append(name)
        else:
            raise DataError(
                f"the target {name!r} holds neither numbers nor labels that are 0 or 1",
                field="target",
                next_step="Several targets must be numbers or labels. Predict it in its own run.",
            )
        numbers[name] = kept
    if labels and others:
        if any(detect_task(numbers[name]) == "classification" for name in others):
            others = [name for name in others if detect_task(numbers[name]) == "classification"]
        raise DataError(
            f"{labels[0]!r} is a label that is 0 or 1, but {others[0]!r} is a number",
            field="target",
            next_step="Predict labels in one run and numbers in another.",
        )
    return table.assign(**numbers), bool(labels), int((~known).sum())


def _is_label(values: pd.Series) -> bool:
    if values.dtype.kind not in "iufb":
        return False
    return set(np.unique(values.to_numpy(dtype=np.float64))) == {0.0, 1.0}


def measures_of(
    names: Sequence[str],
    *,
    are_labels: bool,
    metric: str | None,
    measure: Callable[[str], tuple[Score, Scale]],
) -> dict[str, tuple[Score, Scale]]:
    """Return the scores of several targets: the mean first, then those of each.

    Args:
        names: The targets.
        are_labels: Whether they are labels.
        metric: The optimised metric of numbers, or None for the default.
        measure: Returns the score of a single number and its scale, by the name of the metric.
    """
    if are_labels:
        measures: dict[str, tuple[Score, Scale]] = {
            "accuracy": (_accuracy, "share"),
            "exact_match": (_exact_match, "share"),
            "log_loss": (_log_loss, "error"),
        }
        shown: list[tuple[str, Score, Scale]] = [
            ("accuracy", _accuracy, "share"),
            ("roc_auc", _roc_auc, "share"),
        ]
    else:
        usual = ["r2", "rmse", "mae"]
        kinds = usual if metric is None else [metric, *(kind for kind in usual if kind != metric)]
        shown = [(kind, *measure(kind)) for kind in kinds]
        first, score, scale = shown[0]
        measures = {first: (_mean_of(score), scale)}
    for place, name in enumerate(names):
        for kind, score, scale in shown:
            measures[f"{kind} of {name}"] = (_at(score, place), scale)
    return measures


def loss_of_several(predicted: np.ndarray, targets: np.ndarray, score: Score) -> float:
    """Return the mean loss of targets that are divided by their standard deviation.

    Args:
        predicted: (samples, targets) numbers.
        targets: (samples, targets) numbers.
        score: Returns the loss of one target.
    """
    scale = targets.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return _mean_of(score)(predicted / scale, targets / scale)


def _mean_of(score: Score) -> Score:
    def measure(
        predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
    ) -> float:
        places = range(targets.shape[1])
        return float(np.mean([_at(score, place)(predicted, targets, weights) for place in places]))

    return measure


def _at(score: Score, place: int) -> Score:
    def measure(
        predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
    ) -> float:
        return score(predicted[:, place : place + 1], targets[:, place], weights)

    return measure


def _as_columns(targets: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return targets.reshape(predicted.shape)


def _accuracy(
    predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> float:
    right = (predicted >= _SHARE) == (_as_columns(targets, predicted) >= _SHARE)
    return float(np.average(right.mean(axis=1), weights=weights))


def _exact_match(
    predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> float:
    right = (predicted >= _SHARE) == (_as_columns(targets, predicted) >= _SHARE)
    return float(np.average(right.all(axis=1), weights=weights))


def _log_loss(
    predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Return the mean log loss of all labels, with probabilities from 0.001 to 0.999."""
    bounded = np.clip(predicted, 1e-3, 1 - 1e-3)
    is_one = _as_columns(targets, predicted) >= _SHARE
    losses = -np.log(np.where(is_one, bounded, 1 - bounded))
    return float(np.average(losses.mean(axis=1), weights=weights))


def _roc_auc(
    predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> float:
    shares = np.column_stack([1 - predicted[:, 0], predicted[:, 0]])
    return macro_roc_auc(shares, (targets >= _SHARE).astype(int), weights)

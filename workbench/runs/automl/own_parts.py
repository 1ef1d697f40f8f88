"""Rows that the user keeps apart to validate or to test on.

They are read with the rows to learn from, so that all parts have the same columns and classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.encoders import SampleKind
from workbench.foundation.errors import ArgumentError, DataError
from workbench.foundation.formatting import format_count
from workbench.foundation.text_tables import absent_columns
from workbench.runs.automl.given_data import as_frame, samples_of, take_apart
from workbench.runs.automl.row_roles import RowRoles

if TYPE_CHECKING:
    import pandas as pd

LEARNING, VALIDATION, TEST = 0, 1, 2
_PURPOSES = {VALIDATION: "validate on", TEST: "test on"}
# With more rows in common, the rows to test on are meant to be of known groups.
_MOST_LOST = 0.5


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

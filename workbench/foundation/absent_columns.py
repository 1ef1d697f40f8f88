"""The refusal of a table that lacks columns that a trained model needs, for those that read one.

Finding which are absent is left to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.foundation.errors import DataError

_MAX_NAMED = 5


def absent_columns(absent: Sequence[str], needed: Sequence[str]) -> DataError:
    """Return the error that names the columns that a table lacks.

    The first five where there are more.

    Args:
        absent: The columns that it lacks, at least one.
        needed: All columns that the model needs.
    """
    *first, last = [repr(name) for name in absent[:_MAX_NAMED]]
    if len(absent) > _MAX_NAMED:
        first, last = [*first, last], f"{len(absent) - _MAX_NAMED} more"
    named = f"{', '.join(first)} and {last}" if first else last
    problem = "there is no column" if len(absent) == 1 else "there are no columns"
    return DataError(
        f"{problem} {named}; needed: {', '.join(needed)}",
        next_step="Give the columns that the model was trained with.",
    )

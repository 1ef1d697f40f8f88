"""The leaderboard of an automatic run as a table, from rows that were computed now or stored at its
end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of the leaderboard: validation scores come before test scores."""
    names = dict.fromkeys(name for row in rows for name in row)
    scores = [name for part in ("val_", "test_") for name in names if name.startswith(part)]
    return ["model", "trial", "weight", *scores, "fit_s", "with"]


def table_of(leaderboard: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table of a leaderboard.

    Args:
        leaderboard: Its `rows` and the order of its `columns`.
    """
    import pandas as pd

    table = pd.DataFrame(leaderboard["rows"])
    table["trial"] = table["trial"].astype("Int64")
    return table.reindex(columns=leaderboard["columns"])

"""The model that an automatic run chose, as views show it.

The leaderboard as text, and what can be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from workbench.foundation.formatting import format_duration, format_number, format_value
from workbench.store.history import History

_HEADS = {
    "fit_s": "training time",
    "predict_s": "time to predict 1,000 rows",
    "row_s": "time to predict one row",
}


PART_OF_FIGURE = {
    "confusion": "confusion",
    "prediction_errors": "errors",
    "column_importance": "importance",
    "partial_dependence": "partial_dependence",
}
"""The figures of a model, and the part of the analysis that each draws."""


class Leaderboard(NamedTuple):
    """The models that were compared, the best first, as formatted cells."""

    columns: tuple[str, ...]
    """Their heads."""
    rows: tuple[tuple[str, ...], ...]
    num_rows: int
    """Number of models, including those that are not shown."""


def prepare_leaderboard(result: Mapping[str, Any], max_rows: int) -> Leaderboard:
    """Return the leaderboard of a stored result. Columns without a value are omitted.

    Args:
        result: As `wb.AutoML.to_json` returns it.
        max_rows: Maximum number of rows.
    """
    board = result["leaderboard"]
    rows = board["rows"]
    columns: list[str] = [
        name for name in board["columns"] if any(row.get(name) is not None for row in rows)
    ]
    cells = tuple(tuple(_cell(name, row.get(name)) for name in columns) for row in rows[:max_rows])
    return Leaderboard(tuple(_HEADS.get(name, name) for name in columns), cells, len(rows))


def analysis_of(history: History) -> Mapping[str, Any]:
    """Return what the chosen model does on the test samples, or empty if nothing was stored."""
    analysis = (history.result or {}).get("analysis")
    if not isinstance(analysis, dict):
        return {}
    return analysis


def model_figures(history: History) -> tuple[str, ...]:
    """Return the names of the figures of the model that have data."""
    analysis = analysis_of(history)
    return tuple(name for name, part in PART_OF_FIGURE.items() if analysis.get(part))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in _HEADS:
        return format_duration(value)
    if isinstance(value, float):
        return format_number(value)
    return format_value(value)

"""The result of an automatic run as a front end shows it: the model, its scores, and the leaderboard."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.formatting import format_duration, format_number, format_value
from workbench.history import History

_MAX_ROWS = 30
_HEADS = {"fit_s": "training time"}


class ChosenModel(BaseModel):
    """The model that an automatic run chose and tested."""

    model_config = ConfigDict(frozen=True)

    model: str
    metric: str = Field(description="The most important score.")
    value: float | str | None = Field(description="That score on the held-out test part.")
    baseline: float | str | None = Field(description="That score of the simplest guess.")
    summary: tuple[str, ...] = Field(description="The result in a few sentences.")
    columns: tuple[str, ...] = Field(description="The heads of the leaderboard.")
    rows: tuple[tuple[str, ...], ...] = Field(description="Formatted cells, one per column.")


def chosen_model(history: History) -> ChosenModel | None:
    """Return the result of a run; None where it has none.

    Args:
        history: The run.
    """
    found: dict[str, Any] | None = history.result
    if found is None:
        return None
    test, board = found["test"], found["leaderboard"]
    metric = next(iter(test))
    rows = board["rows"]
    columns: list[str] = [name for name in board["columns"] if any(row.get(name) is not None for row in rows)]
    return ChosenModel(
        model=found["model"], metric=metric, value=test[metric], baseline=found["baseline"].get(metric),
        summary=tuple(found["summary"]), columns=tuple(_HEADS.get(name, name) for name in columns),
        rows=tuple(tuple(_cell(name, row.get(name)) for name in columns) for row in rows[:_MAX_ROWS]),
    )  # fmt: skip


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "fit_s":
        return format_duration(value)
    if isinstance(value, float):
        return format_number(value)
    return format_value(value)

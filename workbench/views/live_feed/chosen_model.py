"""The result of an automatic run as a front end shows it.

The model, its scores, and the leaderboard.

While the run is under way, the leaderboard lists the candidates so far.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.experiment.automl import is_automl
from workbench.foundation.formatting import format_duration, format_number
from workbench.runs.plots.prepare_model import model_figures, prepare_leaderboard
from workbench.store.history import History

_MAX_ROWS = 30


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
    figures: tuple[str, ...] = Field(default=(), description="Analysis figures of the model.")


def chosen_model(history: History) -> ChosenModel | None:
    """Return the result of a run, or None if it has none.

    Args:
        history: The run.
    """
    found: dict[str, Any] | None = history.result
    if found is None:
        return None
    test = found["test"]
    metric = next(iter(test))
    board = prepare_leaderboard(found, _MAX_ROWS)
    return ChosenModel(
        model=found["model"],
        metric=metric,
        value=test[metric],
        baseline=found["baseline"].get(metric),
        summary=tuple(found["summary"]),
        columns=board.columns,
        rows=board.rows,
        figures=model_figures(history),
    )


class Candidates(BaseModel):
    """The candidates of an automatic run, the best first."""

    model_config = ConfigDict(frozen=True)

    summary: str = Field(description="How many there are, by state.")
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = Field(description="Formatted cells, one per column.")


def candidates(history: History) -> Candidates | None:
    """Return the leaderboard, so far or at the end, or None for other runs.

    Args:
        history: The run.
    """
    if not history.trials or not is_automl(history.experiment):
        return None
    # Loaded for such runs only.
    from workbench.runs.automl.candidate_results import (
        describe_counts,
        ranked_candidates,
        score_labels,
    )
    from workbench.runs.automl.model_selection import describe

    found = ranked_candidates(history)
    scores = score_labels(found)
    rows = tuple(
        (
            each.family,
            each.state,
            *(format_number(each.values[name]) if name in each.values else "" for name in scores),
            f"{each.num_folds} of {each.of_folds}",
            format_duration(each.trained_s),
            describe(each.params, each.family),
        )
        for each in found[:_MAX_ROWS]
    )
    heads = (
        "model",
        "state",
        *(f"val_{label}" for label in scores.values()),
        "folds",
        "training time",
        "with",
    )
    return Candidates(summary=describe_counts(found), columns=heads, rows=rows)

"""The result of an automatic run as a front end shows it.

The model, its scores, and the leaderboard.

While the run is under way, the leaderboard lists the candidates so far.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.experiment.automl import is_automl
from workbench.foundation.formatting import format_duration, format_number
from workbench.runs.plots.prepare import model_figures, prepare_leaderboard
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
    result: dict[str, Any] | None = history.result
    if result is None:
        return None
    test = result["test"]
    metric = next(iter(test))
    board = prepare_leaderboard(result, _MAX_ROWS)
    return ChosenModel(
        model=result["model"],
        metric=metric,
        value=test[metric],
        baseline=result["baseline"].get(metric),
        summary=tuple(result["summary"]),
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

    candidates = ranked_candidates(history)
    scores = score_labels(candidates)
    rows = tuple(
        (
            candidate.family,
            candidate.state,
            *(_score(candidate.values.get(name)) for name in scores),
            f"{candidate.num_folds} of {candidate.of_folds}",
            format_duration(candidate.trained_s),
            describe(candidate.params, candidate.family),
        )
        for candidate in candidates[:_MAX_ROWS]
    )
    heads = (
        "model",
        "state",
        *(f"val_{label}" for label in scores.values()),
        "folds",
        "training time",
        "with",
    )
    return Candidates(summary=describe_counts(candidates), columns=heads, rows=rows)


def _score(value: float | None) -> str:
    return "" if value is None else format_number(value)

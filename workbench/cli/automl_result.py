"""An AutoML run as text: its result, and a table of candidates in place of one of trials.

A candidate is trained on several folds, each of them a trial of its own. Numpy is loaded for such runs
only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.formatting import format_duration, format_number

if TYPE_CHECKING:
    from rich.table import Table

    from workbench.history import History


def result_lines(history: History) -> list[str]:
    """Return the result of a run in a few lines; none before it has one."""
    lines = (history.result or {}).get("summary")
    return [str(line) for line in lines] if isinstance(lines, list) else []


def describe_candidates(history: History) -> str:
    """Return the number of candidates by state, in words."""
    from workbench.automl_pipeline.candidate_results import candidates_of, describe_counts

    return describe_counts(candidates_of(history))


def candidates_table(history: History, most: int) -> tuple[Table, int]:
    """Return a table of the candidates, best first, and the number of those left out.

    Args:
        history: The run.
        most: Maximum number of rows.
    """
    from rich.text import Text

    from workbench.automl_pipeline.candidate_results import ranked_candidates, score_labels
    from workbench.automl_pipeline.model_selection import describe
    from workbench.cli.output import colour_of, make_table

    found = ranked_candidates(history)
    scores = score_labels(found)
    table = make_table("candidate", "state", "model", *scores.values(), "folds", "training time", "params")
    colours = {"complete": "complete", "failed": "failed", "under way": "running"}
    for each in found[:most]:
        table.add_row(
            str(each.number),
            Text(each.state, style=colour_of(colours.get(each.state, "stopped"))),
            each.family,
            *(format_number(each.values[name]) if name in each.values else "" for name in scores),
            f"{each.num_folds} of {each.of_folds}",
            format_duration(each.trained_s),
            Text(describe(each.params, each.family)),
        )
    return table, max(0, len(found) - most)

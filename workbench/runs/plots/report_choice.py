"""The part of the report that names the trial which was chosen by hand."""

from __future__ import annotations

from workbench.runs.plots.report_tables import pairs, text
from workbench.runs.plots.run_data import RunData
from workbench.store.history.history import chosen_by_hand, describe_choice


def choice(run: RunData) -> list[str]:
    """Return which trial was chosen by hand, with what it gives up and its configuration."""
    chosen = chosen_by_hand(run.history)
    if chosen is None:
        return []
    return [
        f"<h2>Chosen by hand: trial {chosen.number}</h2>",
        f"<p>{text(describe_choice(run.history) or '')}</p>{pairs(chosen.params)}",
    ]

"""The report of events that no store holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workbench.experiment import Experiment
from workbench.foundation.events import Event
from workbench.runs.plots.report import NotesOfEvents, report_page
from workbench.runs.plots.run_data import RunData


def report_html(
    experiment: Experiment,
    events: Iterable[Event],
    *,
    chosen_trial: int | None = None,
    **options: Any,
) -> str:
    """Write a run as one self-contained HTML page.

    Args:
        experiment: What the run tunes.
        events: Everything that happened in the run, oldest first.
        chosen_trial: The trial that was chosen by hand.
        **options: As of `report_page`.

    Returns:
        An HTML document without references to anything outside itself.
    """
    notes = NotesOfEvents()
    run = RunData(experiment)
    run.history.chosen_trial = chosen_trial
    for event in events:
        notes.take(event)
        run.add(event)
    return report_page(run, notes=notes.texts, **options)

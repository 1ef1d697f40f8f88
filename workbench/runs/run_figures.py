"""Figures, the report and the trace of a run, made from what the store holds."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.experiment.changes import SEARCH
from workbench.experiment.experiment import check_installed
from workbench.foundation.errors import ArgumentError, ExperimentError, RunError, UnknownNameError
from workbench.foundation.events import Event, SettingsChanged, TrialEnded, TrialReported
from workbench.foundation.files import write_atomically
from workbench.foundation.garbage import no_garbage_search
from workbench.foundation.registry import Registry
from workbench.runs.descriptions import find_trial, next_steps
from workbench.runs.space_suggestions import how_to_freeze, how_to_widen
from workbench.store.history.trace import trace_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from workbench.runs.plots.run_data import RunData
    from workbench.runs.stored_run import StoredRun


def draw(run: StoredRun, name: str, options: Mapping[str, Any]) -> Figure:
    """Draw one of the figures of the plots.

    Args:
        run: What it shows.
        name: Which figure.
        options: The options of that figure, and for all figures `trials`, the numbers to show, and
            `colour`, the parameter to colour them by.

    Raises:
        UnknownNameError: If there is no such figure, or no such parameter.
    """
    from workbench.runs.plots.colouring import COLOURED, colour_by, layout_of
    from workbench.runs.plots.figures import FIGURES, StillFigure

    if name not in FIGURES:
        close = difflib.get_close_matches(name, FIGURES, n=1)
        raise UnknownNameError(
            f"there is no figure {name!r}",
            field="figure",
            allowed=FIGURES,
            next_step=f"Did you mean {close[0]}?" if close else None,
        )
    options = dict(options)
    given = options.pop("trials", None)
    colour = options.pop("colour", None)
    trials = None if given is None else frozenset(given)
    if colour and name not in COLOURED:
        raise UnknownNameError(f"{name} has no colours to choose", field="colour", allowed=COLOURED)
    if name == "parallel":  # where the others stay, faint
        data = data_of(run)
        if colour:
            layout_of(data, colour)
        return StillFigure(FIGURES[name](data, trials=trials, colour=colour, **options))
    if name == "importance":
        options = {"importance": importance_of(run, trials), **options}
    data = data_of(run, trials)
    figure = FIGURES[name](data, **options)
    if colour:
        colour_by(figure, data, colour)
    return StillFigure(figure)


@no_garbage_search()
def data_of(
    run: StoredRun,
    trials: Collection[int] | None = None,
    *,
    listener: Callable[[Event], object] | None = None,
) -> RunData:
    """Return the data of a run for its plots.

    Args:
        run: The run.
        trials: Only these trials, or None for all.
        listener: Receives each event of the whole run that is no report of a trial.
    """
    from workbench.runs.plots.run_data import RunData, read_chunks

    data = RunData(run.experiment)
    data.history.chosen_trial = run.row.chosen_trial
    if trials is None:
        for chunk in read_chunks(run.store, run.run_id):
            for _, event in data.add_read(chunk.rows):
                if listener is not None:
                    listener(event)
        return data
    for rows in run.store.event_rows(run.run_id):
        data.add_rows([row for row in rows if row[2] is None or row[2] in trials])
    return data


_DECIDERS = Registry("decision", {"versions": "workbench.runs.trial_decisions:describe_decisions"})
"""What decides about a run. It reads runs as their users do, and their reports come from here."""


@no_garbage_search()
def write_report(run: StoredRun, path: Path) -> Path:
    """Write the report of a run atomically.

    Args:
        run: The run.
        path: The file.

    Raises:
        ArgumentError: If its folder does not exist. Only the run's own folder is created.
        RunError: If it cannot be written there.
    """
    from workbench.runs.plots.report import NotesOfEvents, report_page
    from workbench.runs.result import compare_with_default

    check_folder_of(path, run.folder)
    # The reports of a long run are read in columns, once.
    notes = NotesOfEvents()
    events: list[Event] = []

    def take(event: Event) -> None:
        events.append(event)
        notes.take(event)

    data = data_of(run, listener=take)
    history, state = data.history, run.row.state
    baseline = None
    if history.best() is not None and len(history.objectives) == 1:
        baseline = compare_with_default(history, run.run_id, state)["words"]
    importance = importance_of(run, events=events)
    energy = run.energy
    decisions: list[str] = []
    if run.experiment.search.code_versions:
        decisions = _DECIDERS.load("versions")(run.store, run.run_id)
    text = report_page(
        data,
        notes=[*decisions, *notes.texts],
        importance=importance or None,
        run_id=run.run_id,
        how_to_freeze=how_to_freeze(run.run_id, history, importance),
        how_to_widen=how_to_widen(run.run_id, history),
        next_steps=next_steps(run.run_id, state, history),
        baseline=baseline,
        energy_wh=energy.total_wh,
        energy_of_trials=energy.watt_hours,
        read=run.read_attachment,
    )
    return _write(run, path, text)


def write_trace(run: StoredRun, path: Path, trial: int | None) -> Path:
    """Write the trace of a run for Perfetto.

    Args:
        run: The run.
        path: The file.
        trial: Only this trial, or None for all.

    Raises:
        ArgumentError: If there is no such trial, or the folder does not exist. Only the run's own
            folder is created.
        RunError: If it cannot be written there.
    """
    check_folder_of(path, run.folder)
    if trial is not None:
        find_trial(run.history, trial, field="trial")
    entries = trace_of(run.events(), name=run.run_id, trial=trial)
    lines = ",\n".join(
        json.dumps(entry, separators=(",", ":"), allow_nan=False) for entry in entries
    )
    return _write(run, path, '{"displayTimeUnit":"ms","traceEvents":[\n' + lines + "\n]}\n")


def _write(run: StoredRun, path: Path, text: str) -> Path:
    """Write a file atomically. The run's own folder is made for it."""
    try:
        if path.parent == run.folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror}", next_step="Name another file."
        ) from error
    return path


def check_folder_of(path: Path, *usual: Path) -> None:
    """Check that the folder of a new file exists, before time is spent on its content.

    Args:
        path: The file.
        usual: Folders that are created when they are needed.

    Raises:
        ArgumentError: If it does not exist.
    """
    folder = path.absolute().parent
    if folder not in usual and not folder.is_dir():
        raise ArgumentError(
            f"the folder {folder} does not exist",
            field="to",
            allowed="a file in a folder that exists",
            next_step="Create the folder first, or name another file.",
        )


@no_garbage_search()
def importance_of(
    run: StoredRun,
    trials: Collection[int] | None = None,
    *,
    events: Sequence[Event] | None = None,
) -> dict[str, tuple[float, float, float]]:
    """Return the importance of a run's parameters, as `Study.importance`.

    Args:
        run: The run.
        trials: Only use the configurations of these trials, or None for all.
        events: The events of the run that are not reports, oldest first, if they are known.

    Returns:
        The importance. Empty without its sampler.
    """
    from workbench.search.study import ENDS, Study

    try:
        check_installed(run.experiment)
    except (
        ExperimentError
    ):  # the report says what is in the store, without a sampler to rebuild the study
        return {}
    if events is None:
        events = [stored.event for stored in run.store.events(run.run_id, types=ENDS)]
    if any(map(_needs_reports, events)):
        return Study.rebuild(run.experiment, run.events(), reads_only=True).importance(trials)

    def read(numbers: Collection[int]) -> Iterator[TrialReported]:
        """Read the sample of trials whose reports are compared."""
        for stored in run.store.events(run.run_id, trial=numbers, types=["trial_reported"]):
            if isinstance(stored.event, TrialReported):
                yield stored.event

    study = Study.rebuild(run.experiment, events, reads_only=True)
    return study.importance(trials, read=read)


def _needs_reports(event: Event) -> bool:
    """Return whether an event means something else without the reports before it.

    When the search space changes, parameters without an effect until then are found. A trial
    without values has those of its reports.
    """
    if isinstance(event, SettingsChanged):
        return SEARCH in event.settings
    return isinstance(event, TrialEnded) and event.state == "complete" and not event.values

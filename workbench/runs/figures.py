"""Figures and the report of a run, drawn by the plots from what the store holds."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ArgumentError, ExperimentError, RunError, UnknownNameError
from workbench.events import Event
from workbench.experiment.stored import check_installed

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from workbench.plots.run_data import RunData
    from workbench.runs.view import RunView


def draw(run: RunView, name: str, options: Mapping[str, Any]) -> Figure:
    """Draw one of the figures of the plots.

    Args:
        run: What it shows.
        name: Which figure.
        options: What that figure takes.

    Raises:
        UnknownNameError: If there is no such figure.
    """
    from workbench.plots.figures import FIGURES

    if name not in FIGURES:
        close = difflib.get_close_matches(name, FIGURES, n=1)
        raise UnknownNameError(
            f"there is no figure {name!r}", field="figure", allowed=FIGURES,
            next_step=f"Did you mean {close[0]}?" if close else None,
        )  # fmt: skip
    if name == "importance":
        options = {"importance": _importance(run, run.events()), **options}
    return FIGURES[name](data_of(run), **options)


def data_of(run: RunView) -> RunData:
    """Return what a run has come to, as the plots take it."""
    from workbench.plots.run_data import RunData

    data = RunData(run.experiment)
    for rows in run.store.event_rows(run.run_id):
        data.add_rows(rows)
    return data


def write_report(run: RunView, path: Path) -> Path:
    """Write the report of a run; a reader never sees half of one.

    Args:
        run: What it is about.
        path: The file.

    Raises:
        ArgumentError: If its folder does not exist; only the run's own folder is created.
        RunError: If it cannot be written there.
    """
    from workbench.plots.report import report_html

    check_folder_of(path, run.folder)
    events = run.events()
    importance = _importance(run, events)
    text = report_html(
        run.experiment, events, importance=importance or None, run_id=run.run_id,
        energy_wh=run.energy.total_wh,
    )  # fmt: skip
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.parent == run.folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}", next_step="Name another file.") from error
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
            f"the folder {folder} does not exist", field="to", allowed="a file in a folder that exists",
            next_step="Create the folder first, or name another file.",
        )  # fmt: skip


def _importance(run: RunView, events: Sequence[Event]) -> dict[str, tuple[float, float, float]]:
    from workbench.study import Study

    try:
        check_installed(run.experiment)
    except ExperimentError:  # the report says what is in the store, without a sampler to rebuild the study
        return {}
    return Study.rebuild(run.experiment, events).importance()

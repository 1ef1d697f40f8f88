"""Notes on what a run will try, such as limits without effect. None of them prevents the start.

`check`, the form's dry run and the run itself give the same notes. A run also adds the data's notes
on its table. The table is read in a thread, so that no trial waits for it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.remote.kept_code import describe_workdir
from workbench.cluster.remote.version_trees import keep_versions
from workbench.data import notes_of
from workbench.experiment import Component, Experiment
from workbench.experiment.metric_declarations import computed_goal
from workbench.experiment.space import Domain, Int
from workbench.experiment.trainings import (
    describe_same_trials,
    describe_short_budget,
    describe_turns,
    longest_training,
)
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.events import Noted
from workbench.foundation.formatting import format_count
from workbench.hardware.resources import cluster_inventory

if TYPE_CHECKING:  # `check` needs neither a database nor Optuna
    from workbench.sweeps.ledger import Ledger

logger = logging.getLogger(__name__)
# Reading a larger file takes long and competes with the workers that read it.
_MAX_READ_BYTES = 64 * 2**20
_END_PATIENCE_S = 5.0


def notes_of_limits(experiment: Experiment, num_gpus: float | None) -> list[str]:
    """Return notes on limits and objectives that have no effect or another one than meant.

    A run records the same notes.

    Args:
        experiment: The experiment.
        num_gpus: The number of GPUs, >= 0, or None if it is not known yet.
    """
    of_trials = (describe_same_trials(experiment), describe_short_budget(experiment))
    notes = [f"budget.trials: {note}" for note in of_trials if note is not None]
    with contextlib.suppress(ExperimentError):  # the checks before the run describe it
        if (unequal := describe_turns(experiment)) is not None:
            notes.append(f"early_stop.turns: {unequal}")
    notes += _notes_of_goals(experiment)
    resources = experiment.resources
    if resources.per_gpu != 1 and num_gpus == 0 and not resources.autoscaling:
        notes.append(
            "resources.per_gpu: it has no effect, because there is no GPU here that trials could"
            " share. Set resources.concurrency instead"
        )
    return notes


def notes_of_run(experiment: Experiment, num_gpus: float | None) -> list[str]:
    """Return all notes for before a run starts: those of `notes_of_limits` and some more."""
    return [
        *notes_of_limits(experiment, num_gpus),
        *_notes_of_few_whole_numbers(experiment.search.root),
        *_notes_of_grace(experiment),
        *_notes_of_code(experiment),
    ]


def _notes_of_code(experiment: Experiment) -> list[str]:
    """Return notes on the versions of the code and on the working folders of trials."""
    if experiment.search.code_versions:
        versions = keep_versions(experiment, Origin.here())
        return [
            f"code: {version.event.name} has {format_count(version.code.num_files, 'file')}"
            f" ({version.event.describe_difference()})"
            for version in versions
        ]
    return [] if experiment.links is None else describe_workdir(experiment)


def _notes_of_goals(experiment: Experiment) -> Iterator[str]:
    """Yield a note for each objective that looks for the worst value of a metric."""
    for index, objective in enumerate(experiment.objectives):
        declared = computed_goal(experiment, objective.metric)
        if declared is not None and declared != objective.goal:
            better, wanted = (
                ("higher", "lowest") if declared == "maximize" else ("lower", "highest")
            )
            yield (
                f"objectives.{index}.goal: {objective.metric} is better the {better} it is, and"
                f" this run looks for the {wanted}. Write {declared} unless that is meant."
            )


def _notes_of_few_whole_numbers(domains: Mapping[str, Domain]) -> Iterator[str]:
    """Yield a note for each range such as 0 to 1, which may be meant for real numbers."""
    for name, domain in domains.items():
        is_meant = domain.model_fields_set & {"step", "type"}
        if isinstance(domain, Int) and not is_meant and domain.high - domain.low == 1:
            low, high = domain.low, domain.high
            yield (
                f"search.{name} tries only the whole numbers {low} and {high}. If real numbers are"
                f" meant, write {low}.0 and {high}.0."
            )


def _notes_of_grace(experiment: Experiment) -> Iterator[str]:
    early_stop, epochs = experiment.early_stop, longest_training(experiment)
    reads_grace = early_stop.pruner != "none" and not early_stop.kind.compares_repeats
    if reads_grace and epochs is not None and early_stop.grace >= epochs:
        most = " at most" if "epochs" in experiment.search.root else ""
        yield (
            f"early_stop never stops a trial: grace is {format_count(early_stop.grace, 'epoch')}"
            f" and trials have {epochs}{most}."
        )


class DataNotes:
    """Records notes on the table of a run that has no trials yet.

    Larger files are left to `check`.
    """

    def __init__(self, ledger: Ledger, *, started_in: Path | None = None) -> None:
        """Prepare to read the table.

        Args:
            ledger: Gets the notes, in the thread that calls `tick` and `end`.
            started_in: Where the run was started and relative paths begin, or None for here.
        """
        self._ledger = ledger
        self._started_in = started_in or Path()
        self._found: Future[tuple[str, ...]] | None = None

    def begin(self) -> None:
        """Record notes on the limits of the run, and start to read the table."""
        experiment = self._ledger.history.experiment
        if self._ledger.history.trials:
            return
        # For auto, `gpu_sharing` records what it measured.
        shares = experiment.resources.per_gpu not in (1, "auto")
        for note in notes_of_limits(experiment, cluster_inventory().num_gpus if shares else None):
            self._ledger.record(Noted(level="warning", message=note))
        data = experiment.data
        if data is None or data.is_reference:
            return
        reader = ThreadPoolExecutor(1, thread_name_prefix="data notes")
        self._found = reader.submit(_notes_of, data, self._started_in)
        reader.shutdown(wait=False)

    def tick(self) -> None:
        """Record the notes if they are known by now, without waiting."""
        if self._found is None or not self._found.done():
            return
        notes, self._found = self._found.result(), None
        if notes:
            self._ledger.record(*(Noted(level="info", message=note) for note in notes))

    def end(self) -> None:
        """Record the notes of a run that ends, and wait a few seconds for them."""
        if self._found is not None:
            wait([self._found], timeout=_END_PATIENCE_S)
            self.tick()


def _notes_of(data: Component, here: Path) -> tuple[str, ...]:
    path = data.options.get("path")
    try:
        if isinstance(path, str):
            file = here / Path(path).expanduser()
            if file.stat().st_size > _MAX_READ_BYTES:
                return ()
        return notes_of(data, here=here)
    except (OSError, WorkbenchError) as error:  # the trials report this
        logger.warning("the data was not summarised: %s", error)
        return ()

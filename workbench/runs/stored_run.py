"""A run as its store holds it: state, trials, best trial, events, and metered energy.

Nothing here changes a run. `Run` is what users see of it.
"""

from __future__ import annotations

import math
import threading
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.experiment import Experiment
from workbench.experiment.actions import suggest
from workbench.foundation.errors import RunError, RunNotFoundError
from workbench.foundation.events import (
    FINISHED_RUN_STATES,
    AdviceGiven,
    AttachmentSaved,
    Event,
    Noted,
    RunState,
    from_json,
)
from workbench.foundation.events.runs import ends_waiting, read_waiting_note
from workbench.foundation.garbage import no_garbage_search
from workbench.runs.descriptions import attachment_file
from workbench.runs.event_lines import MEASUREMENT_TYPES, advice_line
from workbench.runs.progress import note_alive
from workbench.runs.replay_comparison import Comparison, compare
from workbench.store.database import RunRow, Store
from workbench.store.database.samples import read_block
from workbench.store.history import History, Trial, cost_of, verdicts_of
from workbench.store.history.history import chosen_by_hand, chosen_or_best, describe_choice
from workbench.store.history.trial_columns import CONTINUES, TrialColumn, columns_of

if TYPE_CHECKING:
    import pandas as pd
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.foundation.formatting import format_number
from workbench.hardware.resources.attribution import JOULES_PER_WH, TrialEnergy, total_energy
from workbench.store.database.samples import read_energy


@dataclass(frozen=True)
class RunEnergy:
    """The energy that the trials of a run have used: of GPUs, and of CPUs if these are metered.

    Attributes:
        trials: The energy of each metered trial, by its number.
    """

    trials: Mapping[int, TrialEnergy]

    @property
    def total_wh(self) -> float | None:
        """The total in watt-hours, or None if nothing was metered."""
        known = [energy.total_wh for energy in self.trials.values() if energy.total_wh is not None]
        return sum(known) if known else None

    def of_trial(self, number: int) -> float | None:
        """Return the energy of one trial in watt-hours, or None if it was not metered."""
        energy = self.trials.get(number)
        return None if energy is None else energy.total_wh

    @property
    def watt_hours(self) -> dict[int, float | None]:
        """The energy of each metered trial in watt-hours, by its number."""
        return {number: used.total_wh for number, used in self.trials.items()}

    def describe(self) -> str | None:
        """Return the total as one line, or None if nothing was metered."""
        total_wh = self.total_wh
        if total_wh is None:
            return None
        together = total_energy(self.trials.values())
        parts = [
            name
            for name, used_j in (("GPUs", together.gpu_j), ("processors", together.cpu_j))
            if used_j
        ]
        return (
            f"energy: {format_number(total_wh)} Wh ({' and '.join(parts) or 'nothing'}, as metered)"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the energy as plain values."""
        together = total_energy(self.trials.values())
        return {
            "total_wh": self.total_wh,
            "gpu_wh": _in_wh(together.gpu_j),
            "cpu_wh": _in_wh(together.cpu_j),
            "trials_wh": {str(number): energy.total_wh for number, energy in self.trials.items()},
        }


def energy_of(store: Store, run_id: str) -> RunEnergy:
    """Read the energy that the trials of a run have used.

    Args:
        store: The store of the run.
        run_id: The run.
    """
    rows = read_energy(store, run_id)
    return RunEnergy({row.trial: TrialEnergy(row.gpu_j, row.cpu_j) for row in rows})


def _in_wh(used_j: float | None) -> float | None:
    return None if used_j is None else used_j / JOULES_PER_WH


LEAVING_PATIENCE_S = 60.0
"""How long a driver that is about to end may take to release its run."""


class StoredRun:
    """A run as its store holds it. Every property reads the store again.

    Attributes:
        store: The store of the run.
        run_id: Its full id.
        shown_in: Where a cell of a notebook shows the run while it waits.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        """Read an existing run.

        Args:
            store: The store of the run.
            run_id: Its full id.
        """
        self.store = store
        self.run_id = run_id
        self._history: History | None = None
        self._cursor = 0
        self._lock = threading.Lock()
        self.shown_in: Any = None

    @property
    def row(self) -> RunRow:
        """The row of the run in the store."""
        return self.store.run(self.run_id)

    @property
    def name(self) -> str:
        """Its name: the experiment's, unless it was renamed."""
        return self.row.name

    @property
    def state(self) -> RunState:
        """waiting, running, stopping, complete, stopped, failed, or lost (its driver died)."""
        return self.row.state

    @property
    def finished(self) -> bool:
        """Whether the run has ended and was not lost."""
        return self.state in FINISHED_RUN_STATES

    @property
    def is_under_way(self) -> bool:
        """Whether a driver owns it and is not about to end."""
        return self.driven and self.state not in ("stopping", *FINISHED_RUN_STATES)

    @property
    def driven(self) -> bool:
        """Whether a driver owns it, as far as this machine can tell."""
        return self.store.is_driven(self.run_id)

    def await_leaving(self) -> None:
        """Wait until a driver that is about to end has released the run.

        Raises:
            RunError: If it has not within a minute.
        """
        until_s = time.monotonic() + LEAVING_PATIENCE_S
        while self.driven:
            if time.monotonic() > until_s:
                raise RunError(
                    f"the driver of run {self.run_id} is about to end, but has not within "
                    f"{LEAVING_PATIENCE_S:g} s",
                    next_step=suggest("resume", self.run_id, lead="Try again in a moment"),
                )
            time.sleep(0.1)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment of the run."""
        return self.store.experiment(self.run_id)

    @property
    def is_advice(self) -> bool:
        """Whether the run is advice: it only measures and recommends."""
        return bool(self.store.events(self.run_id, types=["advice_requested"], limit=1))

    @property
    def advice(self) -> dict[str, Any] | None:
        """The recommendation of the advisor as plain values, or None."""
        given = [item.event for item in self.store.events(self.run_id, types=["advice_given"])]
        return next(
            (event.advice for event in reversed(given) if isinstance(event, AdviceGiven)), None
        )

    @property
    def waits_for(self) -> str | None:
        """Why it is waiting to train, as its driver last reported, or None if it is not waiting."""
        if self.state not in ("running", "stopping"):
            return None
        seq = 0
        reason_found = None
        for stored in self.store.events(self.run_id, types=["noted"]):
            if not isinstance(stored.event, Noted):
                continue
            if (reason := read_waiting_note(stored.event.message)) is not None:
                seq = stored.seq
                reason_found = reason
            elif ends_waiting(stored.event.message):
                reason_found = None
        over = ["driver_started", "trial_started", "run_state_changed"]
        if reason_found is None or self.store.events(self.run_id, after=seq, types=over, limit=1):
            return None
        return reason_found

    @property
    def preparation(self) -> str | None:
        """What is measured before its first trial, as last noted by its driver.

        None if nothing is.
        """
        if self.state != "running" or self.store.events(
            self.run_id, types=["trial_proposed"], limit=1
        ):
            return None
        lines = [
            advice_line(stored.event)
            for stored in self.store.events(self.run_id, types=["noted", *MEASUREMENT_TYPES])
        ]
        return next(
            (line for line in reversed(lines) if line and read_waiting_note(line) is None), None
        )

    @property
    def folder(self) -> Path:
        """The local folder of its files. Artifacts at a URL are not in it."""
        return self.store.folder(self.run_id)

    def read_attachment(self, saved: AttachmentSaved) -> bytes:
        """Return the content of a picture, a table or a text that a trial reported.

        Args:
            saved: One of `history.trials[number].attachments`.

        Raises:
            ArtifactsError: If its file is not there.
        """
        return self.store.artifacts_of(self.run_id).read(attachment_file(saved.trial, saved.file))

    @property
    def history(self) -> History:
        """Its trials and their states so far."""
        with self._lock, no_garbage_search():
            if self._history is None:
                self._history = History(self.experiment)
            row = self.row
            self._history.chosen_trial = row.chosen_trial
            note_alive(row, self._history)
            self._apply_blocks(self._history)
            for chunk in self.store.event_rows(self.run_id, after=self._cursor):
                for row in chunk:
                    self._history.apply(from_json(row[4]))
                    self._cursor = row[0]
            return self._history

    def _apply_blocks(self, history: History) -> None:
        """Apply what a long run has as blocks, ahead of the events that no block covers."""
        while (block := read_block(self.store, self.run_id, self._cursor)) is not None:
            from workbench.store.history.blocks import decode_block  # short runs need no numpy

            read = decode_block(block.payload)
            if read is None:
                return
            for step in read.steps():
                if isinstance(step, tuple):
                    history.take_reports(*step)
                else:
                    history.apply(step)
            self._cursor = block.last_seq

    @property
    def best(self) -> Trial | None:
        """The trial that was chosen by hand, else the best complete one, or None.

        With several objectives, the best is that by the first of them.
        """
        return chosen_or_best(self.history)

    @property
    def comparison(self) -> Comparison | None:
        """The differences from the run that it replays, or None if it is not a replay."""
        history = self.history
        if history.replay_of is None:
            return None
        try:
            original = StoredRun(self.store, history.replay_of).history
        except RunNotFoundError:
            return None
        return compare(original, history)

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial: number, state, parameters, results and progress."""
        history = self.history
        history.energy_of_trials = self.energy.watt_hours
        return to_table(history)

    @property
    def energy(self) -> RunEnergy:
        """The energy that its trials have used, in watt-hours, as far as it was metered."""
        return energy_of(self.store, self.run_id)

    def events(self, after: int = 0) -> list[Event]:
        """Return the events so far, oldest first.

        Args:
            after: Skip this many of the oldest events.
        """
        return [stored.event for stored in self.store.events(self.run_id, after=after)]

    def to_json(self) -> dict[str, Any]:
        """Return what `workbench show --json` prints, as plain values."""
        row = self.row
        history = self.history
        document: dict[str, Any] = {
            "run_id": row.run_id,
            "name": row.name,
            "state": row.state,
            "tags": list(row.tags),
            "notes": row.notes,
            "pinned": row.pinned,
            "archived": row.archived,
            "experiment_hash": row.experiment_hash,
            "created_unix_s": row.created_unix_s,
            "waits_for": self.waits_for,
            "driver": {"pid": row.owner and row.owner.pid, "host": row.owner and row.owner.host},
        }
        document |= {key: value for key, value in history.to_json().items() if key not in document}
        chosen = chosen_by_hand(history)
        document["chosen"] = chosen and {
            "trial": chosen.number,
            "message": describe_choice(history),
        }
        if history.replay_of is not None:
            comparison = self.comparison
            document["replay"] = {"of_run_id": history.replay_of}
            if comparison:
                document["replay"] |= comparison.to_json()
        if len(self.experiment.objectives) > 1:
            document["front"] = [trial.number for trial in history.front()]
        if (advice := self.advice) is not None:
            document["advice"] = advice
        document["verdicts"] = [verdict.describe() for verdict in verdicts_of(history, self.run_id)]
        document["energy"] = self.energy.to_json()
        document["cost"] = cost_of(self.history, self.history.now_unix_s())
        return document


def to_table(history: History) -> pd.DataFrame:
    """Return the trials of a run as a table with one row a trial, by number.

    Args:
        history: The run, with the energy of its trials.

    Returns:
        The columns that `columns_of` declares. The trial that one continues only where any does.
    """
    import pandas as pd

    trials = list(history.trials.values())
    columns = [
        column
        for column in columns_of(history)
        if column.name != CONTINUES.name or any(trial.continued is not None for trial in trials)
    ]
    cells = {
        column.name: [_cell(column, column.value(history, trial)) for trial in trials]
        for column in columns
    }
    return pd.DataFrame(cells, columns=pd.Index([column.name for column in columns]))


def _cell(column: TrialColumn, value: Any) -> Any:
    return math.nan if value is None and column.is_number else value

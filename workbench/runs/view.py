"""A read-only view of a run in its store: state, trials, best trial, events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from workbench.cluster.workers.waiting_note import ends_waiting, read_waiting_note
from workbench.experiment import Experiment
from workbench.experiment.actions import suggest
from workbench.foundation.errors import (
    RunError,
    RunNotFoundError,
    StoreUnavailableError,
    Suggestion,
)
from workbench.foundation.events import (
    FINISHED_RUN_STATES,
    AdviceGiven,
    AttachmentSaved,
    Event,
    Noted,
    RunState,
    from_json,
)
from workbench.runs.descriptions import attachment_file, has_nothing_left, how_to_extend
from workbench.runs.energy import RunEnergy, energy_of
from workbench.runs.event_lines import MEASUREMENT_TYPES, advice_line
from workbench.runs.next_driver import AWAITED, NextDriver
from workbench.runs.notebook_output import bundle, snapshot
from workbench.runs.progress import note_alive
from workbench.runs.replay_comparison import Comparison, compare
from workbench.runs.waiting_view import describe_silence, is_shown_in_this_cell, waiting_for
from workbench.store.database import RunRow, Store
from workbench.store.database.blocks import read_block
from workbench.store.history import History, Trial, cost_of, verdicts_of
from workbench.store.history.failures import began_nothing
from workbench.store.history.history import chosen_by_hand, chosen_or_best, describe_choice

if TYPE_CHECKING:
    import pandas as pd

POLL_S = 0.2
LEAVING_PATIENCE_S = 60.0
STORE_PATIENCE_S = 60.0


class RunView:
    """A read-only view of a run in a store. Every property reads the store again."""

    def __init__(self, store: Store, run_id: str) -> None:
        """View an existing run; usually `sweep` or `attach` create the view.

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
        """Where a cell of a notebook shows the run while it waits."""

    @property
    def row(self) -> RunRow:
        """The row of the run in the store."""
        return self.store.run(self.run_id)

    @property
    def name(self) -> str:
        """Its name: that of the experiment, unless it was renamed."""
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
        """Wait until a driver that is stopping its trials or reporting the end has released the
        run.

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
        """The recommendation of the advisor as plain values; None without one."""
        given = [item.event for item in self.store.events(self.run_id, types=["advice_given"])]
        return next(
            (event.advice for event in reversed(given) if isinstance(event, AdviceGiven)), None
        )

    @property
    def waits_for(self) -> str | None:
        """What prevents it from training, as last reported by its driver; None if nothing does."""
        if self.state not in ("running", "stopping"):
            return None
        seq, reason_found = 0, None
        for stored in self.store.events(self.run_id, types=["noted"]):
            if not isinstance(stored.event, Noted):
                continue
            if (reason := read_waiting_note(stored.event.message)) is not None:
                seq, reason_found = stored.seq, reason
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
        """The local folder of its files; artifacts at a URL are not in it."""
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
        with self._lock:
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
        """The trial that was chosen by hand, else the best complete one; None without any.

        With several objectives, the best is that by the first of them.
        """
        return chosen_or_best(self.history)

    @property
    def comparison(self) -> Comparison | None:
        """The differences from the run that it replays; None without an original."""
        history = self.history
        if history.replay_of is None:
            return None
        try:
            original = RunView(self.store, history.replay_of).history
        except RunNotFoundError:
            return None
        return compare(original, history)

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial: number, state, parameters, results and progress.

        A metric or parameter whose name is ambiguous becomes the column `values.NAME` or
        `params.NAME`. A metric is the result of its trial, or its last report while it has none;
        `duration_s` is for how long the trial ran, over all attempts. The panel, the terminal and
        the report show the same columns.
        """
        from workbench.runs.trial_table import to_table

        history = self.history
        history.energy_of_trials = self.energy.watt_hours
        return to_table(history)

    @property
    def energy(self) -> RunEnergy:
        """The energy that its trials have used, in watt-hours, where it was metered."""
        return energy_of(self.store, self.run_id)

    def events(self, after: int = 0) -> list[Event]:
        """Return the events so far, oldest first.

        Args:
            after: Skip this many of the oldest events.
        """
        return [stored.event for stored in self.store.events(self.run_id, after=after)]

    def follow(self, after: int = 0) -> Iterator[Event]:
        """Yield events as they happen, until the run ends or is lost.

        Args:
            after: Skip this many of the oldest events.
        """
        next_driver, cursor = NextDriver(), after
        while True:
            next_driver.is_awaited(self.row)
            for stored in self.store.follow(self.run_id, after=cursor):
                cursor = stored.seq
                yield stored.event
            if not next_driver.is_awaited(self.row):
                return
            time.sleep(POLL_S)

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait for the end of the run.

        A notebook shows its live view meanwhile, a terminal its progress.

        Args:
            timeout_s: Seconds to wait at most; the run continues, and `state` shows whether it
                ended.

        Returns:
            The run itself.

        Raises:
            RunError: If the run failed or was lost.
            StoreUnavailableError: If the store cannot be read for longer than a minute.
        """
        with waiting_for(self) as show_progress:
            return self._await_end(timeout_s, show_progress)

    def _await_end(
        self, timeout_s: float | None, show_progress: Callable[[str | None], None]
    ) -> Self:
        read_s, next_driver = time.monotonic(), NextDriver()
        until = None if timeout_s is None else read_s + timeout_s
        while True:
            try:
                row = self.row
            except StoreUnavailableError:
                now_s = time.monotonic()
                if now_s - read_s > STORE_PATIENCE_S or (until is not None and now_s >= until):
                    raise
                time.sleep(POLL_S)
                continue
            read_s, state = time.monotonic(), row.state
            is_awaited = next_driver.is_awaited(row)
            is_lost = state == "lost" and not is_awaited
            show_progress(AWAITED if is_awaited else describe_silence(row))
            if state == "failed" or is_lost:
                message = self.history.message
                raise RunError(
                    f"run {self.run_id}"
                    f" {'was lost: its driver is gone' if state == 'lost' else 'failed'}"
                    + (f": {message}" if message and state == "failed" else ""),
                    next_step=self._how_to_go_on(),
                )
            if state in FINISHED_RUN_STATES or (until is not None and time.monotonic() >= until):
                return self
            time.sleep(POLL_S)

    def _how_to_go_on(self) -> Suggestion:
        """Return the command that continues a run that failed or was lost."""
        history = self.history
        if has_nothing_left(history):  # it cannot be resumed
            more = how_to_extend(history)
            if more is None:
                return suggest("sweep", "FILE", lead="Once your code is fixed, to run it again")
            lead = (
                "To continue it"
                if began_nothing(history)
                else "Once your code is fixed, to try more"
            )
            return suggest("extend", self.run_id, lead=lead, **more)
        return suggest("resume", self.run_id, lead="Its results are stored; to continue it")

    def to_json(self) -> dict[str, Any]:
        """Return what `workbench show --json` prints, as plain values."""
        row, history = self.row, self.history
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
        document["chosen"] = chosen and {"trial": chosen.number, "words": describe_choice(history)}
        if history.replay_of is not None:
            comparison = self.comparison
            document["replay"] = {"of_run_id": history.replay_of} | (
                comparison.to_json() if comparison else {}
            )
        if len(self.experiment.objectives) > 1:
            document["front"] = [trial.number for trial in history.front()]
        if (advice := self.advice) is not None:
            document["advice"] = advice
        document["verdicts"] = [verdict.describe() for verdict in verdicts_of(history)]
        document["energy"] = self.energy.to_json()
        document["cost"] = cost_of(self.history, self.history.now_unix_s())
        return document

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.run_id!r}, state={self.state!r})"

    def _repr_html_(self) -> str | None:
        return None if is_shown_in_this_cell(self) else snapshot(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if is_shown_in_this_cell(self):
            return {"text/plain": repr(self)}
        return bundle(self)

"""What a run has come to, as its store tells it: state, trials, best, events."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from workbench.errors import RunError, RunNotFoundError, StoreUnavailableError
from workbench.events import FINISHED_RUN_STATES, AdviceGiven, Event, Noted, RunState, from_json
from workbench.experiment import Experiment
from workbench.history import History, Trial
from workbench.run.comparison import Comparison, compare
from workbench.run.energy import RunEnergy, energy_of
from workbench.run.output import bundle, snapshot
from workbench.store import RunRow, Store

if TYPE_CHECKING:
    import pandas as pd

POLL_S = 0.2
_WAITS = "waits for "
STORE_PATIENCE_S = 60.0


class RunView:
    """A run in a store, to look at. Every property looks there anew."""

    def __init__(self, store: Store, run_id: str) -> None:
        """Use a run that exists; `sweep` and `attach` are the usual ways.

        Args:
            store: Where it is kept.
            run_id: Its id, in full.
        """
        self.store = store
        self.run_id = run_id
        self._history: History | None = None
        self._cursor = 0
        self._lock = threading.Lock()

    @property
    def row(self) -> RunRow:
        """What the store knows about the run without its events."""
        return self.store.run(self.run_id)

    @property
    def name(self) -> str:
        """What people call it."""
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
        """Whether a driver has it, and is not about to leave it."""
        return self.driven and self.state not in ("stopping", *FINISHED_RUN_STATES)

    @property
    def driven(self) -> bool:
        """Whether a driver is at work on it, as far as can be known from here."""
        return self.store.is_driven(self.run_id)

    @cached_property
    def experiment(self) -> Experiment:
        """What it executes."""
        return self.store.experiment(self.run_id)

    @property
    def is_advice(self) -> bool:
        """Whether it only measures and recommends."""
        return bool(self.store.events(self.run_id, types=["advice_requested"], limit=1))

    @property
    def advice(self) -> dict[str, Any] | None:
        """What the advisor recommended in it, as plain values; None where it did not."""
        given = [item.event for item in self.store.events(self.run_id, types=["advice_given"])]
        return next((event.advice for event in reversed(given) if isinstance(event, AdviceGiven)), None)

    @property
    def waits_for(self) -> str | None:
        """What keeps it from training, as its driver said last; None where nothing does."""
        if self.state not in ("running", "stopping"):
            return None
        seq, told = 0, None
        for stored in self.store.events(self.run_id, types=["noted"]):
            if isinstance(stored.event, Noted) and stored.event.message.startswith(_WAITS):
                seq, told = stored.seq, stored.event.message.removeprefix(_WAITS)
        over = ["driver_started", "trial_started", "run_state_changed"]
        if told is None or self.store.events(self.run_id, after=seq, types=over, limit=1):
            return None
        return told

    @property
    def folder(self) -> Path:
        """Where this machine keeps its files; artifacts on a URL are not among them."""
        return self.store.folder(self.run_id)

    @property
    def history(self) -> History:
        """Its trials and what became of them, up to now."""
        with self._lock:
            if self._history is None:
                self._history = History(self.experiment)
            for chunk in self.store.event_rows(self.run_id, after=self._cursor):
                for row in chunk:
                    self._history.apply(from_json(row[4]))
                    self._cursor = row[0]
            return self._history

    @property
    def best(self) -> Trial | None:
        """The best complete trial, or None; with several objectives, the best by the first of them."""
        return self.history.best()

    @property
    def comparison(self) -> Comparison | None:
        """How it differs from the run that it replays; None if it replays none, or one that is gone."""
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
        """One row a trial: number, state, its parameters, its results, its course.

        A result that is called like a parameter, or either called like another column, is written as
        `values.NAME` or `params.NAME`.
        """
        from workbench.run.table import to_table

        return to_table(self.history, self.energy)

    @property
    def energy(self) -> RunEnergy:
        """What its trials have used, in watt-hours, as far as somebody metered it."""
        return energy_of(self.store, self.run_id)

    def events(self, after: int = 0) -> list[Event]:
        """Return what has happened so far, oldest first.

        Args:
            after: Leave out that many of the oldest.
        """
        return [stored.event for stored in self.store.events(self.run_id, after=after)]

    def follow(self, after: int = 0) -> Iterator[Event]:
        """Yield what happens, as it happens, until the run ends or is lost.

        Args:
            after: Leave out that many of the oldest events.
        """
        return (stored.event for stored in self.store.follow(self.run_id, after=after))

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait for the end of the run.

        Args:
            timeout_s: Seconds to wait at most; the run goes on, and `state` tells.

        Returns:
            The run itself.

        Raises:
            RunError: If the run failed or was lost.
            StoreUnavailableError: If the store cannot be read for longer than a minute.
        """
        read_s = time.monotonic()
        until = None if timeout_s is None else read_s + timeout_s
        while True:
            try:
                state = self.state
            except StoreUnavailableError:
                now_s = time.monotonic()
                if now_s - read_s > STORE_PATIENCE_S or (until is not None and now_s >= until):
                    raise
                time.sleep(POLL_S)
                continue
            read_s = time.monotonic()
            if state in ("failed", "lost"):
                message = self.history.message
                raise RunError(
                    f"run {self.run_id} {'was lost: its driver is gone' if state == 'lost' else 'failed'}"
                    + (f": {message}" if message and state == "failed" else ""),
                    next_step=f"What it found is stored; go on with: workbench resume {self.run_id}",
                )
            if state in FINISHED_RUN_STATES or (until is not None and time.monotonic() >= until):
                return self
            time.sleep(POLL_S)

    def to_json(self) -> dict[str, Any]:
        """Return what `workbench show --json` prints, as plain values."""
        row, history = self.row, self.history
        document: dict[str, Any] = {
            "run_id": row.run_id,
            "name": row.name,
            "state": row.state,
            "experiment_hash": row.experiment_hash,
            "created_unix_s": row.created_unix_s,
            "waits_for": self.waits_for,
            "driver": {"pid": row.owner and row.owner.pid, "host": row.owner and row.owner.host},
        }
        document |= {key: value for key, value in history.to_json().items() if key not in document}
        if history.replay_of is not None:
            comparison = self.comparison
            document["replay"] = {"of_run_id": history.replay_of} | (
                comparison.to_json() if comparison else {}
            )
        if len(self.experiment.objectives) > 1:
            document["front"] = [trial.number for trial in history.front()]
        if (advice := self.advice) is not None:
            document["advice"] = advice
        document["energy"] = self.energy.to_json()
        return document

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.run_id!r}, state={self.state!r})"

    def _repr_html_(self) -> str:
        return snapshot(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle(self)

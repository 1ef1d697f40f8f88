"""Pass the starts, reports and ends of one run's trials on to its loggers.

A logger never delays or fails a run: its problems are recorded as notes. `loggers` calls it.
"""

from __future__ import annotations

import contextlib
from functools import partial
from types import TracebackType

from typing_extensions import Self

from workbench.foundation.artifacts import Artifacts
from workbench.foundation.attachments import Attachment
from workbench.foundation.errors import LeaseError, StoreError
from workbench.foundation.events import (
    AttachmentSaved,
    Event,
    Noted,
    TrialEnded,
    TrialReported,
    TrialStarted,
)
from workbench.store.database.run_files import trial_folder
from workbench.store.loggers import Forwarding, LoggedRun
from workbench.sweeps.ledger import Ledger

CLOSE_PATIENCE_S = 20.0
"""How long a driver that ends waits for loggers, in seconds."""


class RunLoggers:
    """Passes the trials of one run on to the loggers in its experiment's `report_to`."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Prepare for the run of `ledger`, whose files are kept in `artifacts`."""
        self._ledger, self._artifacts = ledger, artifacts
        self._forwarding: Forwarding | None = None

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """Start to receive events, if there are loggers."""
        experiment = self._ledger.experiment
        if not experiment.report_to:
            return
        run = LoggedRun(
            run_id=self._ledger.run_id,
            name=experiment.name,
            folder=self._artifacts.working_folder,
            experiment=experiment.model_dump(mode="json"),
        )
        self._forwarding = Forwarding(experiment.report_to, run)
        self._ledger.listeners.append(self._on_event)

    def tick(self) -> None:
        """Store the problems of loggers, without waiting."""
        if self._forwarding is not None and (notes := self._notes()):
            self._ledger.record(*notes)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._forwarding is None:
            return
        self._forwarding.close(CLOSE_PATIENCE_S)
        if isinstance(error, LeaseError):
            return  # another driver has the run
        with contextlib.suppress(StoreError):
            if notes := self._notes():
                self._ledger.append(notes, patience_s=0.0)

    def _notes(self) -> list[Noted]:
        assert self._forwarding is not None
        return [Noted(level="warning", message=problem) for problem in self._forwarding.problems()]

    def _on_event(self, event: Event) -> None:
        assert self._forwarding is not None
        match event:
            case TrialStarted():
                trial = self._ledger.history.trials.get(event.trial)
                self._forwarding.put(
                    "begin", event.trial, {} if trial is None else dict(trial.params)
                )
            case TrialReported():
                self._forwarding.put("report", event.trial, event.step, dict(event.values))
            case AttachmentSaved():
                self._forwarding.attach(event.trial, event.step, partial(self._load, event))
            case TrialEnded():
                self._forwarding.put("end", event.trial, event.state)

    def _load(self, saved: AttachmentSaved) -> Attachment:
        content = self._artifacts.read(f"{trial_folder(saved.trial)}/{saved.file}")
        return Attachment(saved.name, saved.kind, saved.file.rpartition(".")[2], content)

"""Store what a trial reports, pass it on to loggers, and decide whether and how the trial ends.

An objective that is not finite ends its trial as diverged. A trial is pruned if the study rejects
its report, or if it ends at a low fidelity. The end that a worker reports counts only if the
objectives were reported and are finite. The driver decides which trials run.

Objectives and constraints may use resources, such as energy. They are added to the reports.

A logger never delays or fails a run: its problems are recorded as notes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal

from typing_extensions import Self

from workbench.experiment.budget_units import parse_price
from workbench.experiment.goals import (
    ENERGY_USED,
    MONEY_SPENT,
    RESOURCES,
    SPEED,
    describe_other_metric,
)
from workbench.experiment.trial_value import find_divergence
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.attachments import Attachment
from workbench.foundation.errors import LeaseError, StoreError
from workbench.foundation.events import (
    AttachmentSaved,
    AttemptEnded,
    Event,
    LogMatched,
    Noted,
    Reason,
    TrialEnded,
    TrialPlanned,
    TrialReported,
    TrialStarted,
)
from workbench.store.database.run_files import trial_folder
from workbench.store.history import Trial
from workbench.store.history.history import money_of
from workbench.store.history.lineage import describe_fidelity
from workbench.store.loggers import Forwarding, LoggedRun
from workbench.sweeps.ledger import Ledger

logger = logging.getLogger(__name__)

MAX_STORAGE_SETBACKS = 20
"""How often a trial is tried again because its files could not be written.

A run whose storage stays broken ends long before that. A trial whose own code removes the files
that it needs would otherwise never end.
"""
CLOSE_PATIENCE_S = 20.0
"""How long a driver that ends waits for loggers, in seconds."""


class Referee:
    """Judges the trials of one run."""

    def __init__(
        self, ledger: Ledger, resources: ResourcesUsed, *, started_in: Path | None = None
    ) -> None:
        """Judge by the events in `ledger`, and write there.

        Args:
            ledger: The run.
            resources: What its trials use of the hardware.
            started_in: Where the run was started and relative paths begin, or None for here.
        """
        self._started_in = started_in
        self._ledger = ledger
        self._resources = resources

    def take_in(
        self, number: int, events: list[Event], *, stop: Literal["trial", "run"] | None
    ) -> TrialEnded | AttemptEnded | None:
        """Store what a trial reported, up to its end.

        Args:
            number: The trial.
            events: What its coordinator sent, oldest first.
            stop: "trial" if a user stops the trial, "run" if the run is ending.

        Returns:
            How the trial ended. Only its attempt ends if the trial waits for the storage of its
            files, or restarts because of an alert rule. None if it continues, unless the run is
            ending.
        """
        trial = self._ledger.history.trials[number]
        taken, ending = self._take_until_end(trial, events)
        if stop == "trial" and not isinstance(ending, TrialEnded):
            why = self._ledger.alerts.to_stop.get(number, "stopped by the user")
            ending = self.ended(trial, "stopped", message=why)
        if any(isinstance(event, LogMatched) for event in taken):
            self._ledger.append(taken)  # may raise alerts that decide how the trial continues
            taken = []
        if stop is None and not isinstance(ending, AttemptEnded):
            ending = self._again(trial, ending) or ending
        last: TrialEnded | AttemptEnded | None = ending
        if isinstance(ending, TrialEnded):
            last = ending = self._end(trial, ending)
        elif ending is None and stop == "run" and trial.state == "running":
            last = attempt_ended(trial, "stopped", "the run ended")
        if last is not None:
            taken.append(last)
            self._ledger.history.apply(last)
        if isinstance(ending, TrialEnded):
            self._ledger.study.tell(number, ending)
        if taken:
            self._ledger.append(taken)
        return ending

    def _take_until_end(
        self, trial: Trial, events: list[Event]
    ) -> tuple[list[Event], TrialEnded | AttemptEnded | None]:
        """Apply events to the history, up to the one that ends the trial or makes it wait.

        Returns:
            The events that were applied, and how they end the trial or its attempt, if they do.
        """
        taken: list[Event] = []
        for event in events:
            if isinstance(event, TrialReported) and _is_stored(event, trial):
                continue
            stamped = _stamped(event, trial)
            if isinstance(stamped, TrialEnded):
                if stamped.reason == "storage" and _may_wait_for_storage(trial):
                    message = stamped.message or "its files cannot be written"
                    return taken, attempt_ended(trial, "storage", message)
                return taken, self._judged(stamped)
            if isinstance(stamped, AttemptEnded) and stamped.reason == "turn":
                so_far = self._ledger.study.result(trial.number)
                return taken, stamped.model_copy(update={"values": so_far})
            if isinstance(stamped, TrialPlanned):
                stamped = self._with_predicted_memory(stamped, trial)
            if isinstance(stamped, TrialReported):
                stamped = self._resources.added(stamped, trial)
            taken.append(stamped)
            self._ledger.history.apply(stamped)
            if isinstance(stamped, TrialReported):
                verdict = self._verdict(stamped)
                if verdict is not None:
                    return taken, verdict
        return taken, None

    def _with_predicted_memory(self, planned: TrialPlanned, trial: Trial) -> TrialPlanned:
        experiment = self._ledger.experiment
        if experiment.model is None or experiment.model.name != "hf":
            return planned
        # Loads numpy and a law, which other experiments do not need.
        from workbench.advisor.language_models import predict_memory

        predicted = predict_memory(experiment, trial.params, planned.plan, here=self._started_in)
        return planned.model_copy(update={"predicted_memory": predicted})

    def _end(self, trial: Trial, ended: TrialEnded) -> TrialEnded:
        """Return the end of a trial as it is stored, and log a failure."""
        if any(name in trial.params for change in trial.ways_tried for name, _ in change.values):
            ended = ended.model_copy(update={"fits": False})
        if ended.state == "failed":
            logger.warning("trial %d failed: %s: %s", trial.number, ended.reason, ended.message)
        return ended

    def _again(self, trial: Trial, ended: TrialEnded | None) -> AttemptEnded | None:
        """Return how an alert rule ends the attempt, or None if no rule does."""
        alert = self._ledger.alerts.to_retry.get(trial.number)
        if alert is None or (
            ended is not None and (ended.state, ended.reason) != ("failed", "error")
        ):
            return None
        if trial.num_retries >= self._ledger.experiment.resources.max_retries:
            self._ledger.alerts.to_retry.pop(trial.number)
            message = "an alert rule wants to restart it, but resources.max_retries is used up"
            self._ledger.record(Noted(level="warning", message=message, trial=trial.number))
            return None
        again = attempt_ended(trial, "alert", f"ended by a rule: {alert.message}")
        return again.model_copy(update={"is_retry": True})

    def _verdict(self, report: TrialReported) -> TrialEnded | None:
        """Return how a report ends its trial, or None if the trial continues."""
        trial = self._ledger.history.trials[report.trial]
        if (name := find_divergence(self._ledger.experiment, report.values)) is not None:
            message = f"{name} became {report.values[name]}"
            return self.ended(trial, "failed", reason="diverged", message=message)
        if self._ledger.study.take_report(report):
            why = self._ledger.study.why_pruned(trial.number)
            return self.ended(trial, "pruned", message=why)
        return None

    def _judged(self, event: TrialEnded) -> TrialEnded:
        """Return a worker's end with the values that count, or as a failure if there are none.

        The training loop reports the values of its checkpoints at the end, so they replace those of
        the reports.
        """
        trains_model = self._ledger.experiment.trains_model
        values = event.values if trains_model and event.state in ("complete", "stopped") else {}
        values = values or self._ledger.study.result(event.trial)
        if values and event.state in ("complete", "stopped"):
            used = self._resources.at_end(self._ledger.history.trials[event.trial], event)
            values = {**values, **used}
        missing = [
            item.metric for item in self._ledger.experiment.objectives if item.metric not in values
        ]
        if event.state == "complete" and missing:
            trial = self._ledger.history.trials[event.trial]
            reported = ", ".join(sorted(trial.last_values)) or "nothing"
            other = describe_other_metric(
                self._ledger.experiment.objectives, missing[0], trial.last_values
            )
            message = f"the trial did not report {missing[0]}. It reported: {reported}"
            if other:
                message += f". {other}"
            return event.model_copy(
                update={"state": "failed", "reason": "error", "message": message, "values": values}
            )
        trial = self._ledger.history.trials[event.trial]
        step = event.step or trial.last_step
        ended: dict[str, object] = {"values": values, "step": step}
        name = find_divergence(self._ledger.experiment, values)
        if event.state in ("complete", "stopped") and name is not None:
            message = f"{name} is {values[name]} at the end"
            return event.model_copy(
                update=ended | {"state": "failed", "reason": "diverged", "message": message}
            )
        if event.state == "complete" and (low := trial.fidelity) is not None:
            ended |= {"state": "pruned", "message": describe_fidelity(low)}
        return event.model_copy(update=ended)

    def ended(
        self,
        trial: Trial,
        state: Literal["pruned", "stopped", "failed"],
        *,
        reason: Reason | None = None,
        message: str | None = None,
    ) -> TrialEnded:
        """Return the end of a trial that its worker did not end, with the values that count."""
        return TrialEnded(
            trial=trial.number,
            attempt=max(0, trial.attempts - 1),
            state=state,
            reason=reason,
            message=message,
            values=self._ledger.study.result(trial.number),
            step=trial.last_step,
        )


def _may_wait_for_storage(trial: Trial) -> bool:
    num_setbacks = sum(setback.reason == "storage" for setback in trial.setbacks)
    return num_setbacks < MAX_STORAGE_SETBACKS


def _is_stored(report: TrialReported, trial: Trial) -> bool:
    """Return whether a repeated report was stored when an earlier attempt first made it."""
    return report.told_again and report.step <= trial.last_step


def _stamped(event: Event, trial: Trial) -> Event:
    """Return an event of a trial with the number of its attempt, which the driver counts."""
    attempt = trial.attempts if isinstance(event, TrialStarted) else max(0, trial.attempts - 1)
    if getattr(event, "attempt", attempt) == attempt:
        return event
    return event.model_copy(update={"attempt": attempt})


def attempt_ended(
    trial: Trial, reason: Literal["lost", "stopped", "storage", "alert"], message: str
) -> AttemptEnded:
    """Return the end of the current attempt of a trial that will continue."""
    return AttemptEnded(
        trial=trial.number, attempt=max(0, trial.attempts - 1), reason=reason, message=message
    )


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


class ResourcesUsed:
    """Adds the resources that objectives and constraints name to the reports of trials."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        energy_wh_of: Callable[[int, bool], float | None],
        num_places: Callable[[], int],
    ) -> None:
        """Find out which resources the experiment names.

        Args:
            ledger: The run.
            energy_wh_of: Returns the watt-hours that a trial has used, or None if unknown. The
                second argument says whether to read the meters first.
            num_places: Returns how many trials share the hardware.
        """
        experiment = ledger.experiment
        named = {item.metric for item in (*experiment.objectives, *experiment.constraints)}
        self._ledger = ledger
        self._named = [name for name in RESOURCES if name in named]
        self._energy_wh_of, self._num_places = energy_wh_of, num_places
        self._own: set[str] = set()

    def added(self, report: TrialReported, trial: Trial) -> TrialReported:
        """Return a report with what its trial has used so far.

        A number that the training reports itself under the same name stays as it is.

        Args:
            report: A report of the trial.
            trial: The trial before this report.
        """
        if not self._named:
            return report
        self._own |= report.values.keys() & set(self._named)
        used = self._used(trial, report.time_unix_s, report.samples_per_s)
        return report.model_copy(update={"values": {**used, **report.values}})

    def at_end(self, trial: Trial, end: TrialEnded) -> dict[str, float]:
        """Return what a trial has used in all.

        Args:
            trial: The trial.
            end: Its end.
        """
        if not self._named:
            return {}
        return self._used(trial, end.time_unix_s, None, has_ended=True)

    def _used(
        self, trial: Trial, at_unix_s: float, samples_per_s: float | None, has_ended: bool = False
    ) -> dict[str, float]:
        used: dict[str, float | None] = {}
        for name in self._named:
            if name in self._own:
                continue
            if name == SPEED:
                used[name] = samples_per_s or trial.samples_per_s
            elif name == ENERGY_USED:
                used[name] = self._energy_wh_of(trial.number, has_ended)
            elif name == MONEY_SPENT:
                used[name] = self._cost(trial, at_unix_s)
        return {name: value for name, value in used.items() if value is not None}

    def _cost(self, trial: Trial, at_unix_s: float) -> float | None:
        """Return the cost of a trial: of the GPUs that it holds, or of its share of the machines.

        A price for an hour of the run buys all of its hardware, which several trials share. The
        start of processes, and loading data, do not count: which trial pays for them is chance.
        """
        if (text := self._ledger.experiment.budget.price) is None:
            return None
        share = self._ledger.history.in_force.resources.gpu_share
        loading_s = trial.loading_s
        active_s = trial.trained_s + trial.attempt_s(at_unix_s) - loading_s
        gpu_s = trial.gpu_s(at_unix_s) - trial.num_gpus * loading_s
        places = max(1, self._num_places())
        return money_of(parse_price(text), max(0.0, active_s) / places, max(0.0, gpu_s) * share)

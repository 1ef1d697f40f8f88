"""Carry out the commands that users send to a running run, and store each answer as an event.

The effects of a command are stored together with its answer. If the driver is killed, its successor
does not repeat a command that was carried out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pydantic import JsonValue

from workbench.experiment.actions import ACTIONS, check_payload
from workbench.experiment.changes import (
    CHANGEABLE,
    CONFIRM,
    ENERGY,
    SEARCH,
    change,
    describe_amount,
    describe_change,
    merge_changes,
    values_of,
)
from workbench.foundation.errors import ArgumentError, RunError, WorkbenchError
from workbench.foundation.events import (
    CommandHandled,
    Event,
    RunStateChanged,
    SettingsChanged,
    TrialEnqueued,
)
from workbench.foundation.formatting import format_count, format_duration
from workbench.store.database import Command, Store
from workbench.sweeps.budget import extended, has_room
from workbench.sweeps.clones import Clones, check_clone, describe_begin
from workbench.sweeps.code_versions import Program
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.warm_start import prior_trials, recorded_proposals

logger = logging.getLogger(__name__)

_STORED_AT_LAUNCH = frozenset({"warm_start", "replay", "count_wait", "resume", "code", "start"})
"""Commands that are stored when a run is launched, not sent by users."""

Arguments = Mapping[str, Any]


class Steered(Protocol):
    """What commands need from a driver."""

    @property
    def is_ending(self) -> bool:
        """Whether the run is about to end, whatever else happens."""
        ...

    @property
    def is_metered(self) -> bool:
        """Whether the energy of the trials is known."""
        ...

    def end(self, ending: RunStateChanged) -> None:
        """End the run."""
        ...

    def stop_trial(self, number: int) -> None:
        """Stop one trial, or raise an ExperimentError if it cannot be stopped."""
        ...

    def describe_concurrency(self, wanted: JsonValue) -> str:
        """Describe how many trials run at once if `wanted` is in force."""
        ...

    def follow_settings(self) -> None:
        """Apply the settings that are in force now."""
        ...

    @property
    def program(self) -> Program:
        """The versions of the run's code."""
        ...

    @property
    def clones(self) -> Clones:
        """The checkpoints from which clones continue."""
        ...


class Commands:
    """Carries out the commands of one run."""

    def __init__(self, store: Store, ledger: Ledger, driver: Steered) -> None:
        """Apply commands to `driver`, and record the answers in `ledger`."""
        self._store = store
        self._ledger = ledger
        self._driver = driver
        self._resumed_by = 0

    def carry_out(self) -> None:
        """Carry out every command that has come since the last call."""
        commands = self._ledger.new_commands()
        self._resumed_by = max(
            (item.number for item in commands if item.kind == "resume"), default=0
        )
        for command in commands:
            events: list[Event] = []
            try:
                done, message = True, self._execute(command, events)
            except WorkbenchError as error:
                done, message = False, str(error)
            except Exception as error:  # what a user sends must not end the run
                logger.exception("command %d cannot be carried out", command.number)
                done, message = False, f"{type(error).__name__}: {error}"
            handled = CommandHandled(
                command=command.number,
                kind=command.kind,
                done=done,
                message=message,
                by=command.by,
            )
            self._ledger.record(*(events if done else ()), handled)
            if any(isinstance(event, SettingsChanged) for event in events):
                self._driver.follow_settings()
            if command.kind == "replay" and not done:
                # Without its recorded proposals it would continue as a run that nobody requested.
                self._driver.end(RunStateChanged(state="failed", reason="error", message=message))

    def _execute(self, command: Command, events: list[Event]) -> str:
        """Carry out one command, add its effects to `events`, and return the answer."""
        handler = HANDLERS.get(command.kind)
        if handler is None:
            raise ArgumentError(f"unknown command {command.kind!r}", allowed=list(HANDLERS))
        action = ACTIONS.get(command.kind)
        if action is not None and command.kind not in _STORED_AT_LAUNCH:
            check_payload(action.arguments, command.arguments)
        if command.kind == "stop" and command.number < self._resumed_by:
            raise RunError("the run was resumed after this request")
        return handler(self, command.arguments, events)

    def _stop(self, _arguments: Arguments, _events: list[Event]) -> str:
        self._driver.end(RunStateChanged(state="stopped", reason="person", message="by the user"))
        return "the run is stopping"

    def _resume(self, _arguments: Arguments, _events: list[Event]) -> str:
        return "earlier requests to stop are ignored"

    def _start(self, arguments: Arguments, _events: list[Event]) -> str:
        return str(arguments.get("why", "the run is started"))

    def _stop_trial(self, arguments: Arguments, _events: list[Event]) -> str:
        self._driver.stop_trial(arguments["trial"])
        return f"trial {arguments['trial']} is stopping"

    def _enqueue(self, arguments: Arguments, events: list[Event]) -> str:
        params = self._ledger.history.in_force.search.check(arguments["params"])
        if not has_room(self._ledger.history, self._ledger.study.num_enqueued):
            raise ArgumentError(
                "the limit on trials leaves no room for another configuration",
                field="budget.trials",
                next_step="Extend the run by one trial first.",
            )
        self._ledger.study.enqueue(params)
        events.append(TrialEnqueued(params=params))
        return "the configuration is next in the queue"

    def _clone(self, arguments: Arguments, events: list[Event]) -> str:
        history, study = self._ledger.history, self._ledger.study
        if self._driver.is_ending:
            raise RunError("the run is about to end", next_step="Resume or extend it first.")
        number, begins_from = arguments["trial"], arguments.get("from_", "weights")
        params = check_clone(history, number, arguments.get("set", {}), begins_from)
        clone = self._driver.clones.begin(number, begins_from)
        study.enqueue(params, clone)
        events.append(TrialEnqueued(params=params, clone=clone))
        answer = f"the clone is next in the queue{describe_begin(history, params, clone)}"
        parent = history.trials[number]
        if clone.inherits and parent.state == "complete" and not history.experiment.trains_model:
            # Only the program knows where its loop ends.
            answer += f"; trial {number} is complete: the clone fails if its loop is over as well"
        if has_room(history, study.num_enqueued - 1):
            return answer
        # A user who clones a trial wants one more, even if all others have started.
        limit = history.num_configurations() + study.num_enqueued
        events.append(SettingsChanged(settings={"budget.trials": limit}))
        return f"{answer}; at most {format_count(limit, 'configuration')} now"

    def _extend(self, arguments: Arguments, events: list[Event]) -> str:
        if self._driver.is_ending:
            raise RunError("the run is about to end", next_step="Extend it when it has ended.")
        history = self._ledger.history
        more = {path: amount for path, amount in arguments.items() if path != SEARCH}
        limits = extended(history, more, history.now_unix_s())
        changed_search = {path: value for path, value in arguments.items() if path == SEARCH}
        return self._change(limits | changed_search, events)

    def _warm_start(self, arguments: Arguments, events: list[Event]) -> str:
        run_id = str(arguments.get("run_id", ""))
        priors = prior_trials(self._store, run_id, self._ledger.experiment)
        for event in priors:
            self._ledger.study.add_prior(event)
        events += priors
        return f"the sampler learned from {format_count(len(priors), 'trial')} of {run_id}"

    def _code(self, _arguments: Arguments, events: list[Event]) -> str:
        return self._driver.program.use_current(events)

    def _replay(self, arguments: Arguments, events: list[Event]) -> str:
        planned = recorded_proposals(self._store, str(arguments.get("run_id", "")))
        self._ledger.study.replay(planned.proposals)
        events.append(planned)
        proposals = format_count(len(planned.proposals), "proposal")
        return f"{proposals} of {planned.of_run_id} will be tried again"

    def _count_wait(self, arguments: Arguments, events: list[Event]) -> str:
        waited_s = float(arguments["seconds"])
        events.append(SettingsChanged(settings={}, waited_s=waited_s))
        return f"{format_duration(waited_s)} before the first driver count towards the run's time"

    def _change(self, arguments: Arguments, events: list[Event]) -> str:
        history = self._ledger.history
        settings = {path: value for path, value in arguments.items() if path != SEARCH}
        values: dict[str, Any] = {}
        if settings or SEARCH not in arguments:
            values = values_of(change(history.in_force, settings))
        settings = {path: values[path] for path in CHANGEABLE if path in settings}
        if ENERGY in settings and not self._driver.is_metered:
            raise ArgumentError(
                "the energy of this run is not metered, so a limit on it would never end the run",
                field=ENERGY,
                next_step="Limit its time or its trials instead.",
            )
        descriptions = [self._describe(path, value) for path, value in settings.items()]
        if SEARCH in arguments:
            changed = arguments[SEARCH]
            changes = merge_changes(history.experiment, history.search_changes, changed)
            num_kept = self._ledger.study.change_search(changes)
            settings[SEARCH] = changes
            now = self._ledger.study.experiment
            descriptions += [describe_change(now, name) for name in changed]
            descriptions.append(
                f"the search continues from {format_count(num_kept, 'earlier configuration')}"
            )
        if CONFIRM in settings:
            self._ledger.study.confirm_best(settings[CONFIRM])
        events.append(SettingsChanged(settings=settings))
        return "; ".join(descriptions)

    def _describe(self, path: str, value: Any) -> str:
        """Describe what a setting means from now on."""
        if path == "resources.concurrency":
            return self._driver.describe_concurrency(value)
        if path == "budget.trials":
            return self._describe_trials(value)
        if path == CONFIRM:
            return f"the best {value} are trained again with new seeds"
        if path == "budget.plateau":
            return f"until {value} configurations in a row are no better"
        amount = describe_amount(path, value, self._ledger.history.in_force.budget.price)
        return f"at most {amount}" + (" of GPU time" if path == "budget.gpu_time" else "")

    def _describe_trials(self, limit: int) -> str:
        num_begun = self._ledger.history.num_configurations()
        num_enqueued = self._ledger.study.num_enqueued
        exceptions: list[str] = []
        if num_begun > limit:
            exceptions.append(f"{num_begun} have already started and will be finished")
        if (left_out := min(num_enqueued, num_begun + num_enqueued - limit)) > 0:
            left = format_count(left_out, "enqueued configuration")
            exceptions.append(f"{left} will not be tried")
        described = f"at most {format_count(limit, 'configuration')}"
        if not exceptions:
            return described
        return f"{described}, but {' and '.join(exceptions)}"


HANDLERS: dict[str, Callable[[Commands, Arguments, list[Event]], str]] = {
    "stop": Commands._stop,
    "stop_trial": Commands._stop_trial,
    "set": Commands._change,
    "enqueue": Commands._enqueue,
    "clone": Commands._clone,
    "extend": Commands._extend,
    "warm_start": Commands._warm_start,
    "replay": Commands._replay,
    "count_wait": Commands._count_wait,
    "resume": Commands._resume,
    "start": Commands._start,
    "code": Commands._code,
}
"""The function for each kind of command: it adds effects to the events and returns the answer."""

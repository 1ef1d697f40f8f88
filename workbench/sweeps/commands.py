"""What people ask of a run that is under way, and the answers: each is stored as an event.

What a command brings about is stored together with its answer, so that a driver that replaces a killed
one carries no command out twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import JsonValue

from workbench.errors import ExperimentError, WorkbenchError
from workbench.events import CommandHandled, Event, RunState, SettingsChanged, TrialEnqueued
from workbench.experiment.changing import CHANGEABLE, change, values_of
from workbench.space import Params
from workbench.store import Command, Store
from workbench.sweeps.budget import has_room
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.prior import prior_trials, recorded_proposals

logger = logging.getLogger(__name__)

_KINDS = "stop, stop_trial, enqueue, set, extend, warm_start, replay"


class Steered(Protocol):
    """What commands ask of a driver."""

    @property
    def is_ending(self) -> bool:
        """Whether the run is about to end, whatever else happens."""
        ...

    def end(self, state: RunState, reason: str, message: str) -> None:
        """End the run."""
        ...

    def stop_trial(self, number: int) -> None:
        """Stop one trial, or refuse with an ExperimentError."""
        ...

    def describe_concurrency(self, wanted: JsonValue) -> str:
        """Say how many trials run at once if `wanted` is in force."""
        ...

    def follow_settings(self) -> None:
        """Act by the settings that are in force now."""
        ...


class Commands:
    """Carries commands out on one run."""

    def __init__(self, store: Store, ledger: Ledger, driver: Steered) -> None:
        """Steer `driver`, and answer in `ledger`."""
        self._store = store
        self._ledger = ledger
        self._driver = driver

    def carry_out(self) -> None:
        """Carry out every command that has come since the last call."""
        for command in self._ledger.new_commands():
            events: list[Event] = []
            try:
                done, message = True, self._obey(command, events)
            except WorkbenchError as error:
                done, message = False, str(error)
            except Exception as error:  # what a person sends must not end the run
                logger.exception("command %d cannot be carried out", command.number)
                done, message = False, f"{type(error).__name__}: {error}"
            handled = CommandHandled(command=command.number, kind=command.kind, done=done, message=message)
            self._ledger.record(*(events if done else ()), handled)
            if any(isinstance(event, SettingsChanged) for event in events):
                self._driver.follow_settings()
            if command.kind == "replay" and not done:
                # Without its recorded proposals it would go on as a run that nobody asked for.
                self._driver.end("failed", "error", message)

    def _obey(self, command: Command, events: list[Event]) -> str:
        """Carry out one command, add what it brings about to `events`, and return the answer."""
        arguments = command.arguments
        match command.kind:
            case "stop":
                self._driver.end("stopped", "person", "stopped by a person")
                return "the run is stopping"
            case "stop_trial":
                number = arguments.get("trial")
                if not isinstance(number, int):
                    raise ExperimentError(f"{number!r} is no trial", field="trial", allowed="a number")
                self._driver.stop_trial(number)
                return f"trial {number} is stopping"
            case "enqueue":
                params = self._check_params(arguments.get("params"))
                if not has_room(self._ledger.history, self._ledger.study.num_enqueued):
                    raise ExperimentError(
                        "the limit on trials leaves no room for another configuration",
                        field="budget.trials",
                        next_step=f"First: workbench extend {self._ledger.run_id} --trials 1",
                    )
                self._ledger.study.enqueue(params)
                events.append(TrialEnqueued(params=params))
                return "the configuration is next in the queue"
            case "set":
                return self._change(arguments, events)
            case "extend":  # by limits that count from the beginning, so that twice is like once
                if self._driver.is_ending:
                    raise ExperimentError("the run is about to end", next_step="Extend it when it has ended.")
                return self._change(arguments, events)
            case "warm_start":
                return self._learn_from(str(arguments.get("run_id", "")), events)
            case "replay":
                planned = recorded_proposals(self._store, str(arguments.get("run_id", "")))
                self._ledger.study.replay(planned.proposals)
                events.append(planned)
                return f"{len(planned.proposals)} proposals of {planned.of_run_id} are tried again"
            case _:
                raise ExperimentError(f"unknown command {command.kind!r}", allowed=_KINDS)

    def _check_params(self, given: JsonValue) -> Params:
        if not isinstance(given, dict):
            raise ExperimentError(f"{given!r} is no configuration", field="params", allowed="values by name")
        return self._ledger.experiment.search.check(given)

    def _change(self, settings: Mapping[str, Any], events: list[Event]) -> str:
        values = values_of(change(self._ledger.history.in_force, settings))
        settings = {path: values[path] for path in CHANGEABLE if path in settings}
        said = [
            self._driver.describe_concurrency(value) if path == "resources.concurrency"
            else _describe_limit(path, value)
            for path, value in settings.items()
        ]  # fmt: skip
        events.append(SettingsChanged(settings=settings))
        return "; ".join(said)

    def _learn_from(self, run_id: str, events: list[Event]) -> str:
        priors = prior_trials(self._store, run_id, self._ledger.experiment)
        for event in priors:
            self._ledger.study.add_prior(event)
        events += priors
        return f"{len(priors)} trials of {run_id} teach the sampler"


def _describe_limit(path: str, value: float) -> str:
    if path == "budget.trials":
        return f"at most {value} configurations"
    if path == "budget.time":
        return f"at most {value:.0f} s"
    return f"until {value} configurations in a row are no better"

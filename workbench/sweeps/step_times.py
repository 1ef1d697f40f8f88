"""The step-time history: how fast which plan trained what, and what it cost to start a trial again.

It is read off the events of this run and of earlier ones that trained the same model on the same data on
this machine. Only speeds of the same setting are compared: the model's values, global batch, precision
and size of a worker. Whether it pays to act on them is left to `growth`.
"""

from __future__ import annotations

import json
import socket
import statistics
from collections import defaultdict, deque
from collections.abc import Mapping

from pydantic import JsonValue

from workbench.errors import WorkbenchError
from workbench.events import (
    AttemptEnded,
    DriverStarted,
    Event,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.experiment import Experiment
from workbench.store import Store
from workbench.training.settings import resolve

NUM_EARLIER_RUNS = 20
NUM_EVENTS_OF_A_RUN = 3000
NUM_SPEEDS = 50
"""How many of the latest speeds of a plan count."""
NUM_CURRENT_SPEEDS = 5
_TYPES = (
    "driver_started", "trial_proposed", "trial_started", "trial_planned", "trial_reported", "attempt_ended",
)  # fmt: skip

Place = tuple[str, JsonValue, JsonValue]
"""A setting, and with how many workers and which micro batch it was trained."""


class StepTimes:
    """Measured speeds and restarts, of several runs one after another."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.restarts_s: list[float] = []
        """What each restart cost, in seconds, from the end of an attempt until the next one trained."""
        self._speeds: dict[Place, deque[float]] = defaultdict(lambda: deque(maxlen=NUM_SPEEDS))

    def begin(self, experiment: Experiment) -> None:
        """Take in events of another run from here on.

        Args:
            experiment: What it trains.
        """
        self._experiment = experiment
        self._params: dict[int, dict[str, JsonValue]] = {}
        self._places: dict[int, Place] = {}
        self._current: dict[int, list[float]] = {}
        self._ended_unix_s: dict[int, float] = {}
        self._last_restart_s: dict[int, float] = {}
        self._started_unix_s: dict[int, float] = {}
        self._loading_s: dict[int, float] = {}

    def apply(self, event: Event) -> None:
        """Take in the next event of the run."""
        match event:
            case DriverStarted():
                self._ended_unix_s.clear()  # how long nobody drove it says nothing about restarts
            case TrialProposed():
                self._params[event.trial] = event.params
            case AttemptEnded():
                self._last_restart_s.pop(event.trial, None)
                self._current.pop(event.trial, None)
                if event.reason != "stopped":
                    self._ended_unix_s[event.trial] = event.time_unix_s
            case TrialStarted():
                self._started_unix_s[event.trial] = event.time_unix_s
            case TrialPlanned():
                self._begin_attempt(event)
            case TrialReported(samples_per_s=float(speed), told_again=False) if speed > 0:
                self._add(event.trial, speed)
            case _:
                pass

    def current(self, trial: int) -> float | None:
        """Return how fast a trial trains now, in samples/s; None where that is not known yet."""
        speeds = self._current.get(trial, [])[1:]
        return statistics.median(speeds[-NUM_CURRENT_SPEEDS:]) if speeds else None

    def num_current(self, trial: int) -> int:
        """Return how many speeds of its current attempt a trial has reported, the first left out."""
        return max(0, len(self._current.get(trial, [])) - 1)

    def usual(self, trial: int, plan: Mapping[str, JsonValue]) -> float | None:
        """Return how fast what a trial trains was trained by a plan, in samples/s.

        Args:
            trial: A trial under way.
            plan: Workers and micro batch.

        Returns:
            The median of what was measured; None where nothing was.
        """
        place = self._places.get(trial)
        if place is None:
            return None
        speeds = self._speeds.get((place[0], plan["workers"], plan["micro_batch"]))
        return statistics.median(speeds) if speeds else None

    def last_restart_s(self, trial: int) -> float | None:
        """Return what the restart before the current attempt of a trial cost, or None."""
        return self._last_restart_s.get(trial)

    def loading_s(self, trial: int) -> float:
        """Return how long the current attempt of a trial took to load data and model, in seconds."""
        return self._loading_s.get(trial, 0.0)

    def _begin_attempt(self, event: TrialPlanned) -> None:
        trial = event.trial
        started_unix_s = self._started_unix_s.get(trial, event.time_unix_s)
        self._loading_s[trial] = max(0.0, event.time_unix_s - started_unix_s)
        setting = _setting(self._experiment, self._params.get(trial, {}), event.plan)
        self._places[trial] = (setting, event.plan.get("workers"), event.plan.get("micro_batch"))
        self._current[trial] = []
        ended_unix_s = self._ended_unix_s.pop(trial, None)
        if ended_unix_s is not None:
            self._last_restart_s[trial] = max(0.0, event.time_unix_s - ended_unix_s)
            self.restarts_s.append(self._last_restart_s[trial])

    def _add(self, trial: int, speed: float) -> None:
        current = self._current.get(trial)
        if current is None:
            return
        if current:  # the first one of an attempt also tells of reading a checkpoint and of first calls
            self._speeds[self._places[trial]].append(speed)
        current.append(speed)


def read_step_times(store: Store, run_id: str, experiment: Experiment) -> StepTimes:
    """Read what this machine has measured of the model and the data of a run.

    Args:
        store: The store that holds the run, and the earlier ones.
        run_id: The run; its own events come last.
        experiment: What it trains.

    Returns:
        What the newest `NUM_EARLIER_RUNS` runs and the run itself tell, ready for its next events.
    """
    times = StepTimes()
    here = socket.gethostname()
    for row in reversed(store.runs(NUM_EARLIER_RUNS + 1)):
        if row.run_id == run_id:
            continue
        try:
            other = store.experiment(row.run_id)
            if (other.model, other.data) != (experiment.model, experiment.data):
                continue
            stored = store.events(row.run_id, types=_TYPES, limit=NUM_EVENTS_OF_A_RUN)
        except WorkbenchError:  # of another version, or removed just now
            continue
        events = [item.event for item in stored]
        if {event.host for event in events if isinstance(event, DriverStarted)} == {here}:
            _take(times, other, events)
    _take(times, experiment, [item.event for item in store.events(run_id, types=_TYPES)])
    return times


def _take(times: StepTimes, experiment: Experiment, events: list[Event]) -> None:
    times.begin(experiment)
    for event in events:
        times.apply(event)


def _setting(experiment: Experiment, params: Mapping[str, JsonValue], plan: Mapping[str, JsonValue]) -> str:
    """Name what decides how much work a sample is, and on what it is done."""
    resources = experiment.resources
    try:
        model = resolve(experiment, params, decided=plan).model
    except WorkbenchError:  # the trial fails with it
        model = {}
    named = {
        "model": experiment.model and experiment.model.name,
        "values": model,
        "data": experiment.data and experiment.data.model_dump(mode="json"),
        "global_batch": plan.get("global_batch"),
        "precision": plan.get("precision"),
        "recompute": plan.get("recompute", "none"),
        "worker": [resources.cpus_per_worker, resources.gpus_per_worker],
    }
    return json.dumps(named, sort_keys=True)

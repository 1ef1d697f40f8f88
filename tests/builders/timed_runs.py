"""Runs whose trials take known times.

The events that a driver would store, and when the run ends.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.experiment import Experiment
from workbench.foundation.events import (
    DriverStarted,
    Event,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)

START_UNIX_S = 1_000_000.0


@dataclass(frozen=True)
class Shape:
    """How the trials of a run go.

    Attributes:
        num_trials: How many there are.
        at_once: How many run at once.
        duration_s: The time of a whole training, by a random generator.
        epochs: Epochs of a training; None for a function, which reports steps.
        startup_s: The part of the time before the first step.
        first_wait_s: How much longer the first trials wait for their workers.
        wait_s: How long every trial waits for its workers.
        pruned: The share of trials that end after a third of their epochs.
        report_s: Seconds between two reports.
        is_queued: Whether all are proposed at the start and wait for places.
    """

    num_trials: int = 12
    at_once: int = 2
    duration_s: Callable[[random.Random], float] = lambda _: 20.0
    epochs: int | None = 10
    startup_s: float = 0.0
    first_wait_s: float = 0.0
    wait_s: float = 0.0
    pruned: float = 0.0
    report_s: float = 0.5
    is_queued: bool = False

    @property
    def experiment(self) -> Experiment:
        subject: dict[str, Any] = {"train": "module:function"}
        if self.epochs is not None:
            subject = {"model": "convnet", "data": "digits", "training": {"epochs": self.epochs}}
        return Experiment(
            **subject,
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
            search={"lr": {"low": 0.1, "high": 1.0}},
            budget={"trials": self.num_trials},
            early_stop={"pruner": "asha"} if self.pruned else {},
        )


def timed_run(shape: Shape, seed: int = 0) -> tuple[list[Event], float]:
    """Return the events of a run in the order of their times, and when its last trial ends."""
    chance = random.Random(seed)
    events: list[Event] = [
        DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=START_UNIX_S),
        RunStateChanged(state="running", time_unix_s=START_UNIX_S),
    ]
    places = [START_UNIX_S] * shape.at_once
    for number in range(shape.num_trials):
        free_unix_s = heapq.heappop(places)
        wait_s = shape.wait_s + (shape.first_wait_s if number < shape.at_once else 0.0)
        proposed_unix_s = START_UNIX_S if shape.is_queued else free_unix_s
        trial_of = _trial(shape, number, proposed_unix_s, free_unix_s + wait_s, chance)
        heapq.heappush(places, trial_of[-1].time_unix_s)
        events += trial_of
    return sorted(events, key=lambda event: event.time_unix_s), max(places)


def _trial(
    shape: Shape, number: int, proposed_unix_s: float, started_unix_s: float, chance: random.Random
) -> list[Event]:
    whole_s = shape.duration_s(chance)
    is_pruned = chance.random() < shape.pruned
    share = 1 / 3 if is_pruned else 1.0
    trained_s = (whole_s - shape.startup_s) * share
    proposal = {"trial": number, "params": {"lr": 0.5}, "configuration": number, "seed": 0}
    events: list[Event] = [
        TrialProposed(**proposal, time_unix_s=proposed_unix_s),
        TrialStarted(trial=number, attempt=0, worker_pids=[1], time_unix_s=started_unix_s),
    ]
    num_reports = max(1, int(trained_s / shape.report_s))
    for report in range(1, num_reports + 1):
        done = share * report / num_reports
        events.append(
            TrialReported(
                trial=number,
                step=round(1000 * done),
                epoch=None if shape.epochs is None else shape.epochs * done,
                values={"val_loss": 1.0},
                time_unix_s=started_unix_s + shape.startup_s + trained_s * report / num_reports,
            )
        )
    return [
        *events,
        TrialEnded(
            trial=number,
            attempt=0,
            state="pruned" if is_pruned else "complete",
            step=round(1000 * share),
            values={"val_loss": 1.0},
            time_unix_s=events[-1].time_unix_s,
        ),
    ]

"""Runs for the benchmark of the live view.

Finished ones of any size, and one whose trials report as told.

As a process (`python -m tests.benchmarks.live_store STORE RUN TRIALS SECONDS`) it is the driver of
a live run: every trial reports twice a second, in one transaction for all that are due, and what
was written when is printed at the end.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import sys
import time
from collections.abc import Iterator

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
from workbench.store.database import Store

METRIC = "val_accuracy"
REPORT_EVERY_S = 0.5
_TICK_S = 0.05


def create(store: Store, name: str, num_trials: int) -> str:
    """Create a run without events."""
    experiment = Experiment(
        name=name,
        model="mlp",
        data="digits",
        objectives=[{"metric": METRIC, "goal": "maximize"}],
        search={"lr": {"low": 1e-4, "high": 0.5, "log": True}, "width": {"choices": [8, 16]}},
        budget={"trials": num_trials},
    )
    return store.create_run(experiment)


def value_of(trial: int, step: int) -> float:
    """Return what a trial reports at a step.

    A curve that rises towards a height of its own, with noise.
    """
    height = 0.3 + 0.69 * random.Random(trial).random()
    return height * (1 - math.exp(-(step + 1) / 200)) + 0.01 * math.sin(
        step * 12.9898 + trial * 78.233
    )


def write_finished(store: Store, run_id: str, num_trials: int, num_steps: int) -> None:
    """Write all events of a run that went well, one trial after another."""
    began_s = time.time() - 2.0 * num_trials
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=platform.node()) as writer:
        writer.append(*_beginning(began_s))
        for trial in range(num_trials):
            at_s = began_s + trial
            reports = (_report(trial, step, at_s + step / 1000) for step in range(num_steps))
            ended = TrialEnded(
                trial=trial,
                attempt=0,
                state="complete",
                values={METRIC: value_of(trial, num_steps)},
                step=num_steps - 1,
                time_unix_s=at_s + 2,
            )
            writer.append(*_start(trial, at_s), *reports, ended)
        writer.append(RunStateChanged(state="complete", reason="trials"))


def report_live(
    store: Store, run_id: str, num_trials: int, for_s: float
) -> list[tuple[int, float, int]]:
    """Report for a while as a driver with so many trials at once does.

    Returns:
        For each transaction: the number of its last event, when it began in Unix seconds, its
        reports.
    """
    notes = []
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=platform.node()) as writer:
        begun = [event for trial in range(num_trials) for event in _start(trial, time.time())]
        writer.append(*_beginning(time.time()), *begun)
        print("ready", flush=True)
        steps = [0] * num_trials
        start_s = time.monotonic()
        while (now_s := time.monotonic() - start_s) < for_s:
            due = list(_due(steps, now_s))
            if due:
                at_s = time.time()
                seq = writer.append(*(_report(trial, step, at_s) for trial, step in due))
                notes.append((seq, at_s, len(due)))
            time.sleep(max(0.0, _TICK_S - (time.monotonic() - start_s - now_s)))
    return notes


def _due(steps: list[int], now_s: float) -> Iterator[tuple[int, int]]:
    """Count the trials on whose next report has come, each at a moment of its own in the half
    second.
    """
    for trial in range(len(steps)):
        while (steps[trial] + trial / len(steps)) * REPORT_EVERY_S <= now_s:
            yield trial, steps[trial]
            steps[trial] += 1


def _beginning(at_s: float) -> tuple[Event, ...]:
    return (
        DriverStarted(pid=os.getpid(), host=platform.node(), num_cpus=2, time_unix_s=at_s),
        RunStateChanged(state="running", time_unix_s=at_s),
    )


def _start(trial: int, at_s: float) -> tuple[Event, ...]:
    chosen = random.Random(trial)
    params = {"lr": 10 ** chosen.uniform(-4, -0.3), "width": chosen.choice([8, 16])}
    return (
        TrialProposed(
            trial=trial, params=params, configuration=trial, seed=trial, time_unix_s=at_s
        ),
        TrialStarted(trial=trial, attempt=0, worker_pids=[1], time_unix_s=at_s),
    )


def _report(trial: int, step: int, at_s: float) -> TrialReported:
    return TrialReported(
        trial=trial,
        step=step,
        epoch=step / 100,
        values={METRIC: value_of(trial, step)},
        samples_per_s=1000.0 + step % 50,
        parts_s={"data": 0.001, "forward": 0.002},
        time_unix_s=at_s,
    )


if __name__ == "__main__":
    path, run, trials, seconds = sys.argv[1:]
    with Store.open(path) as opened:
        print(json.dumps(report_live(opened, run, int(trials), float(seconds))))

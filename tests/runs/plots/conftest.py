from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.experiment import Experiment
from workbench.foundation.events import (
    DriverStarted,
    Event,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
    from_json,
)

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="session")
def recorded_experiment() -> Experiment:
    return Experiment.from_file(DATA / "recorded_run.yaml")


@pytest.fixture(scope="session")
def recorded_events() -> list[Event]:
    return [from_json(line) for line in (DATA / "recorded_run.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def two_objectives() -> Experiment:
    return Experiment(
        name="two goals",
        train="package.module:function",
        objectives=[
            {"metric": "error", "goal": "minimize"},
            {"metric": "speed", "goal": "maximize"},
        ],
        constraints=[{"metric": "memory", "at_most": 9}],
        search={"x": {"low": 0.1, "high": 10.0, "log": True}, "kind": {"choices": ["a", "b"]}},
    )


@pytest.fixture(scope="session")
def one_objective() -> Experiment:
    return Experiment(
        name='<b>bold<b> & "quoted"',
        train="package.module:function",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={
            "x": {"low": 0.1, "high": 10.0, "log": True},
            "kind": {"choices": ["a<i>", "b"]},
            "depth": {"low": 1, "high": 3, "when": {"kind": "b"}},
        },
    )


@pytest.fixture(scope="session")
def make_events() -> Callable[..., list[Event]]:
    """Return a function that writes the events of a run on a noisy bowl, in which every 20th
    diverges.
    """

    def make(
        experiment: Experiment, num_trials: int, *, num_reports: int = 10, state: str = "complete"
    ):
        rng = random.Random(0)
        events: list[Event] = [
            DriverStarted(
                time_unix_s=1e9, pid=1, host="<host>", num_cpus=4, versions={"torch": "2.13.0"}
            ),
            RunStateChanged(time_unix_s=1e9, state="running"),
        ]
        for trial in range(num_trials):
            params = experiment.search.sample(rng)
            now = 1e9 + 3.0 * trial
            events.append(
                TrialProposed(
                    time_unix_s=now, trial=trial, params=params, configuration=trial, seed=trial
                )
            )
            events.append(
                TrialStarted(time_unix_s=now + 0.5, trial=trial, attempt=0, worker_pids=[trial])
            )
            values: dict[str, float] = {}
            for step in range(1, num_reports + 1):
                bowl = math.log(params["x"]) ** 2 + rng.gauss(1, 0.1) + 3 / step
                values = {
                    "loss": bowl,
                    "error": bowl,
                    "speed": 1 / bowl + rng.random(),
                    "memory": 10 * rng.random(),
                }
                if trial % 20 == 7:
                    values = dict.fromkeys(values, rng.choice([math.nan, math.inf, -math.inf]))
                at = {"time_unix_s": now + 0.5 + step * 0.2, "step": step}
                events.append(
                    TrialReported(**at, trial=trial, values=values, samples_per_s=100.0 + trial)
                )
            failed = state == "failed" or trial % 20 == 7
            events.append(
                TrialEnded(
                    time_unix_s=now + 2.9,
                    trial=trial,
                    attempt=0,
                    state="failed" if failed else state,
                    reason="diverged" if failed else None,
                    message="<script>alert(1)</script> became NaN" if failed else None,
                    traceback="File <string>, line 1" if failed else None,
                    values=values,
                    step=num_reports,
                )
            )
        events.append(
            RunStateChanged(time_unix_s=1e9 + 3.0 * num_trials, state="complete", reason="trials")
        )
        return events

    return make

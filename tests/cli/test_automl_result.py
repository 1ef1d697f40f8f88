"""The time and the end of an AutoML run, as the terminal shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.recorded_runs import append, begin, finish, trial_events
from workbench.cli.automl_result import lines_without_result, time_lines
from workbench.experiment import Experiment
from workbench.foundation.events import (
    DriverStarted,
    Event,
    RunState,
    RunStateChanged,
    SettingsChanged,
    TrialEnded,
    TrialProposed,
    TrialStarted,
)
from workbench.runs import attach
from workbench.store.database import Store
from workbench.store.history import History

EXPERIMENT = Experiment(
    model="mlp",
    data={"name": "digits", "held_out": "hash"},
    objectives=[{"metric": "val_loss", "goal": "minimize"}],
    search={"lr": {"low": 0.1, "high": 1.0}},
    budget={"time": 100.0},
)


def ended_run(tried_s: float, chosen_s: float) -> History:
    ended_s = 1000.0 + tried_s
    events: list[Event] = [
        DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=1000.0),
        RunStateChanged(state="running", time_unix_s=1000.0),
        SettingsChanged(settings={}, waited_s=8.0, time_unix_s=1001.0),
        TrialProposed(trial=0, params={"lr": 0.5}, configuration=0, seed=0, time_unix_s=1001.0),
        TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=1001.0),
        TrialEnded(trial=0, attempt=0, state="complete", time_unix_s=ended_s),
        RunStateChanged(state="complete", reason="time", time_unix_s=ended_s + chosen_s),
    ]
    return History.of(EXPERIMENT, events)


def test_a_run_within_its_time_shows_its_parts() -> None:
    assert time_lines(ended_run(80.0, 7.0), 97.0) == [
        "time    1 min 37 s: 10 s to start, 1 min 20 s to try, 7 s to choose and test"
    ]


def test_a_run_that_an_earlier_command_started_shows_the_whole_and_this_part() -> None:
    assert time_lines(ended_run(80.0, 7.0), 30.0) == [
        "time    1 min 35 s, 30 s of it since this command:"
        " 8 s to start, 1 min 20 s to try, 7 s to choose and test"
    ]


def test_choosing_begins_when_trials_without_a_worker_are_given_up() -> None:
    events: list[Event] = [
        DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=1000.0),
        RunStateChanged(state="running", time_unix_s=1000.0),
        SettingsChanged(settings={}, waited_s=60.0, time_unix_s=1001.0),
        TrialProposed(trial=0, params={"lr": 0.5}, configuration=0, seed=0, time_unix_s=1001.0),
        RunStateChanged(state="stopping", reason="time", time_unix_s=1009.0),
        RunStateChanged(state="complete", reason="time", time_unix_s=1050.0),
    ]
    time, over = time_lines(History.of(EXPERIMENT, events), 110.0)
    assert time == "time    1 min 50 s: 1 min to start, 9 s to try, 41 s to choose and test"
    assert "one model is chosen and tested in any case" in over


def test_all_time_of_a_run_without_trials_is_to_choose() -> None:
    events: list[Event] = [
        DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=1000.0),
        RunStateChanged(state="running", time_unix_s=1000.0),
        SettingsChanged(settings={}, waited_s=12.0, time_unix_s=1000.0),
        RunStateChanged(state="complete", reason="time", time_unix_s=1025.0),
    ]
    (time,) = time_lines(History.of(EXPERIMENT, events), 39.0)
    assert time == "time    39 s: 14 s to start, 0 s to try, 25 s to choose and test"


@pytest.mark.parametrize(
    ("parts_s", "over", "why"),
    [
        ((70.0, 9.0, 5.0), None, None),
        ((8.0, 4.0, 200.0), "1 min 52 s", "starting processes left little"),
        ((80.0, 60.0, 10.0), "50 s", "one model is chosen and tested in any case"),
        ((80.0, 10.0, 45.0), "35 s", "trials that were under way took that long to end"),
        ((150.0, 3.0, 8.0), "1 min 1 s", "trials that were under way took that long to end"),
    ],
)
def test_a_run_beyond_its_time_shows_by_how_much_and_why(
    parts_s: tuple[float, float, float], over: str | None, why: str | None
) -> None:
    *_, last = lines = time_lines(ended_run(*parts_s[:2]), sum(parts_s))
    assert (len(lines) == 2) == (over is not None)
    if over is not None and why is not None:
        assert last.strip().startswith(f"{over} longer than the 1 min 40 s that you allowed: ")
        assert why in last


@pytest.mark.parametrize(
    ("events", "state", "lines"),
    [
        (
            [
                *trial_events(0, at_s=1, state="failed", reason="error"),
                *finish(2, "failed", "failures"),
            ],
            "failed",
            [
                "failed (failures): no model was trained",
                "failed  ValueError: too wide (x.py:1)",
                "run     {run_id}",
            ],
        ),
        (
            trial_events(0, at_s=1, state="running"),
            "lost",
            [
                "lost (its driver is gone): no model was trained",
                "logs    {folder}",
                "run     {run_id}",
                "        resume it  workbench resume {run_id}",
            ],
        ),
        (
            [*trial_events(0, at_s=1), *trial_events(1, at_s=2)],
            "lost",
            [
                "lost (its driver is gone): no model was chosen yet from 2 trainings",
                "logs    {folder}",
                "run     {run_id}",
                "        resume it  workbench resume {run_id}",
            ],
        ),
    ],
)
def test_a_run_without_a_result_states_the_first_error_and_the_next_step(
    tmp_path: Path, events: list[Event], state: RunState, lines: list[str]
) -> None:
    url = str(tmp_path / "store.sqlite")
    with Store.open(url) as store:
        run_id = store.create_run(EXPERIMENT)
        append(store, run_id, [*begin(), *events])
    run = attach(run_id, store=url)

    first, *rest = lines_without_result(run, run.history, state)

    expected = [line.format(run_id=run_id, folder=run.folder) for line in lines]
    assert [first.removeprefix(f"{run.name} "), *rest][: len(expected)] == expected

"""What earlier trials tell about the speed of a plan and the cost of a restart."""

from __future__ import annotations

import socket
from typing import Any

import pytest

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
from workbench.sweeps.step_times import StepTimes, read_step_times

PAIR = {"workers": 2, "micro_batch": 32}


def experiment(**fields: Any) -> Experiment:
    objective = {"metric": "val_loss", "goal": "minimize"}
    return Experiment(**{"model": "mlp", "data": "digits", "objectives": [objective], **fields})


def planned(workers: int, *, trial: int = 0, at_s: float = 0.0) -> TrialPlanned:
    plan = {"workers": workers, "micro_batch": 64 // workers, "accumulation": 1, "global_batch": 64}
    return TrialPlanned(trial=trial, plan={**plan, "precision": "fp32"}, time_unix_s=at_s)


def attempt(workers: int, *speeds: float, trial: int = 0, **params: Any) -> list[Event]:
    return [
        TrialProposed(trial=trial, params=params, configuration=trial, seed=0),
        TrialStarted(trial=trial, attempt=0, worker_pids=[1] * workers),
        planned(workers, trial=trial),
        *(TrialReported(trial=trial, step=n, samples_per_s=speed) for n, speed in enumerate(speeds)),
    ]


def times_of(*events: Event, **fields: Any) -> StepTimes:
    times = StepTimes()
    times.begin(experiment(**fields))
    for event in events:
        times.apply(event)
    return times


def test_the_usual_speed_is_the_median_without_the_first_report_of_an_attempt() -> None:
    times = times_of(*attempt(2, 5.0, 1000.0, 1100.0, 1900.0), *attempt(1, 5.0, 600.0, trial=1))
    assert times.usual(1, PAIR) == 1100.0
    assert times.current(1) == 600.0
    assert times.usual(1, {"workers": 3, "micro_batch": 32}) is None
    assert times.usual(1, {"workers": 2, "micro_batch": 16}) is None


def test_speeds_of_another_model_size_or_global_batch_say_nothing_but_those_of_another_rate_do() -> None:
    pair = attempt(2, 5.0, 1000.0, hidden_width=64, lr=0.1)
    same = times_of(*pair, *attempt(1, 5.0, 600.0, trial=1, hidden_width=64, lr=0.2))
    wider = times_of(*pair, *attempt(1, 5.0, 600.0, trial=1, hidden_width=128, lr=0.1))
    assert (same.usual(1, PAIR), wider.usual(1, PAIR)) == (1000.0, None)


def test_the_speed_of_a_trial_is_unknown_until_its_second_report_and_between_attempts() -> None:
    times = times_of(*attempt(1, 5.0))
    assert times.current(0) is None
    times.apply(TrialReported(trial=0, step=2, samples_per_s=600.0))
    times.apply(TrialReported(trial=0, step=1, samples_per_s=50.0, told_again=True))
    assert times.current(0) == 600.0
    times.apply(AttemptEnded(trial=0, attempt=0, reason="resized", message=""))
    assert times.current(0) is None


@pytest.mark.parametrize(("reason", "known"), [("lost", [4.0]), ("resized", [4.0]), ("stopped", [])])
def test_a_restart_costs_the_time_until_training_goes_on_unless_nobody_wanted_it_to(
    reason: Any, known: list[float]
) -> None:
    ended = AttemptEnded(trial=0, attempt=0, reason=reason, message="", time_unix_s=100.0)
    times = times_of(*attempt(1), ended, planned(1, at_s=104.0))
    assert times.restarts_s == known
    assert times.last_restart_s(0) == (known[0] if known else None)


def test_the_time_until_another_driver_came_is_no_cost_of_a_restart() -> None:
    ended = AttemptEnded(trial=0, attempt=0, reason="resized", message="", time_unix_s=100.0)
    driver = DriverStarted(pid=1, host="here", num_cpus=2)
    assert times_of(*attempt(1), ended, driver, planned(1, at_s=9000.0)).restarts_s == []


def test_only_runs_of_the_same_model_and_data_on_this_machine_are_read(store: Store) -> None:
    def record(host: str, speed: float, **fields: Any) -> str:
        run_id = store.create_run(experiment(**fields))
        with store.writer(run_id, owner_pid=1, owner_host=host) as writer:
            writer.append(DriverStarted(pid=1, host=host, num_cpus=2), *attempt(2, 5.0, speed))
        return run_id

    here = socket.gethostname()
    record(here, 1000.0)
    record(here, 3000.0, model={"name": "mlp", "hidden_width": 16})
    record(here, 3000.0, data="breast_cancer")
    record("elsewhere", 3000.0)
    last = record(here, 1200.0, training={"epochs": 7})
    times = read_step_times(store, last, store.experiment(last))
    assert times.usual(0, PAIR) == 1100.0
    assert times.current(0) == 1200.0

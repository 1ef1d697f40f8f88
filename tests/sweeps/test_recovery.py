"""Processes killed in the middle of a run.

Nothing that ended is lost or repeated, the rest goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.services.sweeps import Sweep, make_experiment
from tests.services.waiting import wait_until
from workbench.cluster.workers import pool_client
from workbench.foundation.events import (
    AttemptEnded,
    CheckpointSaved,
    DriverStarted,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


def go_on(store: Store, **fields: object) -> Sweep:
    """A run whose trials save each of their steps and go on from there."""
    options = {"steps": 12, "pause_s": 0.15}
    return Sweep.create(store, "go_on", **{"options": options, "budget": {"trials": 3}, **fields})


def steps_of(sweep: Sweep, trial: int) -> list[int]:
    return [report.step for report in sweep.of(TrialReported, trial)]


def test_a_killed_worker_costs_an_attempt_and_no_step(store: Store) -> None:
    sweep = go_on(store, budget={"trials": 2}).drive()
    sweep.wait_for(TrialReported, lambda event: event.step == 4)

    os.kill(sweep.trials[0].worker_pids[0], signal.SIGKILL)
    sweep.wait("complete")
    [lost] = sweep.of(AttemptEnded)
    assert (lost.trial, lost.attempt, lost.reason) == (0, 0, "lost")
    assert "died: its process ended" in lost.message
    assert [event.attempt for event in sweep.of(TrialStarted, 0)] == [0, 1]
    steps = steps_of(sweep, 0)
    assert steps == sorted(steps)
    # The report that was on its way is lost, or its step is done again.
    assert len({*range(1, 13)} - {*steps}) <= 1
    assert len(steps) <= 13
    assert [trial.state for trial in sweep.trials] == ["complete"] * 2
    sweep.assert_sound()


def test_an_interrupted_run_of_this_process_is_not_complete_and_goes_on_when_it_is_resumed(
    store: Store,
) -> None:
    sweep = go_on(store, budget={"trials": 2}, options={"steps": 6, "pause_s": 0.15})

    def interrupt() -> None:
        sweep.wait_for(TrialReported, lambda event: event.step == 3)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        sweep.launch("inline")
    assert sweep.state == "stopped"
    assert [(trial.state, trial.attempts) for trial in sweep.trials] == [("stopped", 1)]
    assert [(ended.trial, ended.reason) for ended in sweep.of(AttemptEnded)] == [(0, "stopped")]
    wait_until(lambda: sweep.run_id not in leased())
    assert not [thread for thread in threading.enumerate() if thread.name == "coordinator"]

    sweep.launch("inline").wait("complete")
    assert [trial.state for trial in sweep.trials] == ["complete"] * 2
    assert steps_of(sweep, 0)[-1] == 6
    sweep.assert_sound()


@pytest.mark.slow
def test_a_trial_whose_workers_always_die_is_given_up_after_its_retries(store: Store) -> None:
    sweep = Sweep.create(
        store, "kill_myself", budget={"trials": 2}, resources={"concurrency": 1, "max_retries": 1}
    ).launch()
    sweep.wait("failed")

    for trial in sweep.trials:
        assert (trial.state, trial.reason, trial.attempts) == ("failed", "lost", 2)
        assert "died" in (trial.message or "")
    assert len(sweep.of(AttemptEnded)) == 2
    sweep.assert_sound()


@pytest.mark.slow
def test_retries_are_counted_over_driver_restarts_and_deaths_of_the_driver_are_none(
    store: Store,
) -> None:
    sweep = go_on(
        store,
        options={"steps": 300, "pause_s": 0.1},
        budget={"trials": 1},
        resources={"concurrency": 1, "max_retries": 1},
    ).launch()
    for attempt, victim in enumerate(("worker", "driver", "driver", "worker")):
        sweep.wait_for(TrialReported, lambda event, attempt=attempt: event.attempt == attempt)
        pids = {"worker": sweep.trials[0].worker_pids[0], "driver": sweep.of(DriverStarted)[-1].pid}
        os.kill(pids[victim], signal.SIGKILL)
    sweep.wait("failed")

    [trial] = sweep.trials
    assert (trial.state, trial.reason, trial.attempts) == ("failed", "lost", 4)
    assert [event.is_retry for event in sweep.of(AttemptEnded)] == [True, False, False]
    sweep.assert_sound()


@pytest.mark.slow
def test_a_model_resumes_at_the_epoch_of_its_last_checkpoint(store: Store) -> None:
    sweep = Sweep(
        store,
        store.create_run(
            make_experiment(
                "go_on",
                train=None,
                model="mlp",
                data="digits",
                objectives=[{"metric": "val_loss", "goal": "minimize"}],
                search={"lr": {"choices": [0.01]}},
                sampler="grid",
                training={"epochs": 40, "global_batch": 64},
            )
        ),
    ).drive()
    saved = sweep.wait_for(CheckpointSaved, lambda event: event.step > 40)
    os.kill(sweep.trials[0].worker_pids[0], signal.SIGKILL)
    sweep.wait("complete")

    first, second = sweep.of(TrialStarted)
    assert first.resumed_from is None
    assert second.resumed_from is not None
    again = [report for report in sweep.of(TrialReported) if report.attempt == 1]
    assert again[0].step > saved.step
    evaluated = [report.epoch for report in sweep.of(TrialReported) if "val_loss" in report.values]
    assert evaluated[-1] == 40
    assert len(evaluated) - len(set(evaluated)) <= 2
    sweep.assert_sound()


def leased() -> dict[str, int]:
    """How many workers each run has leased of the test session's pool."""
    status = pool_client.status(timeout_s=120)
    return status.leased if status is not None else {}


@pytest.mark.slow
def test_a_frozen_driver_is_replaced_when_its_run_is_resumed(store: Store) -> None:
    sweep = go_on(store, options={"steps": 4, "pause_s": 0.2}, budget={"trials": 6}).launch()
    sweep.wait_for(TrialReported, lambda event: event.trial == 2)
    frozen = psutil.Process(sweep.of(DriverStarted)[-1].pid)
    frozen.suspend()
    # It is silent, not lost: its process lives, as that of a driver on a busy machine does.
    wait_until(lambda: store.run(sweep.run_id).silent_s is not None)
    sweep.launch()
    sweep.wait("complete")
    assert not frozen.is_running()
    assert sorted(event.trial for event in sweep.of(TrialEnded)) == list(range(6))
    sweep.assert_sound()


def test_a_killed_driver_comes_back_and_proposes_what_it_would_have_proposed(store: Store) -> None:
    fields = {
        "options": {"steps": 4, "pause_s": 0.1},
        "budget": {"trials": 6},
        "sampler": "tpe",
        "seed": 7,
    }
    fields["early_stop"] = {"pruner": "median", "startup_trials": 2}
    undisturbed = go_on(store, **fields).drive()
    sweep = go_on(store, **fields)
    undisturbed.wait("complete")
    sweep.launch()
    sweep.wait_for(TrialReported, lambda event: event.trial == 3)
    os.kill(sweep.of(DriverStarted)[-1].pid, signal.SIGKILL)
    sweep.wait("complete")

    assert len({event.pid for event in sweep.of(DriverStarted)}) == 2
    assert [event.params for event in sweep.of(TrialProposed)] == [
        event.params for event in undisturbed.of(TrialProposed)
    ]
    ended = [event.trial for event in sweep.of(TrialEnded)]
    assert ended == sorted(set(ended))
    assert len(ended) == 6
    assert [trial.state for trial in sweep.trials] == [trial.state for trial in undisturbed.trials]
    assert [trial.values for trial in sweep.trials] == [
        trial.values for trial in undisturbed.trials
    ]
    assert max(len(steps_of(sweep, number)) for number in range(6)) <= 5
    sweep.assert_sound()


@pytest.mark.slow
def test_a_driver_killed_while_it_stops_the_run_comes_back_and_stops_it(store: Store) -> None:
    sweep = Sweep.create(store, "never_listen", budget={"trials": 2}).launch()
    sweep.wait_for(TrialReported)
    driver = psutil.Process(sweep.of(DriverStarted)[-1].pid)
    store.command(sweep.run_id, "stop", {})
    wait_until(lambda: sweep.state == "stopping" and not driver.kill())
    sweep.wait("stopped")
    assert sweep.history.reason == "person"
    assert len(sweep.of(TrialStarted)) == 1
    sweep.assert_sound()


LAUNCH = """
import sys
from workbench.store.database import Store
from workbench.cluster.workers import pool_client
from workbench.sweeps.launchers import launch
with Store.open(sys.argv[1]) as store:
    launch(store, sys.argv[2])
"""


@pytest.fixture
def own_head(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a Ray head that nobody else uses."""
    home = tmp_path / "home"
    environment = os.environ | {
        "WORKBENCH_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    for variable in ("RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        environment.pop(variable, None)
    yield environment
    program = "from workbench.cluster.head import local_head; local_head.shutdown()"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)


@pytest.mark.slow
def test_after_the_whole_cluster_was_killed_a_launch_goes_on(
    store: Store, own_head: dict[str, str]
) -> None:
    sweep = go_on(store, options={"steps": 20, "pause_s": 0.2}, budget={"trials": 4})

    def launch() -> None:
        words = [sys.executable, "-c", LAUNCH, store.url, sweep.run_id]
        subprocess.run(words, env=own_head, check=True, timeout=120)

    launch()
    sweep.wait_for(TrialReported, lambda event: (event.trial, event.step) == (1, 5))
    driver = psutil.Process(sweep.of(DriverStarted)[-1].pid)
    keeper = next(
        process
        for process in driver.parents()
        if "workbench.cluster.head.keeper" in process.cmdline()
    )
    everybody = [keeper, *keeper.children(recursive=True)]
    for process in everybody:
        process.kill()
    psutil.wait_procs(everybody, timeout=120)
    ended = [event.trial for event in sweep.of(TrialEnded)]
    assert 0 in ended
    assert sweep.history.in_state("running"), "it was killed in the middle"

    launch()
    sweep.wait("complete")
    assert [event.trial for event in sweep.of(TrialEnded)] == [0, 1, 2, 3]
    assert len(sweep.trials) == 4
    assert steps_of(sweep, 0) == list(range(1, 21))
    assert len(steps_of(sweep, 1)) <= 21
    sweep.assert_sound()

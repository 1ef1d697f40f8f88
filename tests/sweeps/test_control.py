"""Settings that change, runs that go on for longer, trials that are stopped, runs that are
replayed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.services.sweeps import Sweep
from tests.services.waiting import wait_until
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import (
    AttemptEnded,
    CommandHandled,
    DriverStarted,
    PriorTrialAdded,
    SettingsChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.runs import Run
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


def hold(store: Store, notes: Path, **fields: object) -> tuple[Sweep, Run]:
    """A run whose trials report every 0.1 s until they are told to stop."""
    options = {"notes": str(notes), **fields.pop("options", {})}  # type: ignore[dict-item]
    sweep = Sweep.create(store, "hold", options=options, **fields)
    return sweep, Run(store, sweep.run_id)


def proposals(sweep: Sweep) -> list[dict[str, object]]:
    measured = {"time_unix_s", "choosing_s"}
    return [event.model_dump(exclude=measured) for event in sweep.of(TrialProposed)]


def goes_on(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def num_running(sweep: Sweep) -> int:
    return len(sweep.history.in_state("running"))


@pytest.mark.slow
def test_more_trials_run_at_once_as_soon_as_they_may_and_a_new_driver_knows(
    store: Store, notes: Path
) -> None:
    sweep, run = hold(store, notes, budget={"trials": 30, "time": 3600})
    sweep.launch().wait_for(TrialReported)
    assert num_running(sweep) == 1

    assert run.set(concurrency=2) == "2 trials at once"
    sweep.wait_for(TrialReported, lambda event: event.trial == 1)
    assert num_running(sweep) == 2
    assert [event.trial for event in sweep.of(TrialProposed)] == [0, 1]
    assert "the hardware has room for 2 (1 CPU each), so the others wait" in (
        run.set(concurrency=3) or ""
    )
    assert "as soon as 1 of the 2 running trials has ended" in (
        run.set(concurrency=1, trials=4, plateau=9) or ""
    )
    os.kill(sweep.of(DriverStarted)[-1].pid, signal.SIGKILL)
    wait_until(lambda: len(sweep.of(DriverStarted)) == 2 and num_running(sweep) == 1)

    assert run.to_json()["settings"] == {
        "resources.concurrency": 1,
        "budget.trials": 4,
        "budget.time": 3600.0,
        "budget.gpu_time": None,
        "budget.energy": None,
        "budget.money": None,
        "budget.plateau": 9,
        "confirm.best": None,
    }
    assert store.run(sweep.run_id).experiment_hash == sweep.experiment.hash()
    assert num_running(sweep) == 1
    assert run.set(trials=3) == "at most 3 configurations"
    for number in range(3):
        sweep.wait_for(TrialStarted, lambda event, trial=number: event.trial == trial)
        run.stop(trial=number)
    sweep.wait("complete")
    assert (sweep.history.reason, len(sweep.trials)) == ("trials", 3)
    handled = sweep.of(CommandHandled)
    assert [event.command for event in handled] == list(range(1, len(handled) + 1))
    assert len(sweep.of(SettingsChanged)) == 4
    sweep.assert_sound()


def test_a_limit_that_is_used_up_when_it_is_set_ends_the_run(store: Store, notes: Path) -> None:
    sweep, run = hold(store, notes, budget={"trials": 3})
    sweep.drive().wait_for(TrialReported)
    run.set(time=0.1)
    sweep.wait("complete")
    assert sweep.history.reason == "time"
    assert [event.reason for event in sweep.of(AttemptEnded)] == ["stopped"]
    with pytest.raises(RunError, match="has ended"):
        run.set(time=60)
    with pytest.raises(ExperimentError, match="would end at once"):
        run.extend(trials=1)
    sweep.assert_sound()


def test_a_budget_in_money_is_changed_and_extended_and_ends_the_run(
    store: Store, notes: Path
) -> None:
    sweep, run = hold(store, notes, budget={"money": "5 EUR", "price": "36 EUR/h"})
    sweep.drive().wait_for(TrialReported)
    assert run.set(money="4.50 EUR") == "at most 4.50 EUR"
    assert run.extend(money=1.5) == "at most 6.00 EUR"
    with pytest.raises(ExperimentError, match="not in the currency of the price"):
        run.extend(money="1 USD")
    run.set(money=0.001)
    sweep.wait("complete")
    assert sweep.history.reason == "money"
    sweep.assert_sound()


@pytest.mark.slow
def test_a_run_that_goes_on_proposes_what_a_longer_one_would_have(store: Store) -> None:
    fields = {
        "options": {"steps": 2},
        "sampler": {"name": "tpe", "options": {"n_startup_trials": 3}},
    }
    longer = Sweep.create(store, "curve", budget={"trials": 9}, **fields).launch()
    sweep = Sweep.create(store, "curve", budget={"trials": 4}, **fields).launch().wait("complete")
    run = Run(store, sweep.run_id)
    with pytest.raises(RunError, match=rf'wb.attach\("{sweep.run_id}"\).extend\(trials=10\)'):
        run.resume()
    with pytest.raises(ExperimentError, match="no such limit"):
        run.extend(time="1h")

    assert run.extend(trials=3) == "at most 7 configurations"
    assert run.extend(trials=2) == "at most 9 configurations"
    sweep.wait("complete")
    longer.wait("complete")

    wait_until(lambda: len(sweep.trials) == 9)
    assert proposals(sweep) == proposals(longer)
    assert [trial.values["loss"] for trial in sweep.trials] == [
        trial.values["loss"] for trial in longer.trials
    ]
    sweep.wait("complete").assert_sound()


@pytest.mark.slow
def test_a_stopped_run_is_extended_and_finishes_what_it_had_begun(
    store: Store, notes: Path
) -> None:
    sweep, run = hold(store, notes, options={"steps": 8}, budget={"trials": 1})
    sweep.drive().wait_for(TrialReported)
    run.stop()
    sweep.wait("stopped")
    assert run.extend(trials=1) == "at most 2 configurations"
    sweep.wait("complete")
    assert [(trial.state, trial.attempts) for trial in sweep.trials] == [
        ("complete", 2),
        ("complete", 1),
    ]
    sweep.assert_sound()


@pytest.mark.parametrize("how", ["listens", pytest.param("deaf", marks=pytest.mark.slow)])
def test_a_stopped_trial_takes_the_processes_that_it_started_along(store: Store, how: str) -> None:
    search = {"x": {"choices": [how]}}
    sweep = Sweep.create(store, "breed", search=search, budget={"trials": 1}).drive()
    report = sweep.wait_for(TrialReported)
    started = [psutil.Process(int(report.values[name])) for name in ("child", "shell")]
    started += wait_until(lambda: started[1].children())
    worker = psutil.Process(sweep.trials[0].worker_pids[0])

    assert Run(store, sweep.run_id).stop(trial=0) == "trial 0 is stopping"
    sweep.wait("complete")
    assert sweep.trials[0].state == "stopped"
    wait_until(lambda: not any(goes_on(process) for process in started))
    if how == "deaf":  # the process that trained it had to end, too
        wait_until(lambda: not goes_on(worker))


@pytest.mark.slow
def test_a_trial_that_takes_too_long_takes_the_processes_that_it_started_along(
    store: Store,
) -> None:
    search = {"x": {"choices": ["deaf"]}}
    resources = {"concurrency": 1, "trial_time": 2}
    sweep = Sweep.create(
        store, "breed", search=search, budget={"trials": 1}, resources=resources
    ).launch()
    report = sweep.wait_for(TrialReported)
    started = [psutil.Process(int(report.values[name])) for name in ("child", "shell")]
    sweep.wait("failed")
    assert (sweep.trials[0].state, sweep.trials[0].reason) == ("failed", "timeout")
    wait_until(lambda: not any(goes_on(process) for process in started))


@pytest.mark.slow
def test_a_trial_that_waits_for_its_turn_or_for_workers_is_stopped_too(
    store: Store, notes: Path
) -> None:
    held = Gang.lease(Request(run_id="somebody-elses"))
    try:
        sweep, run = hold(store, notes, resources={"concurrency": 2}, budget={"trials": 2})
        sweep.launch()
        wait_until(lambda: num_running(sweep) == 1 and len(sweep.trials) == 2)
        [later] = [trial.number for trial in sweep.history.in_state("waiting")]
        run.stop()
        sweep.wait("stopped")
        store.command(sweep.run_id, "set", {"resources.concurrency": 1})
        last = store.command(sweep.run_id, "stop_trial", {"trial": later})
        sweep.launch()
        sweep.wait_for(CommandHandled, lambda event: event.command == last)
        assert sweep.trials[later].state == "stopped"
        wait_until(lambda: num_running(sweep) == 1)

        run.set(concurrency=2, trials=4)
        wait_until(lambda: num_running(sweep) == 1 and len(sweep.trials) == 3)
        [waiting] = sweep.history.in_state("waiting")
        before = sweep.of(TrialStarted, waiting.number)
        run.stop(trial=waiting.number)
        sweep.wait_for(TrialEnded, lambda event: event.trial == waiting.number)
        assert sweep.of(TrialStarted, waiting.number) == before
        run.stop()
        sweep.wait("stopped").assert_sound()
    finally:
        held.release()


@pytest.mark.slow
def test_a_parallel_sweep_is_replayed_with_the_same_proposals_in_the_same_order(
    store: Store, notes: Path
) -> None:
    sampler = {"name": "tpe", "options": {"n_startup_trials": 2}}
    earlier = Sweep.create(store, "curve", budget={"trials": 3}).launch()
    sweep, run = hold(
        store,
        notes,
        options={"steps": 3, "pause_s": 0.05},
        sampler=sampler,
        budget={"trials": 6},
        resources={"concurrency": 2},
        objectives=[{"metric": "loss", "goal": "minimize", "target": 0.0}],
    )
    store.command(sweep.run_id, "enqueue", {"params": {"x": 0.125}})
    earlier.wait("complete")
    sweep.launch(warm_start=[earlier.run_id])
    run.set(trials=8)
    sweep.wait("complete")
    assert len(sweep.of(PriorTrialAdded)) == 3

    replay = run.replay().wait(timeout_s=120)

    again = Sweep(store, replay.run_id).wait("complete")
    assert proposals(again) == proposals(sweep)
    assert [trial.source for trial in again.trials] == ["enqueued", *["sampler"] * 7]
    assert replay.comparison is not None
    assert (
        str(replay.comparison)
        == f"replay of {run.run_id}: 8 of 8 proposals identical; largest difference of loss 0"
        " (trial 0), 8 trials complete in both"
    )
    assert replay.to_json()["replay"]["of_run_id"] == run.run_id
    assert again.history.message == f"all proposals of {run.run_id} have been tried"
    with pytest.raises(ExperimentError, match=f"replays {run.run_id}"):
        replay.extend(trials=1)
    again.assert_sound()


def test_a_run_that_has_proposed_nothing_cannot_be_replayed(store: Store) -> None:
    empty = Sweep.create(store, "curve")
    with pytest.raises(RunError, match="has no proposals to try again"):
        Run(store, empty.run_id).replay()
    assert len(store.runs()) == 1
    sweep = Sweep.create(store, "curve")
    store.command(sweep.run_id, "replay", {"run_id": empty.run_id})
    sweep.drive().wait("failed")
    assert "has no proposals" in (sweep.history.message or "")
    assert sweep.trials == []

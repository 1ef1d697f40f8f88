"""Whether growing pays, judged by numbers; and trials that really grow."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.services.clusters import Cluster
from tests.services.sweeps import Sweep, make_experiment, start_on
from workbench.foundation.events import (
    AttemptEnded,
    DriverStarted,
    Noted,
    ResizeMeasured,
    RunStateChanged,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialResized,
    TrialStarted,
)
from workbench.runs import Run
from workbench.store.database import Store
from workbench.sweeps.elastic_gain import MIN_SAVING, estimate_gain

SPEED = st.floats(0.1, 1e6)
SAMPLES = st.floats(0, 1e9)
SECONDS = st.floats(0, 1e4)


@pytest.mark.parametrize(
    ("left", "now", "expected", "restart_s", "left_s", "saving_s", "pays"),
    [
        (100_000, 1000, 2000, 10, 100, 40, True),
        (100_000, 1000, 1100, 10, 100, -0.909, False),  # hardly faster
        (15_000, 1000, 2000, 10, 15, -2.5, False),  # nearly done
        (100_000, 1000, 1000, 0, 100, 0, False),  # as fast
        (100_000, 1000, 500, 0, 100, -100, False),  # slower
        (100_000, 1000, 2000, 41, 100, 9, False),  # saves less than speeds are exact
        (0, 1000, 2000, 0, 0, 0, False),
    ],
)
def test_growing_pays_where_what_is_left_clearly_ends_earlier(
    *,
    left: float,
    now: float,
    expected: float,
    restart_s: float,
    left_s: float,
    saving_s: float,
    pays: bool,
) -> None:
    found = estimate_gain(left, now, expected, restart_s)
    assert (found.left_s, found.saving_s) == (
        pytest.approx(left_s),
        pytest.approx(saving_s, abs=1e-3),
    )
    assert found.pays is pays


@given(SAMPLES, SPEED, SPEED, SECONDS)
def test_what_pays_is_faster_and_saves_more_than_the_restart_costs(
    left: float, now: float, expected: float, restart_s: float
) -> None:
    found = estimate_gain(left, now, expected, restart_s)
    if found.pays:
        assert expected > now
        assert found.left_s > restart_s
        assert left / expected + restart_s < (1 - MIN_SAVING) * left / now * (1 + 1e-9)


@given(st.floats(0, 1e4), SPEED, st.floats(0.5, 8), st.floats(0, 1e3), st.floats(1, 100))
def test_what_pays_also_pays_with_more_left_a_faster_gang_or_a_cheaper_restart(
    left_s: float, now: float, speedup: float, restart_s: float, factor: float
) -> None:
    left, expected = left_s * now, now * speedup
    pays = estimate_gain(left, now, expected, restart_s).pays
    assert pays <= estimate_gain(left * factor, now, expected, restart_s).pays
    assert pays <= estimate_gain(left, now, expected * factor, restart_s).pays
    assert pays <= estimate_gain(left, now, expected, restart_s / factor).pays


def experiment(sample_s: float = 0.001, epochs: tuple[int, ...] = (1, 6), **fields: Any) -> Any:
    """A model that two workers train twice as fast as one, for 1 and for 6 epochs at once."""
    return make_experiment(
        "none",
        **{
            "train": None,
            "model": {"name": "sweep_models:Waiting", "sample_s": sample_s},
            "data": "digits",
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "search": {"epochs": {"choices": list(epochs)}},
            "sampler": "grid",
            "training": {"global_batch": 64, "optimizer": "sgd", "lr": 0.05},
            "resources": {"elastic": True, "max_retries": 0},
            **fields,
        },
    )


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, ray_head: Path) -> Iterator[Store]:
    """A store with a run that has measured how fast two workers are."""
    with Store.open(str(tmp_path_factory.mktemp("taught") / "store.sqlite")) as store:
        pair = experiment(epochs=(3,), plan={"workers": 2}, resources={})
        sweep = Sweep(store, store.create_run(pair))
        assert sweep.launch("inline").state == "complete"
        yield store


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_the_trial_that_remains_grows_and_ends_as_if_it_had_not(
    taught: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.sweeps.elastic.ElasticTrials._restart_s", lambda *_: 0.1)
    sweep = Sweep(taught, taught.create_run(experiment())).launch("inline")
    plain = Sweep(taught, taught.create_run(experiment(sample_s=0, resources={}))).launch("inline")

    [resized] = sweep.of(TrialResized)
    long = sweep.trial_with(epochs=6)
    assert (resized.trial, resized.attempt) == (long.number, 0)
    assert (resized.from_workers, resized.to_workers) == (1, 2)
    [ended] = sweep.of(AttemptEnded)
    plan = {"workers": 2, "micro_batch": 32, "accumulation": 1, "global_batch": 64}
    assert (ended.trial, ended.reason, ended.next_plan) == (long.number, "resized", plan)
    # Not before the other one has given its worker back.
    [short_end] = sweep.of(TrialEnded, sweep.trial_with(epochs=1).number)
    assert short_end.time_unix_s < resized.time_unix_s

    first, second = sweep.of(TrialStarted, long.number)
    assert (len(first.worker_pids), len(second.worker_pids)) == (1, 2)
    assert second.resumed_from is not None
    last = sweep.of(TrialPlanned, long.number)[-1].plan
    assert (last["global_batch"], last["strategy"]) == (64, "ddp")
    [measured] = sweep.of(ResizeMeasured)
    assert (measured.attempt, measured.to_workers) == (1, 2)
    assert measured.samples_per_s > resized.samples_per_s
    assert measured.restart_s is not None
    assert (
        Run(taught, sweep.run_id).to_json()["trials"][long.number]["resizes"][0]["measured"]
        is not None
    )

    undisturbed = plain.trial_with(epochs=6)
    assert (long.state, long.last_step) == ("complete", undisturbed.last_step)
    assert long.values == pytest.approx(undisturbed.values, abs=1e-3)
    assert plain.of(TrialResized) == []
    sweep.assert_sound()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_killed_driver_finds_the_decision_and_a_grown_trial_can_be_stopped(taught: Store) -> None:
    long = experiment(epochs=(2000,), early_stop={"pruner": "median"})
    sweep = Sweep(taught, taught.create_run(long)).launch()
    sweep.wait_for(TrialResized)
    os.kill(sweep.of(DriverStarted)[0].pid, signal.SIGKILL)

    again = sweep.wait_for(TrialStarted, lambda event: event.attempt == 1)
    assert len(again.worker_pids) == 2
    assert again.resumed_from is not None
    sweep.wait_for(ResizeMeasured)
    Run(taught, sweep.run_id).stop(trial=0)
    sweep.wait("complete")
    assert (sweep.trials[0].state, sweep.trials[0].attempts) == ("stopped", 2)
    assert len(sweep.of(DriverStarted)) == 2
    assert len(sweep.of(TrialResized)) == 1
    sweep.assert_sound()


@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
@pytest.mark.slow
def test_nothing_grows_onto_more_workers_than_were_ever_measured(store: Store) -> None:
    sweep = Sweep(store, store.create_run(experiment(sample_s=0.0005, epochs=(2000,)))).launch()
    reason = "the speed on 2 workers was never measured here"
    try:
        noted = sweep.wait_for(Noted, lambda event: reason in event.message)
    finally:
        Run(store, sweep.run_id).stop()
        sweep.wait("stopped")
    assert noted.level == "info"
    assert sum(reason in event.message for event in sweep.of(Noted)) == 1
    assert sweep.of(TrialResized) == []


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_grown_trial_goes_on_where_there_are_fewer_workers_by_now(store: Store) -> None:
    sweep = Sweep(store, store.create_run(experiment(sample_s=0, epochs=(1,))))
    plan: dict[str, Any] = {"workers": 1, "micro_batch": 64, "accumulation": 1, "global_batch": 64}
    grown: dict[str, Any] = {"workers": 8, "micro_batch": 8, "accumulation": 1}
    with store.writer(sweep.run_id, owner_pid=1, owner_host="elsewhere") as writer:
        writer.append(
            DriverStarted(pid=1, host="elsewhere", num_cpus=8),
            RunStateChanged(state="running"),
            TrialProposed(trial=0, params={"epochs": 1}, configuration=0, seed=1),
            TrialStarted(trial=0, attempt=0, worker_pids=[2]),
            TrialPlanned(trial=0, plan=plan),
            AttemptEnded(trial=0, attempt=0, reason="resized", message="it grows", next_plan=grown),
            RunStateChanged(state="stopped", reason="person"),
        )
    sweep.launch("inline")
    [trial] = sweep.trials
    assert (trial.state, trial.attempts) == ("complete", 2)
    assert (trial.plan.workers, trial.plan.global_batch) == (1, 64)
    assert "because 8 are no longer available" in sweep.of(AttemptEnded)[-1].message


def remember_restarts(store: Store, measured: Any) -> None:
    """Add a run that measured how little a restart costs, instead of the 10 s that are assumed."""
    with store.writer(store.create_run(measured), owner_pid=1, owner_host="elsewhere") as writer:
        writer.append(
            DriverStarted(pid=1, host="elsewhere", num_cpus=4),
            RunStateChanged(state="running"),
            TrialProposed(trial=0, params={"epochs": 6}, configuration=0, seed=1),
            ResizeMeasured(
                trial=0,
                attempt=1,
                samples_per_s=2.0,
                restart_s=0.1,
                from_workers=1,
                to_workers=2,
                saving_s=1.0,
            ),
            RunStateChanged(state="stopped", reason="person"),
        )


@pytest.mark.slow
@pytest.mark.ray
def test_a_copy_in_two_stages_grows_to_two_copies_and_ends_as_if_it_had_not(
    store: Store, tmp_path: Path
) -> None:
    def in_stages(workers: int, epochs: int, *, elastic: bool, sample_s: float = 0.0005) -> Any:
        return experiment(
            epochs=(epochs,),
            name="stages",
            resources={"elastic": elastic, "max_retries": 0},
            model={"name": "tests.sweeps.sweep_models:waiting_blocks", "sample_s": sample_s},
            # How many stages a model has is open where a strategy is written.
            plan={"workers": workers, "strategy": "pipeline"}
            | ({"stages": 2} if workers == 4 else {}),
        )

    cluster = Cluster(tmp_path / "cluster", head_cpus=4)
    try:
        start_on(cluster, store, in_stages(4, 2, elastic=False), tmp_path).wait(
            "complete", timeout_s=180
        )
        grows = in_stages(2, 6, elastic=True)
        remember_restarts(store, grows)
        sweep = start_on(cluster, store, grows, tmp_path).wait("complete", timeout_s=180)
        plain = start_on(cluster, store, in_stages(2, 6, elastic=False, sample_s=0.0), tmp_path)
        plain.wait("complete", timeout_s=180)
    finally:
        cluster.close()

    [resized] = sweep.of(TrialResized)
    assert (resized.from_workers, resized.to_workers) == (2, 4)
    first, second = sweep.of(TrialStarted)
    assert (len(first.worker_pids), len(second.worker_pids)) == (2, 4)
    assert second.resumed_from is not None
    before, after = (event.plan for event in sweep.of(TrialPlanned))
    assert (before["stages"], after["stages"], after["micro_batch"]) == (2, 2, 32)
    assert before["global_batch"] == after["global_batch"] == 64
    [trial], [undisturbed] = sweep.trials, plain.trials
    assert (trial.state, trial.last_step) == ("complete", undisturbed.last_step)
    assert trial.values == pytest.approx(undisturbed.values, abs=1e-5)
    sweep.assert_sound()

"""Nodes that come, are lost or fall silent during a run, and runs that wait for workers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.services.clusters import ROOT, Cluster, Node
from tests.services.sweeps import Driving, Sweep, start_on
from tests.services.waiting import wait_until
from workbench.advisor import measuring
from workbench.advisor.recommend import bench_for, measurement_context_of
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
from workbench.experiment import Experiment
from workbench.foundation.events import (
    AttemptEnded,
    Event,
    Noted,
    RunStateChanged,
    TrialReported,
    TrialStarted,
)
from workbench.runs import Run
from workbench.store.database import Store

pytestmark = pytest.mark.ray
SILENT_WITHIN_S = 45.0  # on a busy machine
STEPS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head without CPUs and one node with two."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.add(num_cpus=2)
    yield cluster
    cluster.close()


def descend(**fields: Any) -> Experiment:
    """An experiment whose trials go on where they were left, and end elsewhere if they do not."""
    settings: dict[str, Any] = {
        "name": "nodes",
        "train": {"name": "tests.faults.trained_function:descend", "steps": STEPS, "pause_s": 0.2},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 1, "high": 9}},
        "sampler": "random",
        "budget": {"trials": 2},
        "resources": {"max_retries": 5},
    }
    return Experiment(**settings | fields)


def pids_of(sweep: Sweep, trial: int) -> list[int]:
    started = [event for event in sweep.of(TrialStarted) if event.trial == trial]
    return started[-1].worker_pids if started else []


def node_of(cluster: Cluster, sweep: Sweep, trial: int) -> Node:
    """The node on which the last attempt at a trial has its workers."""
    wanted = set(pids_of(sweep, trial))
    samples = [
        node
        for node in cluster.nodes
        if node.is_alive and wanted & {process.pid for process in node.processes()}
    ]
    assert len(samples) == 1, f"workers {wanted} are on {[node.name for node in samples]}"
    return samples[0]


def await_step(sweep: Sweep, trial: int, step: int) -> None:
    sweep.wait_for(TrialReported, lambda event: event.trial == trial and event.step >= step)


def undisturbed_loss(params: dict[str, Any]) -> float:
    loss = 1.0
    for step in range(1, STEPS + 1):
        loss = 0.7 * loss + params["x"] / (step + params["y"])
    return loss


def check_all_went_on(sweep: Sweep) -> None:
    """Every trial has its whole curve, once, and ends where it would have ended undisturbed."""
    for number, trial in sweep.history.trials.items():
        steps = [event.step for event in sweep.of(TrialReported) if event.trial == number]
        assert sorted(set(steps)) == list(range(1, STEPS + 1))
        assert (
            len(steps) <= STEPS + trial.attempts
        )  # at most the one step at which an attempt was lost, again
        assert trial.values["loss"] == pytest.approx(undisturbed_loss(trial.params))


@pytest.mark.slow
def test_trials_of_a_lost_node_go_on_on_another_that_joined_meanwhile(cluster, store, tmp_path):
    sweep = start_on(cluster, store, descend(), tmp_path)
    for trial in (0, 1):
        await_step(sweep, trial, 5)
    lost = node_of(cluster, sweep, 0)
    lost.kill()
    sweep.wait_for(Noted, lambda event: "left the cluster" in event.message)
    assert sweep.state == "running", "a run whose only node is lost waits for another"
    cluster.add(num_cpus=2)
    sweep.wait_for(Noted, lambda event: "joined the cluster" in event.message)
    sweep.wait("complete")
    assert {event.reason for event in sweep.of(AttemptEnded)} == {"lost"}
    check_all_went_on(sweep)


@pytest.mark.slow
def test_a_silent_node_is_given_up_in_seconds_and_used_again_when_it_answers(
    cluster, store, tmp_path
):
    cluster.add(num_cpus=2)
    sweep = start_on(cluster, store, descend(name="silence", budget={"trials": 3}), tmp_path)
    for trial in (0, 1):
        await_step(sweep, trial, 3)
    silent = node_of(cluster, sweep, 0)
    silent.freeze()
    try:
        # Ray itself takes a minute.
        ended = wait_until(lambda: sweep.of(AttemptEnded), timeout_s=SILENT_WITHIN_S)
        assert ended[0].reason == "lost"
        wait_until(lambda: not set(pids_of(sweep, ended[0].trial)) & _pids(silent))
    finally:
        silent.thaw()
    sweep.wait("complete")
    check_all_went_on(sweep)


def _pids(node: Node) -> set[int]:
    return {process.pid for process in node.processes()}


@pytest.mark.slow
def test_a_waiting_run_says_who_is_before_it_and_a_higher_priority_goes_first(
    cluster, store, tmp_path
):
    everything = {"plan": {"workers": 1}, "resources": {"cpus_per_worker": 2, "concurrency": 4}}
    gate = tmp_path / "gate"
    held = {"name": "tests.faults.trained_function:descend", "steps": STEPS, "gate": str(gate)}
    long = descend(name="long", train={**held, "pause_s": 0.2}, budget={"trials": 6}, **everything)
    first = start_on(cluster, store, long, tmp_path)
    first.wait_for(TrialReported)
    low = start_on(
        cluster, store, descend(name="low", budget={"trials": 1}, **everything), tmp_path
    )
    urgent = {**everything, "resources": {**everything["resources"], "priority": 1}}
    high = start_on(cluster, store, descend(name="high", budget={"trials": 1}, **urgent), tmp_path)
    said = low.wait_for(Noted, lambda event: "waits for workers" in event.message).message
    high.wait_for(Noted, lambda event: "waits for workers" in event.message)
    gate.touch()
    assert f"run {first.run_id} has " in said
    assert said.endswith("this run is next") or "served first" in said
    for run in (low, high):
        run.wait("complete", timeout_s=120)
    began = {run.run_id: run.of(TrialStarted)[0].time_unix_s for run in (low, high)}
    assert began[high.run_id] <= began[low.run_id]
    environment = cluster.environment | {"WORKBENCH_STORE": store.url}
    stopping = [sys.executable, "-m", "workbench", "stop", first.run_id]
    subprocess.run(
        stopping, env=environment | os.environ, cwd=ROOT, check=True, capture_output=True
    )
    first.wait("stopped")


@pytest.mark.slow
def test_a_run_goes_on_when_the_head_and_all_that_was_on_it_are_started_again(tmp_path, store):
    experiment = descend(name="head")
    first = Cluster(tmp_path / "first")
    try:
        first.add(num_cpus=2)
        sweep = start_on(first, store, experiment, tmp_path)
        await_step(sweep, 0, 5)
        first.head.kill()
    finally:
        first.close()
    reported = len(sweep.of(TrialReported))
    assert reported < 2 * STEPS
    second = Cluster(tmp_path / "second")
    try:
        second.add(num_cpus=2)
        environment = second.environment | {"WORKBENCH_STORE": store.url}
        words = [sys.executable, "-m", "workbench", "resume", sweep.run_id]
        done = subprocess.run(
            words, env=environment, cwd=ROOT, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        second.close()
    assert sweep.state == "complete"
    assert {event.reason for event in sweep.of(AttemptEnded)} == {"lost"}
    check_all_went_on(sweep)


@pytest.mark.slow
@pytest.mark.usefixtures("free_pool")
def test_a_run_that_gets_no_workers_says_once_who_has_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.sweeps.monitor.HELD_UP_AFTER_S", 0.3)
    held = Gang.lease(Request(run_id="somebody-elses", num_workers=2))
    try:
        sweep = Sweep.create(store, "curve", budget={"trials": 2}, resources={"concurrency": 2})
        driving = Driving(sweep)
        noted = sweep.wait_for(Noted)
        assert (noted.level, noted.trial, noted.is_held_up) == ("info", None, True)
        assert (
            noted.message == "waits for workers: run somebody-elses has 2 workers, this run is next"
        )
        assert sweep.of(TrialStarted) == []
    finally:
        held.release()
    assert driving.join() is None
    assert [trial.state for trial in sweep.trials] == ["complete"] * 2
    assert sweep.of(Noted) == [noted]


@pytest.mark.slow
@pytest.mark.usefixtures("free_pool")
def test_advice_waits_for_workers_on_nobodys_time_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "NOTE_AFTER_S", 0.2)
    experiment = Experiment(
        model="mlp",
        data="breast_cancer",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        search={"lr": {"low": 1e-4, "high": 0.3, "log": True}},
    )
    run = Run(store, store.create_run(experiment))
    events: list[Event] = []
    times_s: list[float] = []
    with store.writer(run.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:

        def keep(event: Event) -> None:
            events.append(event)
            writer.append(event)

        def look() -> None:
            """Look at the clock of the advice while it waits.

            Give it the workers once it has said so.
            """
            times_s.append(place.clock_s())
            if any(isinstance(event, Noted) for event in events):
                assert (
                    run.waits_for == "workers: run somebody-elses has 2 workers, this run is next"
                )
                held.release()

        keep(RunStateChanged(state="running"))
        around = measurement_context_of(store, experiment)
        place = bench_for(store, run.run_id, experiment, around, sink=keep, poll=look)
        held = Gang.lease(Request(run_id="somebody-elses", num_workers=2))
        place.start_workers(1)
        assert len(times_s) >= 2
        assert len(set(times_s)) == 1, "the clock stands still"
        notes = [event.message.split(" for ")[0] for event in events if isinstance(event, Noted)]
        assert notes == ["waits", "waited"]
        assert run.waits_for is None


@pytest.mark.slow
@pytest.mark.usefixtures("free_pool")
def test_a_run_of_a_higher_priority_keeps_its_workers_between_its_trials(store: Store) -> None:
    everything = {"concurrency": 1, "cpus_per_worker": 2}
    low = Sweep.create(
        store, "curve", budget={"trials": 6}, options={"pause_s": 0.3}, resources=everything
    )
    high = Sweep.create(
        store,
        "curve",
        budget={"trials": 4},
        options={"pause_s": 0.3},
        resources={**everything, "priority": 1},
    )
    for run in (low, high):
        run.launch()
    for run in (low, high):
        run.wait("complete")
    began, *_, ended = sorted(event.time_unix_s for event in high.of(TrialStarted))
    between = [event for event in low.of(TrialStarted) if began < event.time_unix_s < ended]
    assert between == []
    assert low.trials[-1].state == "complete"

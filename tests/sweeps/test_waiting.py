from __future__ import annotations

import os
import socket

import pytest

from tests.services.sweeps import Driving, Sweep
from workbench.advisor import bench
from workbench.advisor.recommend import bench_for, measurement_context_of
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
from workbench.experiment import Experiment
from workbench.foundation.events import Event, Noted, RunStateChanged, TrialStarted
from workbench.runs import Run
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


@pytest.mark.slow
def test_a_run_that_gets_no_workers_says_once_who_has_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.sweeps.cluster_watch.REPORT_AFTER_S", 0.3)
    held = Gang.lease(Request(run_id="somebody-elses", num_workers=2))
    try:
        sweep = Sweep.create(store, "curve", budget={"trials": 2}, resources={"concurrency": 2})
        driving = Driving(sweep)
        noted = sweep.wait_for(Noted)
        assert (noted.level, noted.trial) == ("info", None)
        assert (
            noted.message == "waits for workers: run somebody-elses has 2 workers, this run is next"
        )
        assert sweep.of(TrialStarted) == []
    finally:
        held.release()
    assert driving.join() is None
    assert [trial.state for trial in sweep.trials] == ["complete"] * 2
    assert sweep.of(Noted) == [noted]


def test_advice_waits_for_workers_on_nobodys_time_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "NOTE_AFTER_S", 0.2)
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
        around = measurement_context_of(store, run.run_id, experiment)
        place = bench_for(store, run.run_id, experiment, around, sink=keep, poll=look)
        held = Gang.lease(Request(run_id="somebody-elses", num_workers=2))
        place.start_workers(1)
        assert len(times_s) >= 2
        assert len(set(times_s)) == 1, "the clock stands still"
        notes = [event.message.split(" for ")[0] for event in events if isinstance(event, Noted)]
        assert notes == ["waits", "waited"]
        assert run.waits_for is None


@pytest.mark.slow
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

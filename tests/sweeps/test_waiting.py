from __future__ import annotations

import pytest

from tests.services.sweeps import Driving, Sweep
from workbench.events import Noted, TrialStarted
from workbench.store import Store
from workbench.workers.admission import Request
from workbench.workers.gang import Gang

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


@pytest.mark.slow
def test_a_run_that_gets_no_workers_says_once_who_has_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.sweeps.waiting.REPORT_AFTER_S", 0.3)
    held = Gang.lease(Request(run_id="somebody-elses", num_workers=2))
    try:
        sweep = Sweep.create(store, "curve", budget={"trials": 2}, resources={"concurrency": 2})
        driving = Driving(sweep)
        noted = sweep.wait_for(Noted)
        assert (noted.level, noted.trial) == ("info", None)
        assert noted.message == "waits for workers: run somebody-elses has 2 workers, this run is next"
        assert sweep.of(TrialStarted) == []
    finally:
        held.release()
    assert driving.join() is None
    assert [trial.state for trial in sweep.trials] == ["complete"] * 2
    assert sweep.of(Noted) == [noted]


@pytest.mark.slow
def test_a_run_of_a_higher_priority_keeps_its_workers_between_its_trials(store: Store) -> None:
    everything = {"concurrency": 1, "cpus_per_worker": 2}
    low = Sweep.create(store, "curve", budget={"trials": 6}, options={"pause_s": 0.3}, resources=everything)
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

"""The clock of a run while clocks of machines are set."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps.test_budget import make_history
from workbench.foundation.events import (
    DriverStarted,
    Noted,
    RunStateChanged,
    TrialReported,
    continue_from,
    steady_unix_s,
)
from workbench.runs.progress import progress_of
from workbench.store.database import Store
from workbench.sweeps.budget import reason_to_end
from workbench.sweeps.ledger import Ledger, RunClock, timely

HOUR_S = 3600.0


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    now_s = time.monotonic
    began_s = time.time() - now_s()
    monkeypatch.setattr(time, "time", lambda: began_s + now_s() + ahead_s)


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_events_and_limits_follow_a_clock_that_nobody_sets(
    ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Noted(level="info", message="before")
    set_clock(monkeypatch, ahead_s)
    after = Noted(level="info", message="after")
    assert 0.0 <= after.time_unix_s - before.time_unix_s < 60.0
    history = make_history(budget={"time": "30m"})
    history.apply(DriverStarted(pid=1, host="here", num_cpus=1))
    assert reason_to_end(history, steady_unix_s()) is None


@pytest.mark.parametrize(("ahead_s", "way"), [(HOUR_S, "ahead"), (-HOUR_S, "back")])
def test_a_clock_that_is_set_is_recorded_once_and_readers_allow_for_it(
    tmp_path: Path, ahead_s: float, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(make_history(budget={"time": "30m"}).experiment)
        ledger = Ledger(store, run_id)
        clock = RunClock(ledger)
        with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
            ledger.replay(writer)
            ledger.record(
                DriverStarted(pid=1, host="here", num_cpus=1), RunStateChanged(state="running")
            )
            clock.tick()
            set_clock(monkeypatch, ahead_s)
            clock.tick()
            clock.tick()
            history = ledger.history
            progress = progress_of(history, history.now_unix_s())
            assert progress.part == pytest.approx(0.0, abs=0.05)
            assert progress.left is not None
            assert progress.left.seconds == pytest.approx(1800.0, abs=60.0)
            set_clock(monkeypatch, -ahead_s)
            clock.tick()
        notes = [stored.event for stored in store.events(run_id) if isinstance(stored.event, Noted)]
    assert [note.message.split(":")[0] for note in notes] == [
        f"the clock of this machine was set {way} by 1 h",
        f"the clock of this machine was set {'back' if way == 'ahead' else 'ahead'} by 1 h",
    ]
    assert history.clock_ahead_s == pytest.approx(0.0, abs=1.0)


def test_times_of_another_machine_are_kept_unless_they_cannot_be_right() -> None:
    now_unix_s = steady_unix_s()
    differences_s = [-HOUR_S, -5.0, 0.0, 5.0, HOUR_S]
    events = [
        Noted(level="info", message="", time_unix_s=now_unix_s + each_s) for each_s in differences_s
    ]
    kept = [event.time_unix_s - now_unix_s for event in timely(events, now_unix_s - 10.0)]
    assert kept == pytest.approx([0.0, -5.0, 0.0, 5.0, 0.0], abs=1.0)


def test_nothing_but_repeated_reports_happened_before_the_driver_began() -> None:
    now_unix_s = steady_unix_s()
    events = [
        TrialReported(trial=0, step=1, told_again=is_repeated, time_unix_s=now_unix_s - 5.0)
        for is_repeated in (True, False)
    ]
    kept = [event.time_unix_s - now_unix_s for event in timely(events, now_unix_s - 1.0)]
    assert kept == pytest.approx([-5.0, 0.0], abs=1.0)


@pytest.fixture
def clock_of_this_process() -> Iterator[None]:
    yield
    continue_from(0.0)


@pytest.mark.parametrize("behind_s", [HOUR_S, 5.0])
def test_times_do_not_go_back_with_a_driver_whose_clock_is_behind(
    tmp_path: Path, behind_s: float, clock_of_this_process: None
) -> None:
    last_unix_s = time.time() + behind_s
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(make_history().experiment)
        with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
            writer.append(DriverStarted(pid=1, host="here", num_cpus=1, time_unix_s=last_unix_s))
            ledger = Ledger(store, run_id)
            clock = RunClock(ledger)
            ledger.replay(writer)
            ledger.record(DriverStarted(pid=2, host="here", num_cpus=1))
            clock.tick()
        times = [stored.event.time_unix_s for stored in store.events(run_id)]
        assert times == sorted(times)
        assert times[-1] - last_unix_s < 60.0
        assert ledger.history.now_unix_s() == pytest.approx(time.time() + behind_s, abs=2.0)

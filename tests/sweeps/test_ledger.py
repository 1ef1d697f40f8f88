"""The ledger of a run keeps a steady clock, and packs events into blocks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.sweeps.test_budget import make_history
from workbench.experiment import Experiment
from workbench.foundation.errors import StoreUnavailableError
from workbench.foundation.events import (
    DriverStarted,
    Event,
    Noted,
    RunStateChanged,
    TrialProposed,
    TrialReported,
    continue_from,
    steady_unix_s,
)
from workbench.runs.plots import run_data
from workbench.runs.plots.run_data import RunData
from workbench.runs.progress import progress_of
from workbench.runs.run_figures import data_of
from workbench.runs.stored_run import StoredRun
from workbench.store.database import RunWriter, Store
from workbench.store.database.samples import last_block_seq, read_block
from workbench.sweeps import ledger as event_blocks
from workbench.sweeps.budget import reason_to_end
from workbench.sweeps.ledger import Ledger, RunClock, timely
from workbench.views.live_feed.run_tail import RunTail

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
    assert [note.message.split(".")[0] for note in notes] == [
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


NUM_TRIALS = 2


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_blocks, "BLOCK_EVENTS", 50)
    monkeypatch.setattr(run_data, "CHUNK_EVENTS", 30)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = (
        str(tmp_path / "store.sqlite")
        if request.param == "sqlite"
        else request.getfixturevalue("postgresql_url")
    )
    with Store.open(url, artifacts=tmp_path / "artifacts") as opened:
        yield opened


@pytest.fixture
def experiment() -> Experiment:
    return Experiment(
        train="package.module:function", objectives=[{"metric": "loss", "goal": "minimize"}]
    )


def open_ledger(store: Store, run_id: str) -> tuple[Ledger, RunWriter]:
    ledger = Ledger(store, run_id)
    writer = store.writer(run_id, owner_pid=os.getpid(), owner_host="here")
    ledger.replay(writer)
    return ledger, writer


def propose() -> list[Event]:
    return [TrialProposed(trial=n, configuration=n, seed=n, params={}) for n in range(NUM_TRIALS)]


def report(step: int) -> TrialReported:
    return TrialReported(trial=step % NUM_TRIALS, step=step, values={"loss": 1 / (1 + step)})


def assert_reads_like_its_events(store: Store, run_id: str, data: RunData) -> None:
    slowly = RunData.of(store.experiment(run_id), (event for _, event in store.events(run_id)))
    assert repr(data.history.to_json()) == repr(slowly.history.to_json())
    at_once = StoredRun(store, run_id).history
    assert repr(at_once.to_json()) == repr(slowly.history.to_json())
    for curve, other in zip(data.series.curves("loss"), slowly.series.curves("loss"), strict=True):
        np.testing.assert_array_equal(curve.points, other.points)


def test_a_long_run_is_read_from_blocks_and_the_rest_from_rows(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    ledger, writer = open_ledger(store, run_id)
    with writer:
        ledger.record(*propose())
        for step in range(127):
            ledger.record(report(step))
            if step == 60:
                ledger.record(Noted(level="info", message="between"))
    assert last_block_seq(store, run_id) == 100
    seqs = [chunk.last_seq for chunk in run_data.read_chunks(store, run_id)]
    assert seqs == [50, 100, 130]
    assert_reads_like_its_events(store, run_id, data_of(StoredRun(store, run_id)))
    # From within a block, the rows up to the next one.
    assert [chunk.last_seq for chunk in run_data.read_chunks(store, run_id, after=10)] == [
        40,
        50,
        100,
        130,
    ]


def test_the_next_driver_continues_behind_the_last_block(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    for first in (0, 70):
        ledger, writer = open_ledger(store, run_id)
        with writer:
            if first == 0:
                ledger.record(*propose())
            for step in range(first, first + 70):
                ledger.record(report(step))
    assert [after for after in range(142) if read_block(store, run_id, after) is not None] == [
        0,
        50,
    ]
    assert_reads_like_its_events(store, run_id, data_of(StoredRun(store, run_id)))


def test_a_tail_that_follows_while_blocks_are_made_misses_and_repeats_nothing(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    ledger, writer = open_ledger(store, run_id)
    tail = RunTail(store, run_id)
    with writer:
        ledger.record(*propose())
        for step in range(230):
            ledger.record(report(step))
            if step % 7 == 0:
                tail.catch_up()
                assert tail.cursor == step + 3
    tail.catch_up()
    assert_reads_like_its_events(store, run_id, tail.data)
    late = RunTail(store, run_id)
    late.catch_up()
    assert_reads_like_its_events(store, run_id, late.data)


def test_events_are_stored_though_their_block_cannot_be(
    store: Store, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnavailableError("the disk is full")

    run_id = store.create_run(experiment)
    ledger, writer = open_ledger(store, run_id)
    with writer:
        ledger.record(*propose())
        with monkeypatch.context() as patch:
            patch.setattr(event_blocks, "keep_block", refuse)
            for step in range(60):
                ledger.record(report(step))
        for step in range(60, 120):
            ledger.record(report(step))
    assert [after for after in range(122) if read_block(store, run_id, after) is not None] == [50]
    assert_reads_like_its_events(store, run_id, data_of(StoredRun(store, run_id)))

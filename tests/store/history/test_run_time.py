"""The run time: one clock for curves, header, table, log and report, which stands still without a
driver.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.views.live_feed.test_machine_history import keep, sample
from workbench.cli.live_table import _run_time
from workbench.experiment import Experiment
from workbench.foundation.events import (
    AdviceRequested,
    AlertRaised,
    AttemptEnded,
    DriverStarted,
    Event,
    RunStateChanged,
    SettingsChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
    continue_from,
)
from workbench.foundation.formatting import duration_argument_s, format_duration
from workbench.runs import Run
from workbench.runs.plots.prepare_trials import prepare_timeline
from workbench.runs.plots.run_data import RunData
from workbench.runs.progress import elapsed_s
from workbench.store.database import Store
from workbench.store.history import History
from workbench.store.history.run_clock import SIGN_S, RunClock
from workbench.sweeps.ledger import Ledger, timely
from workbench.sweeps.ledger import RunClock as DriversClock
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.machine_history import MachineHistory
from workbench.views.live_feed.protocol import TableQuery
from workbench.views.live_feed.run_summaries import run_detail
from workbench.views.live_feed.run_tail import RunTail
from workbench.views.live_feed.trial_table import table_of
from workbench.views.server.routes import _narrate

EXPERIMENT = Experiment(train="package:train", objectives=[{"metric": "f1", "goal": "maximize"}])
CREATED_S, NIGHT_S = 1_700_000_000.0, 8 * 3600.0


def driver(at_s: float) -> DriverStarted:
    return DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=CREATED_S + at_s)


def events() -> list[Event]:
    """A run whose driver starts 20 s after its creation, trains for 100 s, and goes on after a
    night.
    """
    at = lambda seconds: CREATED_S + seconds  # noqa: E731
    again = 120.0 + NIGHT_S
    return [
        driver(20.0),
        RunStateChanged(state="running", time_unix_s=at(20.0)),
        TrialProposed(trial=0, params={}, configuration=0, seed=0, time_unix_s=at(25.0)),
        TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=at(30.0)),
        TrialReported(trial=0, step=1, values={"f1": 0.5}, time_unix_s=at(60.0)),
        TrialEnded(
            trial=0, attempt=0, state="complete", values={"f1": 0.5}, step=1, time_unix_s=at(100.0)
        ),
        RunStateChanged(state="stopped", reason="person", time_unix_s=at(120.0)),
        driver(again),
        RunStateChanged(state="running", time_unix_s=at(again)),
        TrialProposed(trial=1, params={}, configuration=1, seed=0, time_unix_s=at(again + 1)),
        TrialStarted(trial=1, attempt=0, worker_pids=[1], time_unix_s=at(again + 10.0)),
        TrialReported(trial=1, step=1, values={"f1": 0.7}, time_unix_s=at(again + 30.0)),
        TrialEnded(
            trial=1,
            attempt=0,
            state="complete",
            values={"f1": 0.7},
            step=1,
            time_unix_s=at(again + 40.0),
        ),
        RunStateChanged(state="complete", time_unix_s=at(again + 50.0)),
    ]


def test_curves_table_timeline_log_and_header_of_a_run_use_one_clock(tmp_path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(EXPERIMENT)
        with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
            writer.append(*events())
        again = CREATED_S + 120.0 + NIGHT_S
        keep(
            store,
            run_id,
            sample(CREATED_S + 60.0),
            sample(CREATED_S + 5000.0),
            sample(again + 30.0),
        )
        tail = RunTail(store, run_id)
        tail.catch_up()
        history = tail.data.history
        [first], [second] = (tail.data.series.curve(trial, "f1").x("time") for trial in (0, 1))
        assert (first, second) == (
            40.0,
            130.0,
        ), "100 s of the first driver, and 30 s of the second one"
        table = table_of(history, TableQuery())
        place = [column.key for column in table.columns].index("started_s")
        assert [row.cells[place] for row in table.rows] == [10.0, 110.0]
        assert [(bar.start, bar.end) for bar in prepare_timeline(tail.data).bars] == [
            (10, 80),
            (110, 140),
        ]
        logged = {
            line.text.split(" ")[1]: line.run_time_s for line in tail.log if "complete" in line.text
        }
        assert (logged["0"], logged["1"]) == (80.0, 140.0)
        drivers = [line.text for line in tail.log if line.text.startswith("driver")]
        assert ["again" in text for text in drivers] == [
            False,
            True,
        ], "though both were read at once"
        assert run_detail(tail).elapsed_s == 150.0
        assert _run_time(history, again + 40.0) == format_duration(140.0)
        assert _run_time(history, CREATED_S + 100.0) == format_duration(80.0), (
            "of an earlier driver, too"
        )
        [node] = MachineHistory(store, run_id).series(history.clock, history.trials.values()).nodes
        assert node.time_s == (40.0, 100.0, 130.0)
        assert [(span.begin_s, span.end_s) for span in node.trials] == [
            (10.0, 80.0),
            (110.0, 140.0),
        ]


@pytest.fixture
def clock_of_this_process() -> Iterator[None]:
    yield
    continue_from(0.0)


@pytest.mark.parametrize("behind_s", [3600.0, 40.0, -3600.0])
def test_no_time_runs_backwards_when_a_killed_run_is_resumed_with_another_clock(
    tmp_path: Path, behind_s: float, monkeypatch: pytest.MonkeyPatch, clock_of_this_process: None
) -> None:
    def kill_driver(ledger: Ledger) -> None:
        """Write 100 s of a driver that ends in the middle of a trial, a moment ago by its own
        clock.
        """
        began = time.time() - 101.0
        at = lambda seconds: began + seconds  # noqa: E731
        ledger.record(
            DriverStarted(pid=dead_pid, host=host, num_cpus=2, time_unix_s=at(0.0)),
            RunStateChanged(state="running", time_unix_s=at(0.0)),
            TrialProposed(trial=0, params={}, configuration=0, seed=0, time_unix_s=at(1.0)),
            TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=at(10.0)),
            TrialReported(trial=0, step=1, values={"f1": 0.5}, time_unix_s=at(60.0)),
            TrialReported(trial=0, step=2, values={"f1": 0.6}, time_unix_s=at(100.0)),
        )

    def go_on(ledger: Ledger) -> None:
        """Continue as a driver does that another process starts, whose times are those of its own
        clock.
        """
        ledger.record(
            DriverStarted(
                pid=os.getpid(), host=host, num_cpus=2, before_unix_s=ledger.before_unix_s
            ),
            AttemptEnded(trial=0, attempt=0, reason="lost", message="the driver ended"),
            RunStateChanged(state="running"),
        )
        DriversClock(ledger).tick()
        own = time.time()
        reports = [
            TrialStarted(trial=0, attempt=1, worker_pids=[2], time_unix_s=own),
            TrialReported(trial=0, step=3, values={"f1": 0.7}, time_unix_s=own),
            TrialEnded(
                trial=0, attempt=1, state="complete", values={"f1": 0.7}, step=3, time_unix_s=own
            ),
        ]
        ledger.record(*timely(reports, ledger.history.drivers[-1].time_unix_s))

    host, now = socket.gethostname(), time.time
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead_pid = ended.pid
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(EXPERIMENT)
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: now() + behind_s)
            ledger = Ledger(store, run_id)
            writer = store.writer(run_id, owner_pid=dead_pid, owner_host=host)
            ledger.replay(writer)
            kill_driver(ledger)
            tail = RunTail(store, run_id)
            tail.catch_up()
            before_s = run_detail(tail).elapsed_s
            writer._closing.set()  # its heart beats no more, and it gives no lease back
        ledger = Ledger(store, run_id)
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=host) as writer:
            ledger.replay(writer)
            go_on(ledger)
        tail.catch_up()
        history = tail.data.history
        stored = [item.event for item in store.events(run_id)]
        assert [event.time_unix_s for event in stored] == sorted(
            event.time_unix_s for event in stored
        )

        curve = [float(x) for x in tail.data.series.curve(0, "f1").x("time")]
        assert curve == sorted(curve)
        assert curve[:2] == pytest.approx([60.0, 100.0], abs=0.01)
        logged = [line.run_time_s for line in tail.log]
        assert logged == sorted(logged)
        [bar] = prepare_timeline(tail.data).bars
        table = table_of(history, TableQuery())
        columns = [column.key for column in table.columns]
        [row] = table.rows
        started_s = row.cells[columns.index("started_s")]
        assert (bar.start, bar.end) == pytest.approx((started_s, logged[-1]), abs=0.5)
        assert started_s == pytest.approx(10.0, abs=0.01)
        assert logged[-1] == pytest.approx(curve[-1], abs=0.01)

        header_s = run_detail(tail).elapsed_s
        assert header_s >= max(before_s, logged[-1] - 0.001)
        assert elapsed_s(store.run(run_id), Run(store, run_id).history) == pytest.approx(
            header_s, abs=2.0
        )
        now_s = duration_argument_s(_run_time(history, history.now_unix_s()), field="")
        assert now_s == pytest.approx(header_s, abs=2.0)
        narrated = (
            b"".join(_narrate(Feed(lambda: store), run_id, RunData(EXPERIMENT)))
            .decode()
            .splitlines()
        )
        assert len(narrated) == len(logged)
        assert [line.split(" 20")[0].strip() for line in narrated] == [
            format_duration(round(at_s, 3)) for at_s in logged
        ]


def test_a_killed_driver_counts_for_as_long_as_it_was_shown_to_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = History(EXPERIMENT)
    shown_s = []
    for now_s in (
        10.0,
        300.0,
        302.0,
        305.0,
        400.0,
    ):  # it is killed at 304 s, long after its last event
        monkeypatch.setattr(time, "time", lambda now_s=now_s: CREATED_S + now_s)
        if not history.drivers:
            history.apply(driver(0.0))
        history.note_alive(1, CREATED_S + min(now_s, 303.0) + SIGN_S)
        shown_s.append(history.active_s(history.now_unix_s()))
    assert shown_s == [
        10.0,
        300.0,
        302.0,
        305.0,
        309.0,
    ], "303 s and the time in which the next sign may come"
    history.note_alive(99, CREATED_S + 405.0)  # who looks after lost runs is no driver
    assert history.active_s(history.now_unix_s()) == 309.0
    history.apply(
        AlertRaised(
            alert=0,
            on="run_ended",
            rule="r",
            cause="lost",
            level="error",
            message="lost",
            time_unix_s=CREATED_S + 399.0,
        )
    )
    again = DriverStarted(
        pid=2,
        host="here",
        num_cpus=1,
        time_unix_s=CREATED_S + 400.0,
        before_unix_s=CREATED_S + 309.0,
    )
    history.apply(again)
    assert history.active_s(history.now_unix_s()) == 309.0
    assert history.clock.at(CREATED_S + 410.0) == 319.0


def test_advice_counts_from_its_request_and_a_wait_that_counts_is_added() -> None:
    clock = RunClock()
    clock.note(AdviceRequested.model_construct(time_unix_s=100.0))
    assert (clock.at(90.0), clock.at(130.0)) == (0.0, 30.0)
    history = History(EXPERIMENT)
    for event in (
        driver(0.0),
        SettingsChanged(settings={}, waited_s=14.0, time_unix_s=CREATED_S + 1.0),
    ):
        history.apply(event)
    assert history.active_s(CREATED_S + 10.0) == history.clock.at(CREATED_S + 10.0) == 24.0


@given(
    st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(0.0, 1e4)), min_size=1, max_size=5), st.data()
)
def test_the_run_time_is_the_time_driven_until_then(spans: list[tuple[float, float]], data) -> None:
    clock, now_s, driven = RunClock(), 0.0, []
    for pause_s, driven_s in spans:
        now_s += pause_s
        clock.note(DriverStarted(pid=1, host="here", num_cpus=1, time_unix_s=now_s))
        driven.append((now_s, now_s + driven_s))
        now_s += driven_s
        clock.note(RunStateChanged(state="stopped", time_unix_s=now_s))
    moment = data.draw(st.floats(0.0, now_s))
    wanted = sum(max(0.0, min(moment, end) - begin) for begin, end in driven)
    assert clock.at(moment) == pytest.approx(wanted, abs=1e-6)
    moments = np.linspace(0.0, now_s + 10.0, 20)
    assert clock.at_all(moments) == pytest.approx([clock.at(float(at)) for at in moments])


def test_reports_read_in_bulk_have_the_same_times() -> None:
    reports = [
        TrialReported(trial=0, step=step, values={"f1": 0.1}, time_unix_s=CREATED_S + 30.0 + step)
        for step in range(1, 400)
    ]
    started = events()[:4]
    one_by_one = RunData.of(EXPERIMENT, [*started, *reports])
    in_bulk = RunData(EXPERIMENT)
    in_bulk.add_rows(
        [
            (
                seq,
                event.type,
                getattr(event, "trial", None),
                event.time_unix_s,
                event.model_dump_json(),
            )
            for seq, event in enumerate([*started, *reports], start=1)
        ]
    )
    assert in_bulk.series.curve(0, "f1").x("time")[-1] == 10.0 + 399
    points = [run.series.curve(0, "f1").points for run in (in_bulk, one_by_one)]
    assert np.array_equal(*points, equal_nan=True)

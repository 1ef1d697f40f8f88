"""The writer in one process: threads, take-over, and a run that nobody writes any more."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest

from tests.services.databases import execute
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.errors import LeaseError
from workbench.foundation.events import Noted, RunStateChanged
from workbench.store.database import RunWriter, Store


def take(store: Store, run_id: str, lease_timeout_s: float) -> RunWriter:
    return store.writer(
        run_id, owner_pid=os.getpid(), owner_host="here", lease_timeout_s=lease_timeout_s
    )


def rob(url: str) -> None:
    """Give the lease to another, as a take-over does."""
    execute(url, "UPDATE runs SET lease_token = 'another'")


def test_threads_may_append_at_once(store: Store, experiment: Experiment) -> None:
    run_id = store.create_run(experiment)
    with take(store, run_id, 15.0) as writer:

        def write(name: int) -> None:
            for n in range(100):
                writer.append(Noted(level="info", message=f"{name} {n}"))

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = store.events(run_id)
    assert [item.seq for item in stored] == list(range(1, 401))
    messages = [event.message for _, event in stored if isinstance(event, Noted)]
    for name in range(4):
        assert [m for m in messages if m.startswith(f"{name} ")] == [
            f"{name} {n}" for n in range(100)
        ]


def test_silent_writer_notices_that_it_was_taken_over(
    store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    with take(store, run_id, 0.5) as writer:
        assert not writer.lost
        rob(url)
        wait_until(lambda: writer.lost)
    assert execute(url, "SELECT lease_token FROM runs") == [("another",)]


def test_state_and_events_of_a_fenced_writer_are_refused_together(
    store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    with take(store, run_id, 15.0) as writer:
        writer.append(RunStateChanged(state="running"))
        rob(url)
        with pytest.raises(LeaseError, match="taken over by another driver"):
            writer.append(RunStateChanged(state="failed"))
        assert writer.lost
    assert store.run(run_id).state == "running"
    assert store.run(run_id).last_seq == 1


def test_run_left_unfinished_is_lost_though_its_lease_was_given_back(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    with take(store, run_id, 0.3) as writer:
        writer.append(RunStateChanged(state="running"))
    wait_until(lambda: store.run(run_id).state == "lost")
    assert store.runs()[0].state == "lost"


def test_a_run_whose_writer_is_left_by_an_error_is_lost_at_once(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    with contextlib.suppress(KeyboardInterrupt), take(store, run_id, 15.0) as writer:
        writer.append(RunStateChanged(state="running"))
        raise KeyboardInterrupt
    assert store.run(run_id).state == "lost"
    with take(store, run_id, 15.0):
        assert store.run(run_id).state == "running"


def test_following_ends_when_asked_and_nothing_is_new(store: Store, experiment: Experiment) -> None:
    run_id = store.create_run(experiment)
    with take(store, run_id, 15.0) as writer:
        writer.append(Noted(level="info", message="1"), Noted(level="info", message="2"))
        assert [item.seq for item in store.follow(run_id, until=lambda: True)] == [1, 2]


def test_error_inside_is_not_hidden_by_a_lease_that_cannot_be_given_back(
    store: Store, url: str, experiment: Experiment
) -> None:
    def lose_the_table_and_fail() -> None:
        execute(url, "ALTER TABLE runs RENAME TO elsewhere")
        raise ZeroDivisionError

    run_id = store.create_run(experiment)
    with pytest.raises(ZeroDivisionError), take(store, run_id, 15.0):
        lose_the_table_and_fail()


def test_import_loads_nothing_heavy() -> None:
    program = "import sys, workbench.store.database; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "alembic",
        "torch",
        "ray",
        "optuna",
        "plotly",
        "pandas",
        "numpy",
        "sklearn",
        "filelock",
    }
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize("hours", [1.0, -1.0])
def test_a_lease_survives_a_clock_that_is_set(
    store: Store, experiment: Experiment, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = store.create_run(experiment)
    real_time = time.time
    with take(store, run_id, 1.5) as writer:
        writer.append(RunStateChanged(state="running"))
        beat_unix_s = store.run(run_id).heartbeat_unix_s
        wait_until(lambda: store.run(run_id).heartbeat_unix_s != beat_unix_s)
        monkeypatch.setattr(time, "time", lambda: real_time() + 3600.0 * hours)
        assert store.run(run_id).state == "running"
        with pytest.raises(LeaseError, match="is driven by process"):
            take(store, run_id, 1.5)
        writer.append(Noted(level="info", message="still here"))
        assert not writer.lost


@pytest.mark.parametrize("hours", [1.0, -1.0])
def test_a_lease_that_nobody_renews_ends_though_a_clock_was_set(
    store: Store, url: str, experiment: Experiment, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = store.create_run(experiment)
    with take(store, run_id, 0.5) as writer:
        rob(url)  # of somebody who is silent from now on
        wait_until(lambda: writer.lost)
    real_time = time.time
    monkeypatch.setattr(time, "time", lambda: real_time() + 3600.0 * hours)

    def taken() -> RunWriter | None:
        try:
            return take(store, run_id, 0.5)
        except LeaseError:
            return None

    successor = wait_until(taken)
    assert successor is not None
    successor.close()


def test_an_owner_that_sends_its_heartbeat_late_after_a_clock_was_set_keeps_its_lease(
    store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    with take(store, run_id, 4.0):
        # Silent for the writer here, and seemingly for an hour: its machine is busy.
        execute(url, "UPDATE runs SET lease_token = 'busy', owner_host = 'elsewhere'")
        execute(url, "UPDATE runs SET heartbeat_unix_s = heartbeat_unix_s - 3600")
        late = threading.Timer(
            1.5, execute, (url, "UPDATE runs SET heartbeat_unix_s = heartbeat_unix_s + 1")
        )
        late.start()
        try:
            with pytest.raises(LeaseError, match="on elsewhere"):
                take(store, run_id, 4.0)
        finally:
            late.join()

"""A store that cannot be written for a while, or is gone, in the middle of a run."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.sweeps import Driving, Sweep
from workbench.foundation.events import AttemptEnded, RunStateChanged, TrialReported, TrialStarted
from workbench.store.database import Store, connection
from workbench.sweeps import ledger

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


def lock(path: Path, seconds: float) -> threading.Thread:
    """Keep a database locked for some seconds, as another program may do."""
    locked = threading.Event()

    def hold() -> None:
        with sqlite3.connect(path, isolation_level=None) as connection:
            connection.execute("BEGIN IMMEDIATE")
            locked.set()
            time.sleep(seconds)
            connection.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait(120)
    return thread


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that gives up soon when it is locked."""
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.5)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        yield store


def test_a_run_waits_for_a_locked_store_and_loses_nothing(
    hasty: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = Sweep.create(
        hasty, "curve", options={"steps": 20, "pause_s": 0.1}, budget={"trials": 2}
    )
    driving = Driving(sweep)
    sweep.wait_for(TrialReported, lambda event: event.step == 5)
    lock(tmp_path / "store.sqlite", 3.0)
    assert driving.join(120) is None

    sweep.assert_every_step_was_reported(20)
    assert "waits for the store" in caplog.text
    sweep.assert_sound()


@pytest.mark.slow
def test_a_store_that_stays_locked_ends_the_driver_and_what_was_stored_stays(
    hasty: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "STORE_PATIENCE_S", 1.0)
    sweep = Sweep.create(
        hasty, "curve", options={"steps": 50, "pause_s": 0.1}, budget={"trials": 1}
    )
    driving = Driving(sweep)
    sweep.wait_for(TrialReported, lambda event: event.step == 5)
    locking = lock(tmp_path / "store.sqlite", 10.0)
    assert "keeps the database locked" in str(driving.join(120))
    assert len(sweep.of(TrialReported)) >= 5
    locking.join()


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.slow
def test_a_store_that_is_moved_away_ends_the_driver(
    store: Store, tmp_path: Path, replaced: bool
) -> None:
    sweep = Sweep.create(
        store, "curve", options={"steps": 100, "pause_s": 0.1}, budget={"trials": 1}
    )
    driving = Driving(sweep)
    sweep.wait_for(TrialReported, lambda event: event.step == 5)
    for path in tmp_path.glob("store.sqlite*"):
        path.rename(path.with_name(f"moved-{path.name}"))
    if replaced:
        Store.open(str(tmp_path / "store.sqlite")).close()
    assert "moved or removed" in str(driving.join(120))
    with Store.open(str(tmp_path / "moved-store.sqlite")) as moved:
        run = Sweep(moved, sweep.run_id)
        assert len(run.of(TrialReported)) >= 5
        assert run.state == "failed"
        assert [ended.reason for ended in run.of(AttemptEnded)] == ["stopped"]


def test_a_resumed_run_ends_an_attempt_whose_end_was_never_stored(store: Store) -> None:
    settings: dict[str, Any] = {"options": {"steps": 3}, "budget": {"trials": 1}}
    whole = Sweep.create(store, "curve", **settings)
    assert Driving(whole).join() is None
    events = whole.events
    is_start = [isinstance(event, TrialStarted) for event in events]
    cut = Sweep.create(store, "curve", **settings)
    with store.writer(cut.run_id, owner_pid=1, owner_host="here") as writer:
        failed = RunStateChanged(state="failed", reason="error", message="the store was replaced")
        writer.append(*events[: is_start.index(True) + 1], failed)
    assert Driving(cut).join() is None

    assert [ended.reason for ended in cut.of(AttemptEnded)] == ["lost"]
    assert len(cut.of(TrialStarted)) == 2
    cut.assert_every_step_was_reported(3)
    cut.assert_sound()

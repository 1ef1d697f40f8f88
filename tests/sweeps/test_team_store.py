"""Runs whose store is a PostgreSQL server: driven from anywhere, and through its absence."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.services.postgresql import ESCAPED_PASSWORD, PASSWORD, Server
from tests.services.sweeps import Driving, Sweep
from tests.services.waiting import wait_until
from workbench.foundation.errors import Suggestion
from workbench.foundation.events import DriverStarted, TrialReported
from workbench.store.database import Store
from workbench.sweeps import ledger

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


@pytest.fixture
def store(postgresql_url: str) -> Iterator[Store]:
    with Store.open(postgresql_url) as store:
        yield store


@pytest.mark.slow
def test_a_driver_elsewhere_gets_the_password_that_only_its_launcher_has(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with Store.open(postgresql_url.replace(f":{ESCAPED_PASSWORD}@", "@")) as store:
        sweep = Sweep.create(store, "curve", options={"steps": 3}, budget={"trials": 2}).launch()
        sweep.wait("complete")
        assert [trial.state for trial in sweep.trials] == ["complete"] * 2
        sweep.assert_sound()
        log = (store.folder(sweep.run_id) / "driver.log").read_text()
    assert PASSWORD not in log
    assert ESCAPED_PASSWORD not in log


@pytest.mark.parametrize("how", ["away", pytest.param("hung", marks=pytest.mark.slow)])
def test_a_run_waits_for_a_server_that_does_not_answer_for_a_while_and_loses_nothing(
    postgresql: Server, store: Store, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    options = {"steps": 20, "pause_s": 0.1}
    sweep = Sweep.create(store, "curve", options=options, budget={"trials": 2})
    driving = Driving(sweep)
    sweep.wait_for(TrialReported, lambda event: event.step == 5)
    with postgresql.away() if how == "away" else postgresql.hung():
        time.sleep(2.0)
    assert driving.join(120) is None

    sweep.assert_every_step_was_reported(20)
    # A connection that is cut is an error; one that is silent for two seconds is none.
    assert ("waits for the store" in caplog.text) is (how == "away")
    sweep.assert_sound()


@pytest.mark.slow
def test_a_driver_that_is_killed_while_the_server_is_away_comes_back_with_it(
    postgresql: Server, store: Store
) -> None:
    options = {"steps": 12, "pause_s": 0.15}
    sweep = Sweep.create(store, "go_on", options=options, budget={"trials": 2}).launch()
    sweep.wait_for(TrialReported, lambda event: event.step == 3)
    [first] = sweep.of(DriverStarted)
    with postgresql.away():
        os.kill(first.pid, signal.SIGKILL)
        time.sleep(4.0)
    sweep.wait("complete")

    assert len(sweep.of(DriverStarted)) == 2
    assert [trial.state for trial in sweep.trials] == ["complete"] * 2
    sweep.assert_sound()


@pytest.mark.slow
def test_a_server_that_stays_away_ends_the_driver_and_resume_goes_on(
    postgresql: Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "STORE_PATIENCE_S", 1.0)
    options = {"steps": 15, "pause_s": 0.1}
    sweep = Sweep.create(store, "curve", options=options, budget={"trials": 1})
    driving = Driving(sweep)
    sweep.wait_for(TrialReported, lambda event: event.step == 5)
    with postgresql.away():
        error = driving.join(120)
    assert error is not None
    assert isinstance(error.next_step, Suggestion)
    assert error.next_step.words == ("resume", sweep.run_id)
    # Its process is alive, so nobody else takes the run for lost.
    wait_until(lambda: store.run(sweep.run_id).silent_s)
    monkeypatch.setattr(ledger, "STORE_PATIENCE_S", 60.0)
    assert Driving(sweep).join() is None
    assert [trial.state for trial in sweep.trials] == ["complete"]
    sweep.assert_sound()

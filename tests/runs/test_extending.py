"""Extensions that are requested at the same time, by people or by agents."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from tests.builders.recorded_runs import EXPERIMENT, append, begin, trial_events
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.runs import Run
from workbench.store.database import Store
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.user_commands import Commands, Steered


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        yield store


def begun_run(store: Store, **budget: object) -> Run:
    """A run under way whose driver has not looked at any command yet."""
    run_id = store.create_run(Experiment(**{**EXPERIMENT, "budget": budget}))
    append(store, run_id, [*begin(), *trial_events(0, at_s=1, accuracy=0.9)])
    return Run(store, run_id)


def drive_until(has_ended: threading.Event, store: Store, run: Run) -> None:
    """Carry out commands as a driver does, without training anything."""
    ledger = Ledger(store, run.run_id)
    with store.writer(run.run_id, owner_pid=1, owner_host="here") as writer:
        ledger.replay(writer)
        driver = create_autospec(Steered, instance=True, is_ending=False, is_metered=True)
        commands = Commands(store, ledger, driver)
        while not has_ended.wait(0.02):
            commands.carry_out()


@pytest.mark.parametrize(
    ("budget", "limit", "added", "total"),
    [
        ({"trials": 10}, "trials", (3, 2), 15),
        ({"trials": 10, "time": "1h"}, "time", ("30m", 60), 5460.0),
        ({"energy": "2kWh"}, "energy", ("1kWh", 500.0), 3500.0),
        ({"money": "5 EUR", "price": "1 EUR/h"}, "money", ("2 EUR", 0.5), 7.5),
    ],
)
def test_two_extensions_at_once_are_both_granted(
    store: Store,
    budget: dict[str, object],
    limit: str,
    added: tuple[object, object],
    total: float,
) -> None:
    run = begun_run(store, **budget)
    has_ended = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(run.extend, **{limit: more}) for more in added]
        # Both have read the same limit before any is carried out.
        wait_until(lambda: len(store.commands(run.run_id)) == 2)
        driving = pool.submit(drive_until, has_ended, store, run)
        answers = [request.result() for request in asked]
        has_ended.set()
        driving.result()
    assert all(str(answer).startswith("at most ") for answer in answers)
    assert getattr(run.history.in_force.budget, limit) == pytest.approx(total)


def test_what_cannot_be_added_is_answered_before_it_is_requested(store: Store) -> None:
    run = begun_run(store, trials=10, money="5 EUR", price="1 EUR/h")
    with pytest.raises(ArgumentError, match="time: 'soon' is not valid; allowed: a duration"):
        run.extend(time="soon")
    with pytest.raises(ExperimentError, match="no such limit to extend"):
        run.extend(time="1h")
    with pytest.raises(ExperimentError, match="not in the currency of the price"):
        run.extend(money="1 USD")
    assert store.commands(run.run_id) == []

"""What a run with a limit on energy has used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.errors import ResourcesError
from workbench.foundation.events import EnergyMetered, TrialProposed, TrialStarted, steady_unix_s
from workbench.store.database import Store
from workbench.store.history import History
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.monitor import UNMETERED_S, EnergyLimit


@contextmanager
def ledger_of(store: Store, **budget: Any) -> Iterator[Ledger]:
    run_id = store.create_run(
        Experiment(train="m:f", objectives=[{"metric": "loss", "goal": "minimize"}], budget=budget)
    )
    ledger = Ledger(store, run_id)
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        ledger.replay(writer)
        yield ledger


def test_it_is_recorded_in_steps_of_the_limit_and_as_soon_as_the_limit_is_met(store: Store) -> None:
    metered = iter([None, 0.5, 1.5, 2.0, 99.8, 100.1, 100.2])
    with ledger_of(store, energy=100.0) as ledger:
        limit = EnergyLimit(ledger, lambda: next(metered))
        for _ in range(7):
            limit.tick()
    events = [stored.event for stored in store.events(ledger.run_id)]
    assert [event.total_wh for event in events if isinstance(event, EnergyMetered)] == [
        1.5,
        99.8,
        100.1,
    ]
    assert History.of(ledger.experiment, events).energy_wh == 100.1


def test_nothing_is_recorded_without_a_limit(store: Store) -> None:
    with ledger_of(store, trials=3) as ledger:
        EnergyLimit(ledger, lambda: 5.0).tick()
    assert ledger.history.energy_wh is None


def test_a_run_whose_trials_nothing_meters_does_not_continue(store: Store) -> None:
    with ledger_of(store, energy=100.0) as ledger:
        limit = EnergyLimit(ledger, lambda: None)
        limit.tick()
        begun_s = steady_unix_s() - UNMETERED_S - 1.0
        ledger.record(
            TrialProposed(trial=0, params={}, configuration=0, seed=1),
            TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=begun_s),
        )
        with pytest.raises(ResourcesError, match=r"budget.energy.*nothing meters"):
            limit.tick()

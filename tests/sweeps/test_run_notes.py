"""A run notes what is notable about its table, once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from workbench import data as workbench_data
from workbench.experiment import Component, Experiment
from workbench.foundation.events import Noted, TrialProposed
from workbench.store.database import Store
from workbench.sweeps import run_notes
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.run_notes import DataNotes, notes_of_limits


def experiment_on(data: Any, **fields: Any) -> Experiment:
    objectives = [{"metric": "val_loss", "goal": "minimize"}]
    return Experiment(model="mlp", data=data, objectives=objectives, **fields)


def notes_of(
    store: Store,
    data: Any,
    *,
    has_trial: bool = False,
    started_in: Path | None = None,
    **fields: Any,
) -> list[str]:
    run_id = store.create_run(experiment_on(data, **fields))
    ledger = Ledger(store, run_id)
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        ledger.replay(writer)
        if has_trial:
            ledger.record(TrialProposed(trial=0, params={}, configuration=0, seed=0))
        notes = DataNotes(ledger, started_in=started_in)
        notes.begin()
        notes.end()
    return [
        stored.event.message for stored in store.events(run_id) if isinstance(stored.event, Noted)
    ]


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "table.csv"
    pd.DataFrame({"customer_id": range(60), "age": range(60), "y": [0, 1] * 30}).to_csv(
        path, index=False
    )
    return {"name": "table", "path": str(path), "target": "y"}


def test_no_trial_waits_for_the_table(
    store: Store, table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read = threading.Event()

    def read(data: Component, *, here: Path) -> tuple[str, ...]:
        may_read.wait()
        return workbench_data.notes_of(data, here=here)

    monkeypatch.setattr(run_notes, "notes_of", read)
    run_id = store.create_run(experiment_on(table))
    ledger = Ledger(store, run_id)
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        ledger.replay(writer)
        notes = DataNotes(ledger)
        notes.begin()
        notes.tick()
        ledger.record(TrialProposed(trial=0, params={}, configuration=0, seed=0))
        may_read.set()
        notes.end()
        notes.end()
    assert [stored.event.type for stored in store.events(run_id)] == ["trial_proposed", "noted"]


def test_a_column_that_identifies_rows_is_noted_before_the_first_trial_only(
    store: Store, table: dict[str, Any]
) -> None:
    [note] = notes_of(store, table)
    assert note.startswith("column 'customer_id' differs in nearly every row")
    assert notes_of(store, table, has_trial=True) == []
    assert notes_of(store, table | {"drop": ["customer_id"]}) == []
    folder = Path(table["path"]).parent
    assert notes_of(store, table | {"path": "table.csv"}, started_in=folder) == [note]


def test_other_data_and_data_that_cannot_be_read_are_left_to_the_trials(
    store: Store, table: dict[str, Any]
) -> None:
    assert notes_of(store, "digits") == []
    assert notes_of(store, table | {"path": "nowhere.csv"}) == []


def test_a_run_notes_too_few_trials_for_its_population_and_gpus_that_are_not_there(
    store: Store,
) -> None:
    space = {"lr": {"low": 0.1, "high": 1.0}}
    short = {
        "sampler": {"name": "pbt", "options": {"population": 4, "every": 2}},
        "training": {"epochs": 4},
    }
    [note] = notes_of(store, "digits", search=space, budget={"trials": 5}, **short)
    assert note.startswith("budget.trials: the population needs 8 trials")
    sharing = experiment_on("digits", search=space, resources={"per_gpu": 2})
    [note] = notes_of_limits(sharing, 0)
    assert note.startswith("resources.per_gpu: it has no effect, because there is no GPU here")
    for num_gpus in (1, None):
        assert notes_of_limits(sharing, num_gpus) == []
    assert notes_of_limits(experiment_on("digits", search=space), 0) == []


def test_a_run_whose_trials_would_be_the_same_one_notes_that_one_runs(store: Store) -> None:
    [note] = notes_of(store, "digits", budget={"trials": 5})
    assert (
        note
        == "budget.trials: nothing is searched, so only one of the 5 trials runs. Add parameters"
        " to search, or set repeats: 5 to train with 5 seeds"
    )
    assert notes_of(store, "digits", budget={"trials": 5}, has_trial=True) == []
    assert notes_of(store, "digits", budget={"trials": 1}, repeats=5) == []
    assert (
        notes_of(store, "digits", budget={"trials": 5}, search={"lr": {"low": 0.1, "high": 1.0}})
        == []
    )

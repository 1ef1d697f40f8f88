from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    Event,
    ProgramKept,
    SettingsChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.store.database import Store
from workbench.store.history import History
from workbench.sweeps.warm_start import inherited_repeats, prior_trials, similar_runs


def make_experiment(**fields: Any) -> Experiment:
    settings: dict[str, Any] = {
        "train": "json:dumps",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}},
    }
    return Experiment(**settings | fields)


def record(
    store: Store, *trials: tuple[dict[str, Any], str, dict[str, float]], **fields: Any
) -> str:
    """Store a run with one trial for each (params, state, values), two reports each."""
    run_id = store.create_run(make_experiment(**fields))
    events: list[Event] = []
    for number, (params, state, values) in enumerate(trials):
        events += [
            TrialProposed(trial=number, params=params, configuration=number, seed=1),
            TrialStarted(trial=number, attempt=0, worker_pids=[1]),
            TrialReported(trial=number, step=1, values={"loss": 9.0}),
            TrialReported(trial=number, step=2, values={"speed": 1.0, **values}),
            TrialEnded(trial=number, attempt=0, state=state, values=values),  # type: ignore[arg-type]
        ]
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        writer.append(*events)
    return run_id


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        yield store


def test_complete_and_pruned_trials_teach_with_their_reports(store: Store) -> None:
    run_id = record(
        store,
        ({"x": 0.1}, "complete", {"loss": 1.0}),
        ({"x": 0.2}, "pruned", {"loss": 2.0}),
        ({"x": 0.3}, "failed", {"loss": 3.0}),
        ({"x": 0.4}, "stopped", {"loss": 4.0}),
        ({"x": 0.5}, "complete", {"loss": float("nan")}),
        ({"x": 0.6}, "complete", {}),
    )
    trials = prior_trials(store, run_id, make_experiment())
    assert [(prior.from_run_id, prior.from_trial, prior.state) for prior in trials] == [
        (run_id, 0, "complete"),
        (run_id, 1, "pruned"),
    ]
    assert [(prior.params, prior.values) for prior in trials] == [
        ({"x": 0.1}, {"loss": 1.0, "speed": 1.0}),
        ({"x": 0.2}, {"loss": 2.0, "speed": 1.0}),
    ]
    assert [prior.reports for prior in trials] == [[(1, 9.0), (2, 1.0)], [(1, 9.0), (2, 2.0)]]


def test_trials_outside_the_space_of_the_new_run_are_left_out(store: Store) -> None:
    run_id = record(
        store, ({"x": 0.1}, "complete", {"loss": 1.0}), ({"x": 0.9}, "complete", {"loss": 2.0})
    )
    narrow = make_experiment(search={"x": {"low": 0.5, "high": 1.0}})
    assert [prior.from_trial for prior in prior_trials(store, run_id, narrow)] == [1]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"objectives": [{"metric": "loss", "goal": "maximize"}]}, "objectives"),
        ({"objectives": [{"metric": "accuracy", "goal": "minimize"}]}, "objectives"),
        (
            {
                "objectives": [
                    {"metric": "loss", "goal": "minimize"},
                    {"metric": "size", "goal": "minimize"},
                ]
            },
            "objectives",
        ),
        ({"search": {"z": {"low": 0.0, "high": 1.0}}}, "search"),
    ],
)
def test_a_run_that_can_teach_nothing_is_refused(
    store: Store, fields: dict[str, Any], field: str
) -> None:
    run_id = record(store, ({"x": 0.1}, "complete", {"loss": 1.0}))
    with pytest.raises(ExperimentError) as refusal:
        prior_trials(store, run_id, make_experiment(**fields))
    assert refusal.value.field == field


def _complete(*values: float) -> list[tuple[dict[str, Any], str, dict[str, float]]]:
    return [({"x": value}, "complete", {"loss": value}) for value in values]


def test_similar_runs_are_those_that_can_teach_with_the_same_training_first(store: Store) -> None:
    many = _complete(0.1, 0.2, 0.3, 0.4)
    same = record(store, *many)
    record(store, *many, objectives=[{"metric": "loss", "goal": "maximize"}])
    record(store, *_complete(0.1, 0.2, 0.3))  # too few
    other = record(store, *many, train="json:loads")
    wide = record(
        store, *_complete(0.1, 0.2, 0.3, 0.4, 5.0, 6.0), search={"x": {"low": 0.0, "high": 9.0}}
    )
    record(store, *_complete(5.0, 6.0, 7.0, 8.0), search={"x": {"low": 0.0, "high": 9.0}})
    assert similar_runs(store, make_experiment()) == [wide, same, other]
    assert similar_runs(store, make_experiment(search={"z": {"low": 0.0, "high": 1.0}})) == []


def new_history(code: str = "a") -> History:
    history = History(make_experiment())
    history.apply(ProgramKept(version=1, code_sha256=code, why="start"))
    return history


def record_repeats(store: Store, values: list[list[float]], **fields: Any) -> str:
    """Store a run whose configurations were trained several times."""
    run_id = store.create_run(make_experiment(**fields))
    events: list[Event] = [ProgramKept(version=1, code_sha256="a", why="start")]
    trainings = [
        (configuration, repeat, value)
        for configuration, repeats in enumerate(values)
        for repeat, value in enumerate(repeats)
    ]
    for number, (configuration, repeat, value) in enumerate(trainings):
        events += [
            TrialProposed(
                trial=number,
                params={"x": 0.5},
                configuration=configuration,
                repeat=repeat,
                seed=number,
            ),
            TrialStarted(trial=number, attempt=0, worker_pids=[1]),
            TrialEnded(trial=number, attempt=0, state="complete", values={"loss": value}, step=7),
        ]
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        writer.append(*events)
    return run_id


def test_repeated_trainings_of_runs_like_this_one_are_inherited(store: Store) -> None:
    values = [[1.0, 1.5, 1.25], [2.0], [3.0, 4.0]]
    confirmed = record_repeats(store, values, confirm={"best": 2})
    record_repeats(store, values)  # nothing says that these were repeats
    record_repeats(store, values, confirm={"best": 2}, train="json:loads")
    record_repeats(
        store, values, confirm={"best": 2}, objectives=[{"metric": "loss", "goal": "maximize"}]
    )
    inherited = inherited_repeats(store, "new", new_history())
    assert inherited is not None
    assert inherited.from_run_ids == [confirmed]
    assert [(group.values, group.seeds, group.num_steps) for group in inherited.groups] == [
        ([1.0, 1.5, 1.25], [0, 1, 2], 7),
        ([3.0, 4.0], [4, 5], 7),
    ]
    assert inherited_repeats(store, confirmed, new_history()) is None


def test_other_code_of_the_same_name_shows_no_noise(store: Store) -> None:
    record_repeats(store, [[1.0, 1.5, 1.25]], repeats=3)
    assert inherited_repeats(store, "new", new_history("a")) is not None
    assert inherited_repeats(store, "new", new_history("b")) is None


def test_trainings_that_two_runs_share_are_inherited_once(store: Store) -> None:
    values = [[1.0, 1.5, 1.25], [3.0, 4.0]]
    for _ in range(2):
        newest = record_repeats(store, values, repeats=2)
    inherited = inherited_repeats(store, "new", new_history())
    assert inherited is not None
    assert inherited.from_run_ids == [newest]
    assert [group.values for group in inherited.groups] == values


def test_a_run_that_was_extended_to_confirm_its_best_shows_the_noise(store: Store) -> None:
    run_id = record_repeats(store, [[1.0, 1.5]])
    assert inherited_repeats(store, "new", new_history()) is None
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        writer.append(SettingsChanged(settings={"confirm.best": 1}))
    assert inherited_repeats(store, "new", new_history()) is not None

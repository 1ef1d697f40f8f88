"""Candidates that are trained in the process of the user, without a driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.ended_automl import create_automl
from workbench.foundation.events import CommandHandled, Noted, RunStateChanged, TrialReported
from workbench.hardware.resources import ProcessorTimes
from workbench.runs.automl import conclusion, launch, trials_here
from workbench.runs.automl.candidates import in_order_of_time
from workbench.search import Study
from workbench.store.database import Store
from workbench.sweeps.code_versions import read_origin

WHY = "the machine is busy"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as opened:
        yield opened


def rows_of(num_rows: int = 250, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.normal(size=(num_rows, 3)), columns=["a", "b", "c"])
    return rows.assign(y=rows["a"] * rows["b"] + 0.5 * rows["c"])


def created(store: Store, **options: Any) -> wb.AutoML:
    options = {"time": "10m", "families": "linear,boosted_trees"} | options
    return create_automl(rows_of(), "y", store=store, **options)


def run_here(found: wb.AutoML) -> wb.AutoML:
    launch.start(found, began_s=monotonic(), here=WHY)
    return wb.AutoML.attach(found.run.run_id, store=found.run.store)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[wb.AutoML]:
    """A run that had enough time for all first configurations."""
    with wb.Store.open(str(tmp_path_factory.mktemp("ended") / "store.sqlite")) as opened:
        yield run_here(created(opened, families="linear,extra_trees"))


def test_first_configurations_are_trained_on_their_folds_and_combined(ended: wb.AutoML) -> None:
    history = ended.run.history
    ending = (history.state, history.message)
    assert ending == ("complete", "all first configurations were tried")
    events = [stored.event for stored in ended.run.store.events(ended.run.run_id)]
    assert WHY in [event.message for event in events if isinstance(event, Noted)]
    families = [trial.params["family"] for trial in history.trials.values()]
    num_folds = history.experiment.repeats
    assert 1 <= families.count("linear") <= num_folds < families.count("extra_trees")
    assert {trial.state for trial in history.trials.values()} <= {"complete", "pruned"}
    assert all(used["trial"] is not None for used in ended.to_json()["used"])
    new = rows_of(300, seed=1)
    assert np.corrcoef(ended.predict(new.drop(columns="y")), new["y"])[0, 1] > 0.5


def test_boosted_trees_are_first_and_networks_last_in_case_that_there_is_no_more_time() -> None:
    families = ("linear", "lightgbm", "tabular_mlp", "xgboost", "linear", "lightgbm", "forest")
    ordered = in_order_of_time([{"family": family} for family in families])
    expected = ["lightgbm", "linear", "xgboost", "linear", "lightgbm", "forest", "tabular_mlp"]
    assert [params["family"] for params in ordered] == expected
    assert in_order_of_time([]) == []


def test_a_driver_finds_where_such_a_run_was_started(ended: wb.AutoML) -> None:
    origin = read_origin(ended.run.store.artifacts_of(ended.run.run_id))
    assert Path(origin.directory) == Path.cwd()


def test_a_driver_that_continues_such_a_run_knows_what_was_tried(ended: wb.AutoML) -> None:
    store, run_id = ended.run.store, ended.run.run_id
    events = [stored.event for stored in store.events(run_id)]
    study = Study.rebuild(store.experiment(run_id), events)
    assert study.num_enqueued == 0
    assert not study.has_waiting_repeats
    handled = {event.command for event in events if isinstance(event, CommandHandled)}
    assert handled == {command.number for command in store.commands(run_id)}


def test_without_any_time_the_first_candidate_is_trained_to_its_end(store: Store) -> None:
    found = created(store)
    launch.start(found, began_s=monotonic() - 1200, here=WHY)
    (trial,) = found.run.history.trials.values()
    assert (trial.state, trial.params["family"]) == ("complete", "boosted_trees")
    (used,) = found.to_json()["used"]
    assert used["trial"] == trial.number


def test_what_remains_of_the_time_is_counted_from_the_end_of_the_trials(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[RunStateChanged] = []

    def note(*words: Any) -> list[Any]:
        ended.append(words[-1])
        return []

    found = created(store, families="linear")
    began_unix_s = time()
    monkeypatch.setattr(conclusion, "train_here", lambda *_, **__: "late")
    monkeypatch.setattr(conclusion, "result_of", note)
    conclusion.conclude_here(store, found.run.run_id, WHY, waited_s=0.0)
    assert [end.time_unix_s >= began_unix_s for end in ended] == [True]


@pytest.mark.parametrize(("share", "trials_s"), [(1.0, 30.0), (0.16, 27.5), (0.05, 15.0)])
def test_a_busy_machine_leaves_trials_half_of_their_time_at_least(
    store: Store, monkeypatch: pytest.MonkeyPatch, share: float, trials_s: float
) -> None:
    clock = SimpleNamespace(now_s=100.0, monotonic=lambda: clock.now_s)
    times = iter([ProcessorTimes(0.0, 0.0), *[ProcessorTimes(1.0, 1.0 / share - 1.0)] * 2])
    monkeypatch.setattr(trials_here, "time", clock)
    monkeypatch.setattr(trials_here, "processor_times", lambda: next(times))
    found = created(store, time="40s")  # 10 s of it are kept anyway
    with store.writer(found.run.run_id, owner_pid=1, owner_host="a") as writer:
        trials = trials_here._Trials(store, found.run.run_id, writer, 30.0)
        over = []
        for clock.now_s in (100.0 + trials_s - 0.5, 100.0 + trials_s + 0.5):
            over.append(trials._is_over())
    assert over == [False, True]


def test_a_training_that_is_under_way_when_the_time_is_over_counts_as_far_as_it_came(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = created(store)
    num_reports = 0

    def is_over(trials: Any, *, is_first: bool = False) -> bool:
        nonlocal num_reports
        second = len(trials._study._trials) > 1
        num_reports += second
        return num_reports > 2

    monkeypatch.setattr(trials_here._Trials, "_is_over", is_over)
    found = run_here(found)
    first, second = found.run.history.trials.values()
    assert (first.state, second.state) == ("complete", "stopped")
    assert second.best_checkpoint is not None
    assert found.has_result


def test_who_stops_such_a_run_gets_the_best_so_far(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = created(store)
    append = found.run.store.writer

    def stop_at_report(*words: Any, **options: Any) -> Any:
        writer = append(*words, **options)
        written = writer.append

        def stopping(*events: Any, **more: Any) -> int:
            if any(isinstance(event, TrialReported) for event in events):
                store.command(found.run.run_id, "stop", {})
            return written(*events, **more)

        monkeypatch.setattr(writer, "append", stopping)
        return writer

    monkeypatch.setattr(found.run.store, "writer", stop_at_report)
    found = run_here(found)
    history = found.run.history
    assert (history.state, history.reason) == ("stopped", "person")
    assert [trial.state for trial in history.trials.values()] == ["stopped"]
    assert found.has_result


def test_an_interrupt_ends_the_trial_and_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    found = created(store)
    monkeypatch.setattr("workbench.training.fitting.load_trial_data", interrupt)
    with pytest.raises(KeyboardInterrupt):
        launch.start(found, began_s=monotonic(), here=WHY)
    history = found.run.history
    assert (history.state, history.reason) == ("stopped", "person")
    assert [trial.state for trial in history.trials.values()] == ["stopped"]
    assert not store.is_driven(found.run.run_id)

"""Whole automatic runs on a real Ray head."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import workbench as wb
from tests.services.waiting import wait_until
from workbench.foundation.errors import DataError, RunError, RunNotFoundError, StoreError
from workbench.foundation.events import (
    AdviceGiven,
    Noted,
    PlanMeasured,
    RunStateChanged,
    TrialProposed,
)
from workbench.runs.automl.candidates import FAMILIES
from workbench.runs.notebook_output import RUN_MIME_TYPE
from workbench.sweeps import sweep_advisor

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, ray_head: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setenv("WORKBENCH_HOME", str(ray_head))
    return tmp_path


def customers(num_rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.normal(45, 12, num_rows)
    city = rng.choice(["Rome", "Oslo", "Bonn"], num_rows)
    stays = (age > 45) ^ (city == "Oslo")
    age[::11] = np.nan
    return pd.DataFrame(
        {
            "customer_id": np.arange(num_rows) + 1000,
            "age": age,
            "city": city,
            "since": pd.Series(
                pd.date_range("2020-01-01", periods=num_rows, freq="3D")
            ).dt.strftime("%d/%m/%Y"),
            "stays": np.where(stays, "yes", "no"),
        }
    )


def end_after(found: wb.AutoML, num_complete: int) -> None:
    """End a run once so many trainings are complete, however long a busy machine takes."""

    def is_enough() -> bool:
        assert not found.finished
        return len(found.run.history.in_state("complete")) >= num_complete

    wait_until(is_enough, every_s=0.2)
    found.stop().wait(timeout_s=120)


def started_run() -> wb.AutoML:
    """Return the run that another process is about to start."""

    def attach() -> wb.AutoML | None:
        with contextlib.suppress(RunNotFoundError, StoreError):  # there is no store at first
            return wb.AutoML.attach()

    run = wait_until(attach, every_s=0.2)
    assert run is not None
    return run


@pytest.mark.slow
def test_a_table_becomes_a_tested_model_while_nobody_waits(folder: Path) -> None:
    table = customers()
    run = wb.automl(table, "stays", time="5m")

    assert not run.finished
    with pytest.raises(RunError, match="there is no result yet"):
        run.leaderboard()
    assert RUN_MIME_TYPE in run._repr_mimebundle_()
    end_after(run, 11)  # with five folds: configurations of several families

    board = run.leaderboard()
    tested = board.dropna(subset=["test_accuracy"])
    # A choice by test scores would make them worthless: only what is used and the guess have some.
    assert len(tested) == 2
    assert tested.iloc[-1]["model"] == "most frequent class"
    held = [bool(candidate.models) for candidate in run._chosen.candidates]
    assert held == [weight > 0 for weight in run._chosen.weights], (
        "models that are not used are let go"
    )
    tried = {str(trial.params["family"]) for trial in run.run.history.trials.values()}
    assert len(tried) > 1
    assert tried <= set(FAMILIES["table"])
    assert not run.run.history.in_state("failed")
    assert run.score()["accuracy"] == tested.iloc[0]["test_accuracy"]
    assert run.score()["accuracy"] > run.baseline["accuracy"] + 0.15
    said = run.predict(table.drop(columns="stays"))
    assert set(said) <= {"yes", "no"}
    assert (said == table["stays"]).mean() > 0.8
    assert run.classes == ["no", "yes"]
    np.testing.assert_allclose(run.predict_proba(table[:7]).sum(axis=1), 1.0)
    new = customers(330)[300:]
    assert run.score(new)["accuracy"] == (run.predict(new) == new["stays"]).mean()
    assert "text/html" in run._repr_mimebundle_()
    result: Any = run.run.history.result
    assert result is not None, "the driver has stored the result"
    assert result["test"]["accuracy"] == pytest.approx(run.score()["accuracy"])
    assert RUN_MIME_TYPE in run._repr_mimebundle_(), "so the live view shows it"
    with pytest.raises(DataError, match=r"^samples: there is no column 'city'; needed: "):
        run.predict(table[["age", "since"]])
    np.testing.assert_array_equal(
        run.predict_proba(table[:4].assign(age=[1.0, 2.0, np.inf, np.nan])),
        run.predict_proba(table[:4].assign(age=[1.0, 2.0, np.nan, np.nan])),
    )
    with pytest.raises(
        DataError,
        match=r"^samples: .*'since' held dates in the training data: row 0 .*as day/month/year",
    ):
        run.predict(table[:1].assign(since="soon"))
    assert len(run.predict(table[:4].assign(age=np.nan))) == 4
    assert [note.partition(":")[0] for note in run.notes][:3] == [
        "the rows are sorted by `since`",
        "columns that differ in nearly every row are not used",
        "read as dates",
    ]

    for nothing in (table.drop(columns="stays")[:0], [], np.empty((0, 2))):
        assert run.predict(nothing).shape == (0,)
        assert run.predict(nothing).dtype == said.dtype
        assert run.predict_proba(nothing).shape == (0, 2)
    assert run.run.history.in_force.budget.time == 300
    assert 0 < run.run.history.waited_s < 300, "the start counts"

    again = wb.AutoML.attach(run.run.run_id)
    pd.testing.assert_frame_equal(again.leaderboard(), board)
    np.testing.assert_array_equal(again.predict(table.drop(columns=["stays", "customer_id"])), said)


@pytest.mark.slow
def test_a_long_run_measures_plans_first_and_all_of_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep_advisor, "LONG_RUN_S", 40.0)  # of ten minutes, as they are
    digits: Any = load_digits()  # models of tables make no steps, so they have no plan
    images = (digits.images[:300], digits.target[:300])
    found = wb.automl(images, time="40s", launcher="inline")

    history, run = found.run.history, found.run
    kinds = [item.event for item in run.store.events(run.run_id)]
    first_trial = next(
        place for place, event in enumerate(kinds) if isinstance(event, TrialProposed)
    )
    measured = [event for event in kinds[:first_trial] if isinstance(event, PlanMeasured)]
    assert measured, [event.message for event in kinds if isinstance(event, Noted)]
    assert {str(event.plan["workers"]) for event in measured} == {"1"}
    assert [type(event) for event in kinds[:first_trial]].count(AdviceGiven) == 1
    assert (history.state, history.reason) == ("complete", "time")
    begun_s = next(event.time_unix_s for event in kinds if isinstance(event, RunStateChanged))
    proposed_s = [event.time_unix_s for event in kinds if isinstance(event, TrialProposed)]
    assert max(proposed_s) - begun_s <= 40, "what was measured is part of the time"
    assert not history.in_state("failed")
    globals_ = {
        trial.plan.global_batch for trial in history.in_state("complete") if "lr" in trial.params
    }
    assert globals_ == {run.experiment.training.global_batch}, (
        "only how a step is divided is decided"
    )
    assert found.score()["accuracy"] > found.baseline["accuracy"] + 0.15


@pytest.mark.slow
def test_images_are_learnt_by_networks_and_labels_keep_their_type() -> None:
    digits: Any = load_digits()
    run = wb.automl((digits.images[:300], digits.target[:300]), time="5m")
    end_after(run, 2)

    assert run.score()["accuracy"] > 0.7
    assert {str(trial.params["family"]) for trial in run.run.history.trials.values()} <= {
        "convnet",
        "resnet",
    }
    said = run.predict(digits.images[700:710])
    assert said.dtype.kind == "i"
    with pytest.raises(DataError, match="table were given"):
        run.predict(digits.data[:3])


@pytest.mark.slow
def test_a_run_on_texts_can_be_ended_early_and_keeps_what_it_found() -> None:
    words = {
        "weather": ["rain", "wind", "sun", "cloud", "storm"],
        "food": ["bread", "soup", "cheese", "apple", "rice"],
    }
    rng = np.random.default_rng(0)
    labels = rng.choice(["weather", "food"], 200)
    texts = [" ".join(rng.choice(words[label], 4)) + " today" for label in labels]
    run = wb.automl((texts, labels), time="5m")

    run.wait(timeout_s=0.5)
    assert not run.finished
    end_after(run, 2)
    assert run.run.state == "stopped"
    assert run.score()["accuracy"] > 0.9
    assert list(run.predict(["wind and rain", "cheese soup"])) == ["weather", "food"]


@pytest.mark.slow
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_the_command_leaves_the_run_alive(folder: Path, ended_by: signal.Signals) -> None:
    customers().to_csv(folder / "customers.csv", index=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", "automl", "customers.csv", "--target", "stays"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "candidate" in process.stdout.readline()
    process.send_signal(ended_by)
    _, err = process.communicate(timeout=120)

    run = wb.AutoML.attach()
    assert process.returncode == 130
    assert f"The run continues. To follow it: workbench follow {run.run.run_id}" in err
    assert f"Its result, once it has ended: workbench show {run.run.run_id}" in err
    assert "Traceback" not in err
    assert run.run.driven
    assert run.stop().wait(timeout_s=120).has_result


@pytest.mark.slow
def test_a_killed_command_continues_with_the_next_call(folder: Path) -> None:
    customers().to_csv(folder / "customers.csv", index=False)
    command = [sys.executable, "-m", "workbench", "automl", "customers.csv", "--target", "stays"]
    process = subprocess.Popen([*command, "--time", "5m"], cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert b"candidate" in process.stdout.readline()
    process.kill()
    process.communicate(timeout=120)

    first = wb.AutoML.attach()
    again = wb.automl(folder / "customers.csv", "stays", time="5m")
    assert again.run.run_id == first.run.run_id
    assert not again.has_new_driver, "it has worked on"
    num_complete = len(again.run.history.in_state("complete"))
    again.stop().wait(timeout_s=120)

    more = wb.automl(folder / "customers.csv", "stays", time="6m")
    assert more.run.run_id == first.run.run_id
    assert more.has_new_driver
    end_after(more, num_complete + 1)
    assert more.has_result
    assert more.score()["accuracy"] > more.baseline["accuracy"]
    assert wb.automl(folder / "customers.csv", "stays", time="6m", metric="f1").continued is None
    wb.AutoML.attach().stop().wait(timeout_s=120)


KILLED_AT_REFIT = """
import os, signal
import workbench as wb
from workbench.runs.automl import result
from workbench.sweeps import conclusion

conclusion._concluded_in_worker = lambda *given: None  # no worker is free
result.refit = lambda *given, **how: os.kill(os.getpid(), signal.SIGKILL)
wb.automl("customers.csv", "stays", time="10m", families="linear", launcher="inline")
"""


@pytest.mark.slow
def test_a_kill_while_models_are_fitted_to_all_rows_goes_on_with_the_next_call(
    folder: Path,
) -> None:
    customers().to_csv(folder / "customers.csv", index=False)
    process = subprocess.Popen([sys.executable, "-c", KILLED_AT_REFIT], cwd=folder)
    first = started_run()
    wait_until(lambda: first.run.history.in_state("complete"), timeout_s=300, every_s=0.2)
    first.stop()
    assert process.wait(timeout=300) == -signal.SIGKILL
    complete = {trial.number for trial in first.run.history.in_state("complete")}
    assert not first.finished

    again = wb.automl(folder / "customers.csv", "stays", time="10m", families="linear")
    assert again.run.run_id == first.run.run_id
    assert again.has_new_driver
    again.stop().wait(timeout_s=300)

    assert complete <= {trial.number for trial in again.run.history.in_state("complete")}
    assert again.run.history.result is not None, "the driver has stored the result"
    assert again.score()["accuracy"] > again.baseline["accuracy"]
    assert len(again.predict(customers(330)[300:])) == 30


HERE = """
import workbench as wb
from workbench.runs.automl import launch

launch.reason_for_no_driver = lambda *given, **how: "the machine is busy"
wb.automl("customers.csv", "stays", time="10m", wait=True)
"""


@pytest.mark.slow
def test_a_run_without_a_driver_is_continued_by_one_after_a_kill(folder: Path) -> None:
    customers().to_csv(folder / "customers.csv", index=False)
    process = subprocess.Popen([sys.executable, "-c", HERE], cwd=folder)
    first = started_run()
    wait_until(lambda: first.run.history.in_state("complete"), timeout_s=300, every_s=0.2)
    process.kill()
    process.wait(timeout=120)
    complete = {trial.number for trial in first.run.history.in_state("complete")}

    again = wb.automl(folder / "customers.csv", "stays", time="10m")
    assert again.run.run_id == first.run.run_id
    assert again.has_new_driver
    end_after(again, len(complete) + 1)
    assert complete <= {trial.number for trial in again.run.history.in_state("complete")}
    assert again.score()["accuracy"] > again.baseline["accuracy"]


@pytest.mark.slow
def test_the_command_line_tests_a_regression(folder: Path) -> None:
    rng = np.random.default_rng(1)
    rooms, size = rng.integers(1, 8, 250), rng.normal(100, 20, 250)
    pd.DataFrame({"rooms": rooms, "size": size, "price": 3 * size + 20 * rooms}).to_csv(
        folder / "houses.csv", index=False
    )
    command = [sys.executable, "-m", "workbench", "automl", "houses.csv", "--json", "--target"]
    process = subprocess.Popen(
        [*command, "price"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    end_after(started_run(), 1)
    out, err = process.communicate(timeout=120)

    assert process.returncode == 0, err
    told = json.loads(out)
    assert told["test"]["r2"] > 0.9
    assert abs(told["baseline"]["r2"]) < 0.2
    assert told["num_samples"] == {"learning": 200, "test": 50}
    assert "candidate   1  " in err
    assert not [line for line in err.splitlines() if "trial" in line or "enqueue" in line]
    wrong = subprocess.run(
        [*command, "prize"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "there is no column 'prize'; allowed: rooms, size, price" in wrong.stderr

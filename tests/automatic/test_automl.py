"""Whole automatic runs on a real Ray head."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import workbench as wb
from workbench.errors import DataError, RunError
from workbench.run.output import RUN_MIME_TYPE

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
    return pd.DataFrame({"age": age, "city": city, "stays": np.where(stays, "yes", "no")})


def test_a_table_becomes_a_tested_model_while_nobody_waits(folder: Path) -> None:
    table = customers()
    found = wb.automl(table, "stays", time="12s")

    assert not found.finished
    with pytest.raises(RunError, match="there is no result yet"):
        found.leaderboard()
    assert RUN_MIME_TYPE in found._repr_mimebundle_()
    found.wait()

    board = found.leaderboard()
    tested = board.dropna(subset=["test_accuracy"])
    # A choice by test scores would make them worthless: only what is used and the guess have some.
    assert len(tested) == 2
    assert tested.iloc[-1]["model"] == "most frequent class"
    tried = {trial.params["family"] for trial in found.run.history.trials.values()}
    assert tried == {"mlp", "boosted_trees", "forest"}
    assert not found.run.history.in_state("failed")
    assert found.score()["accuracy"] == tested.iloc[0]["test_accuracy"]
    assert found.score()["accuracy"] > found.baseline["accuracy"] + 0.15
    said = found.predict(table.drop(columns="stays"))
    assert set(said) <= {"yes", "no"}
    assert (said == table["stays"]).mean() > 0.8
    assert found.classes == ["no", "yes"]
    np.testing.assert_allclose(found.predict_proba(table[:7]).sum(axis=1), 1.0)
    new = customers(330)[300:]
    assert found.score(new)["accuracy"] == (found.predict(new) == new["stays"]).mean()
    assert "text/html" in found._repr_mimebundle_()
    assert RUN_MIME_TYPE not in found._repr_mimebundle_()
    with pytest.raises(DataError, match="no column 'city'"):
        found.predict(table[["age"]])

    again = wb.AutoML.attach(found.run.run_id)
    pd.testing.assert_frame_equal(again.leaderboard(), board)


def test_images_are_learnt_by_networks_and_labels_keep_their_type() -> None:
    digits = load_digits()
    found = wb.automl((digits.images[:700], digits.target[:700]), time="12s", wait=True)

    assert found.score()["accuracy"] > 0.85
    assert {trial.params["family"] for trial in found.run.history.trials.values()} == {"convnet", "resnet"}
    said = found.predict(digits.images[700:710])
    assert said.dtype.kind == "i"
    with pytest.raises(DataError, match="table were given"):
        found.predict(digits.data[:3])


def test_a_run_on_texts_can_be_ended_early_and_keeps_what_it_found() -> None:
    words = {
        "weather": ["rain", "wind", "sun", "cloud", "storm"],
        "food": ["bread", "soup", "cheese", "apple", "rice"],
    }
    rng = np.random.default_rng(0)
    labels = rng.choice(["weather", "food"], 200)
    texts = [" ".join(rng.choice(words[label], 4)) + " today" for label in labels]
    found = wb.automl((texts, labels), time="5m")

    found.wait(timeout_s=0.5)
    assert not found.finished
    until = time.monotonic() + 60
    while found.run.best is None and time.monotonic() < until:
        time.sleep(0.2)
    found.stop().wait(timeout_s=60)
    assert found.run.state == "stopped"
    assert found.score()["accuracy"] > 0.9
    assert list(found.predict(["wind and rain", "cheese soup"])) == ["weather", "food"]


def test_the_command_line_tests_a_regression(folder: Path) -> None:
    rng = np.random.default_rng(1)
    rooms, size = rng.integers(1, 8, 250), rng.normal(100, 20, 250)
    pd.DataFrame({"rooms": rooms, "size": size, "price": 3 * size + 20 * rooms}).to_csv(
        folder / "houses.csv", index=False
    )
    command = [sys.executable, "-m", "workbench.cli", "automl", "houses.csv", "--target", "price"]
    done = subprocess.run(
        [*command, "--time", "10s", "--json"], cwd=folder, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["test"]["r2"] > 0.9
    assert abs(told["baseline"]["r2"]) < 0.2
    assert told["num_samples"] == {"train": 160, "validation": 40, "test": 50}
    wrong = subprocess.run([*command[:-1], "prize"], cwd=folder, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "there is no column 'prize'; allowed: rooms, size, price" in wrong.stderr

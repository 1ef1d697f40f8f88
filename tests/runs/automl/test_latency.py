"""A limit on the time to predict one row is kept, and is reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.clock import Clock
from tests.builders.ended_automl import create_automl, end
from tests.runs.automl.test_stored_model import LINEAR, TABLE, TREES
from workbench.foundation.errors import ArgumentError
from workbench.runs.automl import latency, refitting
from workbench.runs.automl.latency import check_limit, is_within, limit_of, row_s, within


def test_a_limit_is_a_duration_with_a_name() -> None:
    assert check_limit(None) is None
    assert check_limit("latency=1ms") == check_limit({"latency": "1ms"}) == 0.001
    assert check_limit({"latency": 2}) == 2.0
    with pytest.raises(ArgumentError, match="limit: 'memory' cannot be limited"):
        check_limit("memory=3GB")
    with pytest.raises(ArgumentError, match="limit: 'soon' is not a duration"):
        check_limit("latency=soon")


class Slow:
    """A model that takes a time for each of its parts."""

    def __init__(self, weights: Sequence[float], times_s: Sequence[float], num_folds: int) -> None:
        self.weights, self.num_folds = list(weights), num_folds
        self.row_s = num_folds * sum(
            each for each, weight in zip(times_s, weights, strict=True) if weight
        )

    def outputs_of_new(self, _rows: Any) -> None:
        """Take the time that is faked below."""


@pytest.mark.parametrize(
    ("limit_s", "weights", "num_folds"),
    [
        (100.0, [0.5, 0.3, 0.2], 5),  # as it is
        (14.0, [0.5, 0.3, 0.2], 1),  # one fold of each
        (5.0, [0.5, 0.0, 0.5], 1),  # without the slow one
        (3.0, [0.0, 0.0, 1.0], 1),  # a single one, although it is not the best
        (0.1, [0.0, 0.0, 1.0], 1),  # the fastest, if none is in time
    ],
)
def test_a_limit_costs_as_few_models_as_possible(
    limit_s: float, weights: list[float], num_folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_s = [3.0, 8.0, 1.0]
    monkeypatch.setattr(latency, "row_s", lambda outputs, _: outputs.__self__.row_s)

    def make(given: Sequence[float], has_all_folds: bool) -> Any:
        return Slow(given, times_s, 5 if has_all_folds else 1)

    def select(among: Sequence[int]) -> list[float]:
        if len(among) == 3:
            return [0.5, 0.3, 0.2]
        return [1.0 / len(among) if number in among else 0.0 for number in range(3)]

    chosen: Any = within(limit_s, [0.5, 0.3, 0.2], make=make, select=select, rows=None)
    assert (chosen.weights, chosen.num_folds) == (weights, num_folds)


def test_the_time_of_a_row_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(latency.time, "perf_counter", clock)
    taken_s = row_s(lambda row: clock.sleep(0.002 * len(row)), np.zeros((3, 2)))
    assert taken_s == pytest.approx(0.002)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "is_kept"), [("1m", True), ("1us", False)])
def test_the_result_says_whether_its_limit_is_kept(
    limit: str, is_kept: bool, tmp_path: Path
) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        created = create_automl(
            TABLE,
            "y",
            time="20s",
            families="boosted_trees,linear",
            limit={"latency": limit},
            store=store,
        )
        assert limit_of(created.run.experiment) is not None
        run = end(created, TREES, LINEAR)
        document: Any = run.to_json()
        assert (document["latency"]["row_s"] <= document["latency"]["limit_s"]) is is_kept
        words = "within the limit of 1 min" if is_kept else "no model is within the limit of 1 µs"
        assert words in "\n".join(document["summary"])
        if not is_kept:
            (used,) = document["used"]
            assert used["num_folds"] == 1
        assert len(run.predict(TABLE.drop(columns="y"))) == len(TABLE)


def test_a_model_is_within_a_limit_with_a_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "row_s", lambda outputs, _: outputs.__self__.row_s)
    model: Any = Slow([1.0], [1.0], 1)
    assert is_within(1.2, model, None)
    assert not is_within(1.05, model, None)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["number", "class"])
def test_if_one_model_must_do_it_may_learn_what_an_ensemble_answers(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame({"x": random.normal(size=1000), "z": random.normal(size=1000)})
    # One model learns the line, the other one the steps.
    table["y"] = 3.0 * table["x"] + 0.75 * (np.abs(table["z"]) > 0.7)
    if target == "class":
        noise = 0.5 * random.logistic(size=len(table))
        table["y"] = np.where(table["y"] + noise > 1.0, "high", "low")

    def num_models(outputs: Any, _rows: Any) -> int:
        return sum(len(candidate.models) for candidate, _ in outputs.__self__.used)

    monkeypatch.setattr(latency, "row_s", num_models)
    monkeypatch.setattr(refitting, "expected_fit_s", lambda *_: -60.0)  # on any machine
    rows = table.drop(columns="y").head(20)
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        created = create_automl(
            table,
            "y",
            time="60s",
            families="boosted_trees,linear",
            limit={"latency": "1.5s"},
            store=store,
        )
        run = end(created, TREES, LINEAR)
        document: Any = run.to_json()
        (used,) = document["used"]
        assert (used["is_taught"], used["num_folds"]) == (True, 1)
        assert document["model"] == "boosted_trees (distilled)"
        assert list(document["refit"]) == ["taught"]
        board = run.leaderboard()
        assert board["model"][0] == document["model"]
        assert board["row_s"].notna().tolist() == [True, False, False, False]
        losses = board["val_log_loss" if target == "class" else "val_rmse"]
        assert losses[0] < min(losses[1:])

        predicted = run.predict_proba if target == "class" else run.predict
        expected = predicted(rows)
        run.export(tmp_path / "small")
        answers = wb.load_bundle(tmp_path / "small").predict(rows)
        exported = answers.probabilities if target == "class" else answers.values
        assert exported == pytest.approx(expected, rel=1e-5, abs=1e-6)

"""Trees are fitted again to all rows after the test, and everything predicts with them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.ended_automl import create_automl, end
from workbench.models.configurations import FittedConfiguration, configure
from workbench.runs.automl import refitting
from workbench.runs.automl.preparation import prepare
from workbench.runs.automl.task_detection import read_problem

RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {"x": RANDOM.normal(size=90), "town": RANDOM.choice([f"t{n}" for n in range(9)], 90)}
)
TABLE["y"] = TABLE["x"] * 3 + TABLE["town"].str[1].astype(int) + RANDOM.normal(size=90)


def ended_run(store: wb.Store, **params: Any) -> str:
    """Store a run of one candidate that was trained in this process, and its result."""
    run = create_automl(TABLE, "y", time="20s", families="boosted_trees,tabular_mlp", store=store)
    if params["family"] == "tabular_mlp":  # it makes as many passes as there is time for
        passes: Any = run.run.experiment.search.root["tabular_mlp_num_passes"]
        params["tabular_mlp_num_passes"] = passes.values()[0]
    return end(run, params).run.run_id


TREES = {
    "family": "boosted_trees",
    "boosted_trees_num_trees": 20,
    "boosted_trees_shrinkage": 0.2,
    "boosted_trees_max_leaves": 4,
    "boosted_trees_min_samples_leaf": 3,
    "boosted_trees_l2": 1.0,
}


NETWORK = {
    "family": "tabular_mlp",
    "tabular_mlp_num_layers": 1,
    "tabular_mlp_hidden_width": 64,
    "tabular_mlp_numeric_embedding": "piecewise",
    "tabular_mlp_dropout": 0.0,
    "tabular_mlp_step_size": 0.01,
    "tabular_mlp_decay": 1e-3,
}


@pytest.mark.parametrize(
    ("family", "num_rows", "uses_all"),
    [("boosted_trees", 90, False), ("boosted_trees", 50_000, True), ("tabular_mlp", 50_000, False)],
)
def test_only_trees_of_many_rows_are_learnt_on_several_threads(
    family: str, num_rows: int, uses_all: bool
) -> None:
    configuration = configure(family, {})
    assert isinstance(configuration, FittedConfiguration)
    num_cores = len(os.sched_getaffinity(0))
    used = refitting._num_threads(configuration, np.zeros((num_rows, 3), dtype=np.float32))
    assert used == (min(8, num_cores) if uses_all else 1)


@pytest.mark.parametrize(
    "params", [TREES, pytest.param(NETWORK, marks=pytest.mark.slow)], ids=["trees", "network"]
)
def test_the_model_that_predicts_has_learnt_from_the_test_rows_and_its_score_is_older(
    params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refitting, "expected_fit_s", lambda *_: -60.0)  # on any machine
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = ended_run(store, **params)
        run = wb.AutoML.attach(run_id, store=store)
        document = run.to_json()
        assert list(document["refit"]) == ["0"]
        assert "The scores are from before that" in "\n".join(document["summary"])

        held_out = run._held_out
        before = run._chosen.outputs(held_out.samples)[:, 0]
        after = run.predict(held_out.samples)
        errors = [np.mean((predicted - held_out.targets) ** 2) for predicted in (before, after)]
        assert run.score()["rmse"] == pytest.approx(errors[0] ** 0.5)
        assert errors[1] < errors[0]
        (candidate, _), *_ = run._model.chosen.used
        assert len(candidate.models) == 1
        again = wb.AutoML.attach(run_id, store=store).predict(held_out.samples)
        np.testing.assert_array_equal(again, after)

        run.export(tmp_path / "best")
        answers = wb.load_bundle(tmp_path / "best").predict(held_out.samples)
        # Of numbers of about 10, as float32 has them: some are near 0.
        assert answers.values == pytest.approx(after, rel=1e-5, abs=1e-5)


def test_rows_that_the_user_keeps_for_the_test_are_never_learnt_from() -> None:
    problem = read_problem(TABLE, "y")
    _, held_out = prepare(problem, 0, [0, 1, 2, 3, 4])
    assert held_out.all_rows is not None
    assert len(held_out.all_rows.targets) == len(TABLE)
    parts = np.zeros(len(TABLE), dtype=np.int8)
    parts[:20] = 2
    _, kept = prepare(replace(problem, parts=parts), 0, [0, 1, 2, 3, 4])
    assert kept.own_parts == ("test",)
    assert kept.all_rows is not None
    assert len(kept.all_rows.targets) == len(TABLE) - 20

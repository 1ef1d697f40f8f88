"""A model is chosen within the time that is left, and what was stored is not chosen again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.ended_automl import create_automl
from tests.builders.ended_automl import trained as trained_here
from tests.builders.recorded_runs import append, begin
from workbench.foundation.events import RunStateChanged
from workbench.runs.automl import conclusion, refitting
from workbench.sweeps.conclusion import result_of

RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RANDOM.normal(size=80), "z": RANDOM.normal(size=80)})
TABLE["y"] = np.where(TABLE["x"] + 0.5 * RANDOM.normal(size=80) > 0, "yes", "no")
NUM_CANDIDATES = 3


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a store with a run of three candidates that has not ended.

    Their folds were trained in this process.
    """
    folder = tmp_path_factory.mktemp("store")
    store = wb.Store.open(str(folder / "store.sqlite"))
    run = create_automl(TABLE, "y", time="10s", metric="macro_f1", store=store)
    configurations = [
        {
            "family": "boosted_trees",
            "boosted_trees_num_trees": 40,
            "boosted_trees_shrinkage": 0.1,
            "boosted_trees_max_leaves": 3 + number,
            "boosted_trees_min_samples_leaf": 5,
            "boosted_trees_l2": 1.0,
        }
        for number in range(NUM_CANDIDATES)
    ]
    run_id = run.run.run_id
    append(store, run_id, [*begin(), *trained_here(run, *configurations)])
    store.close()
    return folder, run_id


@pytest.fixture
def trained(kept: tuple[Path, str], tmp_path: Path) -> Iterator[tuple[wb.Store, str]]:
    """A copy of that run. Tests append events, in any order."""
    folder, run_id = kept
    shutil.copytree(folder, tmp_path / "store")
    with wb.Store.open(str(tmp_path / "store" / "store.sqlite")) as store:
        yield store, run_id


def test_as_many_candidates_are_compared_as_there_is_time_for(
    trained: tuple[wb.Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conclusion, "concluding_s", lambda _: 600.0)  # however busy the machine is
    store, run_id = trained
    ending = RunStateChanged(state="complete", reason="time")
    (stored,) = result_of(store, run_id, wb.attach(run_id, store=store).experiment, ending)
    assert stored.type == "model_chosen"
    assert stored.result["num_compared"] == NUM_CANDIDATES
    assert stored.result["metric"] == "macro_f1"
    append(store, run_id, [ending])

    hurried = wb.AutoML.attach(run_id, store=store)
    hurried.longest_s = -1.0
    document = hurried.to_json()
    assert document["num_compared"] == 1, "one always is"
    assert next(iter(document["test"])) == "macro_f1"
    # Columns are shuffled for at least a second, in which a fast machine shuffles both.
    assert 1 <= len(document["analysis"]["importance"]["columns"]) <= 2
    assert len(document["leaderboard"]["rows"]) == 2, "the candidate and the guess"


def test_what_was_stored_is_not_chosen_again_and_a_prediction_is_that_of_the_stored_model(
    trained: tuple[wb.Store, str],
) -> None:
    store, run_id = trained
    append(store, run_id, [RunStateChanged(state="running")])
    run = wb.AutoML.attach(run_id, store=store)
    ending = RunStateChanged(state="complete", reason="time")
    (stored,) = result_of(store, run_id, run.run.experiment, ending)
    assert stored.type == "model_chosen"
    hurried = stored.model_copy(update={"result": {**stored.result, "num_compared": 1}})
    append(store, run_id, [hurried, ending])

    again = wb.AutoML.attach(run_id, store=store)
    assert again.to_json() == hurried.result
    assert again.summary() == stored.result["summary"]
    assert again._ended is None, "no model was loaded to show what is known"
    assert set(again.predict(TABLE)) <= {"yes", "no"}
    assert len(again._chosen.candidates) == 1, "as many as were compared when it was stored"


@pytest.mark.slow
def test_a_run_that_is_killed_while_models_learn_from_all_rows_gives_the_same_result(
    trained: tuple[wb.Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run_id = trained
    append(store, run_id, [RunStateChanged(state="running")])
    experiment = wb.attach(run_id, store=store).experiment
    ending = RunStateChanged(state="complete", reason="time")

    monkeypatch.setattr(conclusion, "concluding_s", lambda _: 600.0)  # however busy the machine is

    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(refitting, "_fit", killed)
        with pytest.raises(SystemExit):
            result_of(store, run_id, experiment, ending)
    assert wb.attach(run_id, store=store).history.result is None
    results = []
    for _ in range(2):
        (stored,) = result_of(store, run_id, experiment, ending)
        assert stored.type == "model_chosen"
        results.append({name: stored.result[name] for name in ("test", "intervals", "used")})
    assert results[0] == results[1]

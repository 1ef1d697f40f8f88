"""Models learn the logarithm of a target if that is better, and a bundle undoes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.recorded_runs import record_run
from tests.runs.automl.test_exported_ensemble import chosen_from
from workbench.experiment.automl import shown_metric
from workbench.runs.automl.candidates import experiment_for
from workbench.runs.automl.exported_ensemble import write_ensemble
from workbench.runs.automl.preparation import prepare
from workbench.runs.automl.stored_model import without_unused
from workbench.runs.automl.task_detection import read_problem

SEEDS = [0, 1, 2, 3, 4]


def prices(spread: float, lowest: float = 0.0) -> pd.DataFrame:
    random = np.random.default_rng(0)
    size, age = random.normal(size=500), random.normal(size=500)
    price = np.exp(5.0 + spread * (size + 0.5 * age) + 0.3 * random.normal(size=500)) - lowest
    return pd.DataFrame({"size": size, "age": age, "price": price})


def is_log(table: pd.DataFrame, metric: str | None) -> bool:
    learning, held_out = prepare(read_problem(table, "price"), 0, SEEDS, metric=metric)
    assert all(reader.is_log == learning.is_log for reader in held_out.interpreter.readers)
    return learning.is_log


def test_logarithms_are_learned_if_they_are_better():
    assert is_log(prices(1.2), "mape")
    assert is_log(prices(1.2), "mae")
    assert not is_log(prices(0.1), "mae")  # nearly the same as its logarithm
    assert not is_log(prices(1.2, lowest=500.0), "mae")  # some are below 0


def test_targets_of_folds_are_the_same_and_trials_say_that_errors_are_of_logarithms():
    problem = read_problem(prices(1.2), "price")
    learning, held_out = prepare(problem, 0, SEEDS, metric="mape")
    numbers = np.concatenate(
        [
            reader.in_units(fold.validation_targets.astype(float), fold.validation_inputs)
            for fold, reader in zip(learning.folds, held_out.interpreter.readers, strict=True)
        ]
    )
    known = np.concatenate([numbers, held_out.targets])
    np.testing.assert_allclose(np.sort(known), np.sort(problem.targets), rtol=1e-5)
    experiment = experiment_for(
        "table", learning, held_out="0" * 64, time_s=60.0, seed=0, name="n", task="regression"
    )
    assert shown_metric(experiment, "val_mean_absolute_error") == "val_mae (of logarithms)"


@pytest.mark.slow
def test_a_bundle_predicts_numbers_in_their_unit(tmp_path: Path, monkeypatch) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    monkeypatch.setattr("workbench.runs.automl.preparation.logarithms_help", lambda *_: True)
    chosen, learning, held_out = chosen_from(prices(1.2), "price", "forest", "mlp")
    assert held_out.interpreter.readers[0].is_log
    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    rows = prices(1.2).drop(columns="price")
    answers = wb.load_bundle(tmp_path / "best").predict(rows)
    np.testing.assert_allclose(answers.values, chosen.outputs(rows)[:, 0], rtol=1e-5)
    assert np.median(answers.values) > 50

"""A trend over time is continued, if that is better on later rows, and the bundle does the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.recorded_runs import record_run
from tests.runs.automl.test_exported_ensemble import chosen_from
from workbench.runs.automl.exported_ensemble import write_ensemble
from workbench.runs.automl.preparation import prepare
from workbench.runs.automl.stored_model import without_unused
from workbench.runs.automl.task_detection import read_problem


def sales(growth: float, num_days: int = 600) -> pd.DataFrame:
    random = np.random.default_rng(0)
    days = pd.date_range("2022-01-01", periods=num_days, freq="D")
    weekend = days.day_of_week >= 5
    heat = random.normal(size=num_days)
    sold = (
        50 + growth * np.arange(num_days) + 10 * weekend + 3 * heat + random.normal(size=num_days)
    )
    return pd.DataFrame({"day": days, "heat": heat, "sold": sold})


def error_on_test(table: pd.DataFrame) -> float:
    chosen, _, held_out = chosen_from(table, "sold", "forest")
    predicted = chosen.outputs(held_out.samples)[:, 0]
    return float(np.abs(predicted - held_out.targets).mean())


def test_a_trend_is_continued_on_later_rows():
    _, held_out = prepare(read_problem(sales(0.3), "sold"), 0, [0, 1, 2, 3, 4])
    assert any("trend over `day`" in note for note in held_out.notes)
    # Over the time of the test, the target grows by 36. The noise is 0.8.
    assert error_on_test(sales(0.3)) < 5


def test_without_a_trend_nothing_is_continued():
    _, held_out = prepare(read_problem(sales(0.0), "sold"), 0, [0, 1, 2, 3, 4])
    assert not any("trend" in note for note in held_out.notes)
    assert all(reader.trend is None for reader in held_out.interpreter.readers)


def test_targets_of_folds_are_the_same_with_a_trend():
    problem = read_problem(sales(0.3), "sold")
    learning, held_out = prepare(problem, 0, [0, 1, 2, 3, 4])
    for fold, reader in zip(learning.folds, held_out.interpreter.readers, strict=True):
        numbers = reader.in_units(fold.train_targets.astype(float), fold.train_inputs)
        np.testing.assert_allclose(numbers, problem.targets[: len(numbers)], atol=1e-3)
        assert fold.train_targets.std() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.slow
def test_a_bundle_continues_the_trend(tmp_path: Path) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    chosen, learning, held_out = chosen_from(sales(0.3), "sold", "boosted_trees", "mlp")
    assert held_out.interpreter.readers[0].trend is not None
    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    rows = sales(0.3, 900).drop(columns="sold")
    answers = wb.load_bundle(tmp_path / "best").predict(rows)
    np.testing.assert_allclose(answers.values, chosen.outputs(rows)[:, 0], rtol=1e-5)

"""What the presets decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.ended_automl import create_automl
from workbench.foundation.errors import ArgumentError
from workbench.runs.automl.model_selection import preset_of
from workbench.runs.automl.preparation import num_folds_for
from workbench.runs.automl.presets import PRESETS

TABLE = pd.DataFrame({"x": np.arange(60.0) % 7, "y": np.arange(60.0)})


@pytest.mark.parametrize(
    ("num_rows", "folds"),
    [(900, (3, 5, 5)), (4_000, (1, 3, 5)), (15_000, (1, 3, 3)), (60_000, (1, 1, 1))],
)
def test_a_better_preset_divides_samples_into_more_folds(
    num_rows: int, folds: tuple[int, ...]
) -> None:
    presets = ("fast", "good", "best")
    assert tuple(num_folds_for(num_rows, 20 * num_rows, each) for each in presets) == folds


def test_many_large_samples_are_not_divided() -> None:
    assert num_folds_for(15_000, 784 * 15_000) == 1


def test_a_run_keeps_its_preset(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        fast = create_automl(TABLE, "y", time="10s", preset="fast", store=store)
        assert preset_of(fast.run.experiment) == PRESETS["fast"]
        assert len(fast._learning.folds) == 3
        usual = create_automl(TABLE, "y", time="10s", families="forest", store=store)
        assert preset_of(usual.run.experiment) == PRESETS["good"]
        with pytest.raises(ArgumentError, match="preset: 'slow' is not a preset"):
            create_automl(TABLE, "y", preset="slow", store=store)  # pyright: ignore[reportArgumentType]

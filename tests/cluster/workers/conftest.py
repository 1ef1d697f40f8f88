"""What the tests of workers share: a gang's request, and trials of functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.cluster.remote.code_origin import Origin
from workbench.experiment import Experiment
from workbench.training.worker_task import TrialTask


@pytest.fixture
def origin() -> Origin:
    """The folder of these tests, in which `trial_functions` lies."""
    folder = str(Path(__file__).parent)
    return Origin(folder, (folder,))


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., TrialTask]:
    """Make the task of a trial that runs one of `trial_functions`."""

    def make(function: str, trial: int = 0, **params: Any) -> TrialTask:
        experiment = Experiment(
            train=f"trial_functions:{function}",
            objectives=[{"metric": "loss", "goal": "minimize"}],
            search=params or {"x": 0.5},
        )
        return TrialTask(
            run_id="run",
            trial=trial,
            attempt=0,
            experiment_json=experiment.model_dump_json(),
            params=params or {"x": 0.5},
            folder=str(tmp_path / "run" / str(trial)),
        )

    return make

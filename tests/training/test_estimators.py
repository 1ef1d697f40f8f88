"""Classes with fit and predict as models: fitted to named data, in stages where they can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workbench.experiment import Experiment
from workbench.foundation.events import CheckpointSaved, Event, TrialEnded, TrialReported
from workbench.sweeps.preflight import find_problems
from workbench.training.planning.settings import fitted_of
from workbench.training.trained_model import read_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask


class NearestMean:
    """An estimator that knows nothing of scikit-learn."""

    def __init__(self, power: float = 2.0) -> None:
        self.power = power

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> NearestMean:
        self.means = np.stack(
            [inputs[targets == label].mean(axis=0) for label in np.unique(targets)]
        )
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        distances = np.abs(inputs[:, None] - self.means) ** self.power
        return distances.sum(axis=2).argmin(axis=1)


OWN = f"{__name__}:NearestMean"


def experiment(model: Any, **changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "data": "breast_cancer",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
        "training": {"epochs": 4},
    }
    return Experiment(model=model, **fields | changes)


def run(
    trained: Experiment, folder: Path, *, stop_after: int | None = None, **params: Any
) -> tuple[TrialEnded, list[TrialReported], list[CheckpointSaved]]:
    reports: list[TrialReported] = []
    saved: list[CheckpointSaved] = []

    def take(event: Event) -> bool:
        for kind, kept in ((TrialReported, reports), (CheckpointSaved, saved)):
            if isinstance(event, kind):
                kept.append(event)
        return len(reports) == stop_after

    task = TrialTask(
        "r", 0, 0, trained.model_dump_json(), params=params, folder=str(folder), seed=7
    )
    return run_trial(task, take), reports, saved


@pytest.mark.parametrize(
    ("model", "params", "num_reports"),
    [
        ("sklearn.ensemble:RandomForestClassifier", {"n_estimators": 12}, 4),
        ("sklearn.ensemble:HistGradientBoostingClassifier", {"lr": 0.3, "max_iter": 8}, 4),
        ("sklearn.linear_model:SGDClassifier", {"alpha": 0.01}, 4),
        ("sklearn.neighbors:KNeighborsClassifier", {"n_neighbors": 3}, 1),
        (OWN, {"power": 1.0}, 1),
    ],
)
@pytest.mark.parametrize("value", ["best", "last"])
def test_a_class_with_fit_and_predict_is_trained_kept_and_exported(
    model: str, params: dict[str, Any], num_reports: int, value: str, tmp_path: Path
) -> None:
    objectives = [{"metric": "val_accuracy", "goal": "maximize", "value": value}]
    trained = experiment(model, objectives=objectives)
    ended, reports, saved = run(trained, tmp_path, **params)
    assert ended.state == "complete", ended.traceback
    assert len(reports) == num_reports
    assert ended.values["val_accuracy"] > 0.8
    write_weights(Path(saved[-1].path), tmp_path / "weights.safetensors")
    exported, data = read_model(trained, params, tmp_path / "weights.safetensors")
    inputs, targets = data.validation.batch(np.arange(len(data.validation)))
    predicted = exported(torch.from_numpy(np.asarray(inputs))).argmax(dim=1).numpy()
    assert (predicted == targets).mean() == pytest.approx(ended.values["val_accuracy"])


def test_a_regressor_predicts_numbers_and_its_errors_have_their_unit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = tmp_path / "table.csv"
    columns = rng.normal(size=(200, 2))
    np.savetxt(
        table,
        np.c_[columns, 1000 * (columns @ [2.0, -1.0]) + rng.choice([-100, 100], 200)],
        delimiter=",",
        header="a,b,y",
        comments="",
        fmt="%.5f",
    )
    ended, _, _ = run(
        experiment(
            "sklearn.linear_model:Ridge",
            data={"name": "table", "path": str(table), "target": "y", "task": "regression"},
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
        ),
        tmp_path,
        alpha=0.001,
    )
    assert ended.state == "complete", ended.traceback
    assert ended.values["val_loss"] < 0.01, "that of the standardised target"
    assert 80 < ended.values["val_mean_absolute_error"] < 120, "in the unit of the target"


def test_a_forest_is_stopped_between_stages(tmp_path: Path) -> None:
    ended, reports, _ = run(
        experiment("sklearn.ensemble:RandomForestClassifier"), tmp_path, stop_after=2
    )
    assert (ended.state, len(reports)) == ("stopped", 2)


@pytest.mark.parametrize(
    ("model", "params", "part"),
    [
        ("sklearn.ensemble:RandomForestClassifier", {"num_trees": 3}, "search.num_trees: "),
        ("sklearn.linear_model:Ridge", {}, "a classifier"),
        ("sklearn.datasets:load_iris", {}, "not a class with fit and predict"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_the_reason(
    model: str, params: dict[str, Any], part: str, tmp_path: Path
) -> None:
    ended, _, _ = run(experiment(model), tmp_path, **params)
    assert ended.state == "failed"
    assert part in (ended.message or "")


def test_a_driver_recognises_classes_of_libraries_without_loading_code() -> None:
    assert fitted_of(experiment("sklearn.nowhere:Forest"), {}) is not None
    assert fitted_of(experiment(OWN), {}) is None
    assert fitted_of(experiment(OWN), {}, loads_code=True) is not None
    wrong = experiment(
        "sklearn.ensemble:RandomForestClassifier",
        objectives=[{"metric": "train_loss", "goal": "minimize"}],
    )
    assert "nothing reports 'train_loss'" in str(next(find_problems(wrong, on_this_machine=False)))

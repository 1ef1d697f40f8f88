"""A fit that another process continues ends with the model of a fit that was not interrupted."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

from workbench.experiment import Component
from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.estimators import EstimatorConfiguration
from workbench.models.staged_fitting import Growth

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(200, 5)).astype(np.float32)
SCORE = INPUTS[:, 0] + INPUTS[:, 1] * INPUTS[:, 2]
TASKS: dict[str, tuple[np.ndarray, int | None]] = {
    "numbers": (SCORE, None),
    "two classes": ((SCORE > 0).astype(np.int64), 2),
    "classes": (np.digitize(SCORE, [-0.5, 0.5]), 4),
}
TREES = ("boosted_trees", "forest", "extra_trees", "lightgbm", "xgboost", "catboost")


def stored(state: Any) -> Any:
    """Return a state as another process reads it from a checkpoint."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)


def check_continued(configuration: FittedConfiguration, task: str, num_done: int) -> None:
    targets, num_classes = TASKS[task]

    def grow(growth: Growth) -> Any:
        return configuration.grow(
            INPUTS, targets, num_classes=num_classes, num_rounds=5, seed=3, growth=growth
        )

    whole = list(grow(Growth()))
    killed = Growth()
    begun = grow(killed)
    for _ in range(num_done):
        next(begun)
    state = stored(killed.taken())
    rest = list(grow(Growth(num_done, state)))
    assert len(rest) == len(whole) - num_done
    last, expected = (model(torch.from_numpy(INPUTS)) for model in (rest[-1], whole[-1]))
    if configuration.name == "catboost":  # another process draws other random numbers
        assert np.corrcoef(last.ravel(), expected.ravel())[0, 1] > 0.9
    else:
        torch.testing.assert_close(last, expected, rtol=1e-6, atol=1e-6)
    if isinstance(getattr(whole[-1], "roots", None), torch.Tensor):
        sizes = [len(model.state_dict()["roots"]) for model in (rest[-1], whole[-1])]
        assert sizes[0] == sizes[1]


@pytest.mark.parametrize("num_done", [1, 3])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("family", TREES)
def test_trees_are_grown_to_the_same_number(family: str, task: str, num_done: int) -> None:
    if family in ("lightgbm", "xgboost", "catboost"):
        pytest.importorskip(family)
    configuration = configure(family, {"num_trees": 20})
    assert isinstance(configuration, FittedConfiguration)
    check_continued(configuration, task, num_done)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("embedding", ["piecewise", "periodic"])
def test_a_network_makes_the_same_steps(task: str, embedding: str) -> None:
    values = {"num_passes": 8.0, "hidden_width": 16, "numeric_embedding": embedding}
    configuration = configure("tabular_mlp", values)
    assert isinstance(configuration, FittedConfiguration)
    check_continued(configuration, task, 2)


@pytest.mark.parametrize(
    ("estimator", "values"),
    [
        ("sklearn.ensemble:GradientBoostingRegressor", {"n_estimators": 12}),
        ("sklearn.linear_model:SGDRegressor", {"early_stopping": False}),
    ],
)
def test_classes_with_fit_and_predict_continue(estimator: str, values: dict[str, Any]) -> None:
    configuration = EstimatorConfiguration(
        model=Component(name=estimator), values=values, training_names=frozenset()
    )
    check_continued(configuration, "numbers", 2)

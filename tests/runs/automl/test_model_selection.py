"""An ensemble keeps members that cannot be fitted to all rows in time if they add enough."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workbench.experiment import Experiment
from workbench.models.ensemble_selection import select
from workbench.runs.automl.model_selection import Candidate, _weights_of, expected_fit_s

TARGETS = np.random.default_rng(0).normal(size=(400, 1))


def squared_error(predicted: np.ndarray) -> float:
    return float(((predicted - TARGETS) ** 2).mean())


@pytest.fixture(scope="module")
def predictions() -> list[np.ndarray]:
    """Five models whose errors are independent, each a bit worse than the one before."""
    random = np.random.default_rng(1)
    return [TARGETS + (0.5 + 0.02 * n) * random.normal(size=TARGETS.shape) for n in range(5)]


choose_from = functools.partial(select, loss=squared_error, min_gain=0.0)
weights_of = functools.partial(_weights_of, choose_from=choose_from, loss=squared_error)


def test_with_enough_time_the_ensemble_is_the_best_one(predictions: list[np.ndarray]) -> None:
    weights = weights_of(predictions, costs_s=[1.0] * 5, limit_s=5.0)
    np.testing.assert_array_equal(weights, choose_from(predictions))
    assert np.count_nonzero(weights) == 5


@pytest.mark.parametrize("limit_s", [0.0, 1.0, 2.5])
def test_members_without_time_stay_if_the_others_are_clearly_worse(
    predictions: list[np.ndarray], limit_s: float
) -> None:
    weights = weights_of(predictions, costs_s=[1.0, 2.0, 1.0, 1.0, 1.0], limit_s=limit_s)
    np.testing.assert_array_equal(weights, choose_from(predictions))


def test_members_without_time_are_left_out_if_that_loses_little(
    predictions: list[np.ndarray],
) -> None:
    like_the_first = predictions[0] + 0.05 * np.random.default_rng(2).normal(size=TARGETS.shape)
    both = [*predictions, like_the_first]
    assert choose_from(both)[5] > 0.0, "it adds a little"
    weights = weights_of(both, costs_s=[1.0] * 5 + [9.0], limit_s=5.5)
    assert weights[5] == 0.0
    np.testing.assert_array_equal(weights[:5], choose_from(predictions))


def test_the_best_model_stays_if_there_is_time_for_all_but_it() -> None:
    random = np.random.default_rng(3)
    best = TARGETS + 0.3 * random.normal(size=TARGETS.shape)
    others = [TARGETS + 0.9 * random.normal(size=TARGETS.shape) for _ in range(3)]
    weights = weights_of([best, *others], costs_s=[60.0, 1.0, 1.0, 1.0], limit_s=10.0)
    assert weights.argmax() == 0
    assert weights[0] > 0.5


def test_no_candidate_has_no_weights() -> None:
    assert weights_of([], costs_s=[], limit_s=1.0).size == 0


@pytest.mark.parametrize(
    ("best_step", "part"), [(10, 1.0), (9, 1.1 / 1.4), (8, 1.1 / 1.4**2), (7, 1.1 / 1.4**3)]
)
def test_rounds_after_the_best_one_are_not_expected_again(best_step: int, part: float) -> None:
    experiment = Experiment.model_validate(
        {
            "data": "digits",
            "model": "lightgbm",
            "search": {"shrinkage": {"low": 0.01, "high": 0.3}},
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "training": {"epochs": 10},
        }
    )
    trials = {
        number: SimpleNamespace(
            configuration=0,
            planned_unix_s=100.0,
            last_event_unix_s=100.0 + took_s,
            first_report=None,
            last_step=10,
            saved_step=best_step,
        )
        for number, took_s in enumerate([30.0, 4.0, 2.0])
    }
    run: Any = SimpleNamespace(experiment=experiment, history=SimpleNamespace(trials=trials))
    candidate = Candidate(0, "lightgbm", {"shrinkage": 0.1}, {}, TARGETS, 0.0)
    fold = SimpleNamespace(train_targets=np.zeros(100))
    learning: Any = SimpleNamespace(folds=[fold])
    assert expected_fit_s(run, candidate, learning, 250) == pytest.approx(4.0 * part * 2.5)


@pytest.mark.parametrize(
    ("first_report", "fit_s"),
    [
        (None, 30.0),
        ((130.0 - 3.0, 1, 1.0), 3.0 / (1.0 - 1.4**-9)),  # 27 s passed before the first round ended
        ((101.0, 1, 1.0), 30.0),
        ((130.0, 10, 10.0), 30.0),
        ((129.0, 9, 9.0), 30.0),
    ],
)
def test_loading_libraries_before_the_first_round_is_not_expected_again(
    first_report: tuple[float, int, float] | None, fit_s: float
) -> None:
    experiment = Experiment.model_validate(
        {
            "data": "digits",
            "model": "lightgbm",
            "search": {"shrinkage": {"low": 0.01, "high": 0.3}},
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "training": {"epochs": 10},
        }
    )
    trial = SimpleNamespace(
        configuration=0,
        planned_unix_s=100.0,
        last_event_unix_s=130.0,
        first_report=first_report,
        last_step=10,
        saved_step=10,
    )
    run: Any = SimpleNamespace(experiment=experiment, history=SimpleNamespace(trials={0: trial}))
    candidate = Candidate(0, "lightgbm", {"shrinkage": 0.1}, {}, TARGETS, 0.0)
    learning: Any = SimpleNamespace(folds=[SimpleNamespace(train_targets=np.zeros(100))])
    assert expected_fit_s(run, candidate, learning, 200) == pytest.approx(2.0 * fit_s)

"""An ensemble has no more members than there is time to fit to all rows."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from workbench.models.ensemble_selection import select
from workbench.runs.automl.model_selection import _weights_of

TARGETS = np.random.default_rng(0).normal(size=(400, 1))


def squared_error(predicted: np.ndarray) -> float:
    return float(((predicted - TARGETS) ** 2).mean())


@pytest.fixture(scope="module")
def predictions() -> list[np.ndarray]:
    """Five models whose errors are independent, each a bit worse than the one before."""
    random = np.random.default_rng(1)
    return [TARGETS + (0.5 + 0.02 * n) * random.normal(size=TARGETS.shape) for n in range(5)]


choose_from = functools.partial(select, loss=squared_error, min_gain=0.0)


def test_with_enough_time_the_ensemble_is_the_best_one(predictions: list[np.ndarray]) -> None:
    weights = _weights_of(predictions, choose_from, [1.0] * 5, limit_s=5.0)
    np.testing.assert_array_equal(weights, choose_from(predictions))
    assert np.count_nonzero(weights) == 5


@pytest.mark.parametrize("limit_s", [0.0, 1.0, 2.5, 4.0])
def test_members_without_time_are_left_out_and_the_others_weighted_again(
    predictions: list[np.ndarray], limit_s: float
) -> None:
    costs_s = [1.0, 2.0, 1.0, 0.0, 1.0]
    weights = _weights_of(predictions, choose_from, costs_s, limit_s=limit_s)
    assert weights.sum() == pytest.approx(1.0)
    kept = np.flatnonzero(weights)
    assert sum(costs_s[place] for place in kept) <= limit_s
    mean = np.tensordot(weights, np.array(predictions), axes=1)
    assert squared_error(mean) <= min(squared_error(predictions[place]) for place in kept)


def test_the_heaviest_member_stays_if_there_is_time_for_none(
    predictions: list[np.ndarray],
) -> None:
    weights = _weights_of(predictions, choose_from, [9.0] * 5, limit_s=1.0)
    assert np.flatnonzero(weights).tolist() == [int(choose_from(predictions).argmax())]


def test_a_member_that_would_take_all_of_the_time_gives_way_to_several_others(
    predictions: list[np.ndarray],
) -> None:
    weights = _weights_of(predictions, choose_from, [9.0, 1.0, 1.0, 1.0, 1.0], limit_s=9.5)
    assert np.flatnonzero(weights).tolist() == [1, 2, 3, 4]


def test_no_candidate_has_no_weights() -> None:
    assert _weights_of([], choose_from, [], limit_s=1.0).size == 0

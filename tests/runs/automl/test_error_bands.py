from __future__ import annotations

import numpy as np
import pytest

from workbench.runs.automl.error_bands import learn_bands


def drawn(seed: int, num_rows: int, growth: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    predicted = random.uniform(1.0, 10.0, num_rows)
    return predicted, predicted + predicted**growth * random.standard_t(5, num_rows)


@pytest.mark.parametrize("growth", [0.0, 1.0])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_ranges_hold_the_wanted_share_of_new_rows(growth, level):
    held = []
    for seed in range(20):
        bands = learn_bands(*drawn(seed, 200, growth))
        predicted, targets = drawn(100 + seed, 2000, growth)
        low, high = bands.around(predicted, level)
        held.append(((low <= targets) & (targets <= high)).mean())
    assert np.mean(held) == pytest.approx(level, abs=0.02)


def test_ranges_follow_the_size_of_the_prediction_where_errors_do():
    predicted = np.array([1.0, 10.0])
    low, high = learn_bands(*drawn(0, 600, 1.0)).around(predicted, 0.9)
    assert (high - low)[1] > 3 * (high - low)[0]
    low, high = learn_bands(*drawn(0, 600, 0.0)).around(predicted, 0.9)
    assert (high - low)[1] == pytest.approx((high - low)[0])


def test_ranges_of_skewed_errors_are_skewed():
    random = np.random.default_rng(0)
    predicted = np.full(300, 5.0)
    low, high = learn_bands(predicted, 5.0 + random.exponential(1.0, 300)).around(
        predicted[:1], 0.9
    )
    assert 5.0 <= low[0] < 5.2
    assert high[0] > 7.0


def test_few_rows_give_the_widest_range_that_was_seen():
    predicted = np.zeros(5)
    low, high = learn_bands(predicted, np.array([-1.0, 0.0, 2.0, 1.0, -0.5])).around(
        predicted[:1], 0.99
    )
    assert (low[0], high[0]) == (-1.0, 2.0)


def test_a_model_without_errors_has_ranges_without_width():
    predicted = np.arange(100.0)
    low, high = learn_bands(predicted, predicted).around(predicted, 0.9)
    np.testing.assert_array_equal(low, high)

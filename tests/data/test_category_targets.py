"""Mean targets of categories: shrunk, and never showing a row its own target."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.data.category_targets import (
    MAX_CLASSES,
    cross_fitted_means,
    target_means,
    target_numbers,
)


def test_targets_become_numbers_whose_means_tell_about_a_category() -> None:
    classes = np.array([0, 1, 1, 0])
    np.testing.assert_array_equal(target_numbers(classes, 2), [[0], [1], [1], [0]])
    np.testing.assert_array_equal(
        target_numbers(classes, 3), [[1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]]
    )
    np.testing.assert_array_equal(target_numbers(np.array([0.5, 2.0]), None), [[0.5], [2.0]])
    assert target_numbers(classes, MAX_CLASSES + 1) is None


def test_an_unknown_category_is_the_mean_of_all() -> None:
    categories = np.array([0] * 90 + [1] * 9 + [2])
    targets = np.array([0.0] * 90 + [1.0] * 10)[:, None]
    *_, unknown = target_means(categories, targets, 3)[:, 0]
    assert unknown == pytest.approx(0.1)


@pytest.mark.parametrize(("deviation", "weight"), [(0.25, 16.0), (0.5, 4.0), (0.01, 100.0)])
def test_means_are_shrunk_as_far_as_categories_differ_by_chance(
    deviation: float, weight: float
) -> None:
    random = np.random.default_rng(0)
    categories = np.repeat(np.arange(2_000), 5)
    effects = random.normal(scale=deviation, size=2_000)
    targets = effects[categories] + random.normal(size=len(categories))
    means = target_means(categories, targets[:, None], 2_000)[:-1, 0]
    of_rows = targets.reshape(2_000, 5).mean(axis=1)
    # With variances 1 and deviation^2, the best weight of the mean of all is their ratio.
    factor = np.polyfit(of_rows, means, 1)[0]
    assert factor == pytest.approx(5 / (5 + weight), rel=0.25)


def test_a_category_whose_rows_agree_is_believed_after_few_rows() -> None:
    categories = np.array([0] * 90 + [1] * 9 + [2])
    targets = np.array([0.0] * 90 + [1.0] * 10)[:, None]
    frequent, rarer, rarest, _ = target_means(categories, targets, 3)[:, 0]
    assert frequent < 0.02
    assert rarer == pytest.approx((9 + 0.1) / 10)
    assert rarest == pytest.approx((1 + 0.1) / 2)


def test_train_rows_do_not_show_their_own_target() -> None:
    random = np.random.default_rng(0)
    categories = np.arange(2_000) % 1_000
    noise = random.normal(size=(2_000, 1))
    leaking = target_means(categories, noise, 1_000)[categories, 0]
    fitted = cross_fitted_means(categories, noise, 1_000)[:, 0]
    assert np.corrcoef(leaking, noise[:, 0])[0, 1] > 0.6
    assert abs(np.corrcoef(fitted, noise[:, 0])[0, 1]) < 0.1


def test_a_real_effect_survives_and_one_row_is_enough() -> None:
    categories = np.arange(600) % 60
    effect = (categories / 60.0)[:, None]
    fitted = cross_fitted_means(categories, effect, 60)
    assert np.corrcoef(fitted[:, 0], effect[:, 0])[0, 1] > 0.99
    assert np.isfinite(cross_fitted_means(np.array([0]), np.array([[3.0]]), 1)).all()

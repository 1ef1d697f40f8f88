from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

from workbench.hardware.performance.least_squares import jacobian, minimise

FIRST, SECOND = np.eye(2)


def test_it_finds_what_scipy_finds() -> None:
    random = np.random.default_rng(0)
    places = np.linspace(0.0, 4.0, 30)
    values = 2.0 * np.exp(-1.3 * places) + 0.5 + 0.01 * random.standard_normal(30)
    means, deviations = np.array([0.0, 0.0, 0.0]), np.array([1.0, 2.0, 3.0])

    def residuals(at: np.ndarray) -> np.ndarray:
        return (np.exp(at[0] - np.exp(at[1]) * places) + at[2] - values) / 0.01

    ours = minimise(residuals, means, deviations, [means, means + 1.0])
    theirs = least_squares(
        lambda at: np.concatenate([residuals(at), (at - means) / deviations]),
        means,
        xtol=1e-12,
        ftol=1e-12,
    )
    np.testing.assert_allclose(ours, theirs.x, rtol=1e-3)


def test_the_least_of_several_minima_wins() -> None:
    # (x^2 - 1)^2 with a slope: the minimum near -1 is lower than that near +1.
    minimum = minimise(
        lambda at: FIRST * 4.0 * (at[0] ** 2 - 1.0) + SECOND * (at[0] + 2.0),
        np.zeros(1),
        np.full(1, 100.0),
        [np.array([1.5]), np.array([-1.5])],
    )
    assert -1.1 < minimum[0] < -0.9


def test_belief_decides_what_data_do_not_say() -> None:
    minimum = minimise(
        lambda at: np.full(1, 1e3) * (at[0] + at[1] - 3.0),
        np.array([1.0, 0.0]),
        np.array([1.0, 1.0]),
        [np.zeros(2)],
    )
    np.testing.assert_allclose(minimum, [2.0, 1.0], atol=1e-3)


def test_derivatives() -> None:
    values, derivatives = jacobian(
        lambda at: FIRST * at[0] ** 2 + SECOND * at[0] * at[1], np.array([3.0, 2.0])
    )
    np.testing.assert_allclose(values, [9.0, 6.0])
    np.testing.assert_allclose(derivatives, [[6.0, 0.0], [2.0, 3.0]], atol=1e-4)

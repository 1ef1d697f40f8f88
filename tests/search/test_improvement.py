"""The improvement that is promised is that of the normal distribution, however unlikely it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from workbench.search.acquisition_search import (
    expected_improvement,
    log_expected_improvement,
    log_possible_improvement,
)


@given(z=st.floats(-300, 50), deviation=st.floats(1e-3, 1e3), best=st.floats(-10, 10))
def test_the_logarithm_of_the_improvement_is_right(z: float, deviation: float, best: float) -> None:
    mean = np.array([best + deviation * z])
    (improvement,) = log_expected_improvement(mean, np.array([deviation]), best)
    exact = (mean[0] - best) / deviation
    if exact > -5:  # integrated: improvement times density
        grid = np.linspace(max(-exact, -12.0), 12.0, 20001)
        density = np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
        total = float(trapezoid((exact + grid) * density, grid))
        assert improvement == pytest.approx(math.log(deviation * total), abs=1e-4)
    elif exact < -20:  # the first terms of the asymptotic series
        tail = (
            -0.5 * (exact**2 + math.log(2 * math.pi))
            - 2 * math.log(-exact)
            + math.log1p(-3 / exact**2)
        )
        assert improvement == pytest.approx(math.log(deviation) + tail, abs=1e-3)


@given(first=st.floats(-1e4, 50), gap=st.floats(1e-6, 10), best=st.floats(-5, 5))
def test_without_costs_what_is_possible_decides_alone(
    first: float, gap: float, best: float
) -> None:
    lower, higher = log_possible_improvement(np.array([first, first + gap]), best)
    assert math.isfinite(lower)
    assert lower <= higher
    if gap > 0.01 and first < best:
        assert lower < higher


@given(z=st.floats(-5, 50), deviation=st.floats(1e-3, 1e3), best=st.floats(-10, 10))
def test_the_improvement_is_that_of_its_logarithm(z: float, deviation: float, best: float) -> None:
    mean, deviations = np.array([best + deviation * z]), np.array([deviation])
    expected = np.exp(log_expected_improvement(mean, deviations, best))
    np.testing.assert_allclose(
        expected_improvement(mean, deviations, np.array([best])), expected, rtol=1e-6
    )

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.deploy.card import Statistics
from workbench.deploy.distributions import NOTABLE, bin_of, drift_of, num_bins

QUARTERS = Statistics(edges=(0.0, 1.0, 2.0), shares=(0.25, 0.25, 0.25, 0.25))
ANIMALS = Statistics(categories=("cat", "dog"), shares=(0.6, 0.4, 0.0), missing=0.1)


def test_each_value_has_a_bin() -> None:
    assert [bin_of(QUARTERS, value) for value in (-5.0, 0.0, 1.5, 2.0, float("nan"))] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert [bin_of(ANIMALS, value) for value in ("cat", "dog", "bird", "", None)] == [0, 1, 2, 3, 3]


def test_the_index_is_that_of_the_formula() -> None:
    drift = drift_of("x", QUARTERS, [100, 200, 300, 400, 0])
    assert drift is not None
    live = np.array([0.1, 0.2, 0.3, 0.4])
    assert drift.index == pytest.approx(((live - 0.25) * np.log(live / 0.25)).sum(), rel=0.01)
    assert drift.has_drifted


def test_the_same_distribution_has_no_drift() -> None:
    drift = drift_of("x", ANIMALS, [540, 360, 0, 100])
    assert drift is not None
    assert drift.index < 0.001
    assert drift.missing == 0.1
    assert not drift.has_drifted


def test_missing_and_new_values_are_drift() -> None:
    for counts in ([300, 200, 0, 500], [300, 200, 500, 0]):
        drift = drift_of("x", ANIMALS, counts)
        assert drift is not None
        assert drift.has_drifted


def test_a_few_values_are_no_drift_by_chance() -> None:
    draw = np.random.default_rng(0)
    for size in (5, 20, 100):
        drifts = [
            drift_of("x", QUARTERS, [*draw.multinomial(size, QUARTERS.shares), 0])
            for _ in range(300)
        ]
        assert sum(drift is not None and drift.has_drifted for drift in drifts) <= 6
    assert drift_of("x", QUARTERS, [0] * 5) is None


@given(counts=st.lists(st.integers(0, 10_000), min_size=5, max_size=5))
def test_the_index_is_never_negative(counts: list[int]) -> None:
    drift = drift_of("x", QUARTERS, counts, num_trained=1000)
    assert (drift is None) == (sum(counts) == 0)
    assert drift is None or (drift.index >= 0 and drift.limit >= NOTABLE)
    assert num_bins(QUARTERS) == 4

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers.placement.systems import two_exits
from workbench.deploy.stages import (
    accuracy_at,
    choose_thresholds,
    exits_at,
    mean_time_s,
    shares_at,
    softmax,
    temperature_of,
)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_temperature_of_outputs_that_were_scaled_is_their_scale(scale: float) -> None:
    random = np.random.default_rng(0)
    outputs = random.normal(size=(4000, 5)) * 2
    cumulated = softmax(outputs).cumsum(axis=1)
    targets = (random.random((4000, 1)) > cumulated).sum(axis=1)
    known = temperature_of(outputs, targets)
    assert known == pytest.approx(1.0, abs=0.1)
    assert temperature_of(outputs * scale, targets) == pytest.approx(known * scale, rel=1e-3)


@given(st.floats(0.0, 0.1))
def test_chosen_thresholds_lose_at_most_what_is_tolerated(loss: float) -> None:
    evidence = two_exits()
    chosen = choose_thresholds(evidence, tolerated_loss=loss)
    accuracy = accuracy_at(evidence, exits_at(evidence, chosen))
    assert accuracy >= evidence.is_correct[:, -1].mean() - loss - 1e-9


def test_more_tolerance_lets_more_leave_early() -> None:
    evidence = two_exits()
    shares = [
        shares_at(exits_at(evidence, choose_thresholds(evidence, tolerated_loss=loss)), 2)[0]
        for loss in (0.0, 0.05, 0.2)
    ]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=5))
def test_the_mean_time_is_that_of_the_samples(times_s: list[float]) -> None:
    exits = np.random.default_rng(0).integers(len(times_s), size=500)
    known = np.cumsum(times_s)[exits].mean()
    assert mean_time_s(shares_at(exits, len(times_s)), times_s) == pytest.approx(known)

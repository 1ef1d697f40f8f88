"""What losses over rising rates say.

Curves whose best rate is known, and curves that say nothing.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.probes.rate_range_test import (
    LossCurve,
    RateRange,
    rising_rates,
    suggest_rate,
)

RATES = rising_rates(1e-5, 10.0, 80)


def falling_at(rate: float, *, highest: float = 10.0, width: float = 0.3) -> list[float]:
    """Losses from 2.3 to 0.3 that fall most steeply at a rate; `width` in decades."""
    return [
        0.3 + 2.0 / (1.0 + math.exp((math.log10(value) - math.log10(rate)) / width))
        for value in RATES
        if value <= highest
    ]


@given(lowest=st.floats(1e-8, 1e-3), ratio=st.floats(10.0, 1e8), num_steps=st.integers(2, 200))
def test_rates_rise_by_the_same_factor(lowest: float, ratio: float, num_steps: int) -> None:
    rates = rising_rates(lowest, lowest * ratio, num_steps)
    assert (rates[0], rates[-1], len(rates)) == (lowest, lowest * ratio, num_steps)
    factors = np.array(rates[1:]) / np.array(rates[:-1])
    assert factors == pytest.approx(factors[0], rel=1e-6)


@given(loss=st.floats(0.01, 100.0), num_steps=st.integers(1, 50))
def test_a_loss_that_stays_is_smoothed_to_itself(loss: float, num_steps: int) -> None:
    curve = LossCurve()
    assert all(curve.add(loss) for _ in range(num_steps))
    assert curve.smoothed == pytest.approx([loss] * num_steps)


@pytest.mark.parametrize("last", [math.nan, math.inf, 1e30, 100.0])
def test_a_curve_ends_before_it_diverges(last: float) -> None:
    curve = LossCurve()
    assert [curve.add(loss) for loss in (2.0, 1.5, 1.0, last)] == [True, True, True, False]
    assert len(curve.smoothed) == 3
    assert not LossCurve().add(math.nan)


def test_smoothing_has_no_bias_at_the_start() -> None:
    curve = LossCurve()
    for loss in (2.0, 1.0):
        curve.add(loss)
    assert curve.smoothed == pytest.approx([2.0, (0.8 * 2.0 + 1.0) / 1.8])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@given(rate=st.floats(1e-4, 1e-1))
def test_the_steepest_fall_is_found(optimizer: str, rate: float) -> None:
    suggested = suggest_rate(RATES, falling_at(rate), optimizer=optimizer)
    assert suggested is not None
    assert suggested == pytest.approx(rate, rel=0.25)


@given(rate=st.floats(1e-4, 1.0), highest=st.floats(1e-3, 1.0), seed=st.integers(0, 99))
def test_a_suggestion_stays_below_what_diverges_however_noisy(
    rate: float, highest: float, seed: int
) -> None:
    losses = np.array(falling_at(rate, highest=highest))
    losses += 0.01 * np.random.default_rng(seed).normal(size=len(losses))
    rates = RATES[: len(losses)]
    by_sgd = suggest_rate(rates, list(losses), optimizer="SGD")
    by_adam = suggest_rate(rates, list(losses), optimizer="adam")
    assert by_sgd is None or rates[0] <= by_sgd <= rates[-1] / 2
    assert by_adam is None or by_adam <= rates[int(np.argmin(losses))] / 10 * (1 + 1e-9)
    assert (by_sgd is None) == (by_adam is None)


def test_a_fall_that_ends_in_divergence_is_held_to_the_published_margins() -> None:
    losses = falling_at(0.1, highest=0.1)
    rates = RATES[: len(losses)]
    assert suggest_rate(rates, losses, optimizer="sgd") == pytest.approx(rates[-1] / 2)
    assert suggest_rate(rates, losses, optimizer="adamw") == pytest.approx(rates[-1] / 10)


@given(seed=st.integers(0, 199))
def test_losses_that_never_fell_suggest_nothing(seed: int) -> None:
    curve = LossCurve()
    for loss in 2.3 + 0.1 * np.random.default_rng(seed).normal(size=80):
        curve.add(float(loss))
    flat = suggest_rate(RATES, curve.smoothed, optimizer="sgd")
    assert flat is None
    assert suggest_rate(RATES, [1.0 + 0.01 * step for step in range(80)], optimizer="adamw") is None
    assert suggest_rate(RATES, [1.0] * 80, optimizer="adamw") is None
    assert suggest_rate(RATES[:2], [2.0, 1.0], optimizer="adamw") is None


def test_several_curves_count_as_far_as_all_of_them_go() -> None:
    first, second = falling_at(1e-3), falling_at(1e-3, highest=0.5)
    suggested = RateRange.of(RATES, [first, second], optimizer="sgd")
    assert suggested.highest_stable == suggested.rates[-1] <= 0.5
    assert len(suggested.rates) == len(suggested.losses) == len(second)
    assert suggested.losses == pytest.approx(second)
    assert suggested.suggested == pytest.approx(1e-3, rel=0.25)
    nothing = RateRange.of(RATES, [first, []], optimizer="sgd")
    assert (nothing.rates, nothing.suggested, nothing.highest_stable) == ((), None, None)

"""Forecasts of learning curves: on curves whose end is known, and what must not change them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.search.curves import Curve, Forecast, forecast

NUM_RUNGS = 50


def power_laws(num: int, seed: int, noise: float = 0.005) -> list[Curve]:
    """Draw curves that approach a limit as a power of the rung, with noise."""
    random = np.random.default_rng(seed)
    rungs = np.arange(1, NUM_RUNGS + 1)
    limits, gains = random.uniform(0.6, 0.95, num), random.uniform(0.2, 0.5, num)
    powers = random.uniform(0.3, 1.2, num)
    return [
        Curve(
            np.log2(rungs),
            limit - gain * rungs**-power + noise * random.standard_normal(NUM_RUNGS),
        )
        for limit, gain, power in zip(limits, gains, powers, strict=True)
    ]


def begin_of(curve: Curve, rung: int) -> Curve:
    return Curve(curve.doublings[:rung], curve.values[:rung])


def forecast_of(curve: Curve, rung: int, others: list[Curve]) -> Forecast:
    forecasted = forecast(begin_of(curve, rung), NUM_RUNGS, others)
    assert forecasted is not None
    return forecasted


@pytest.mark.parametrize("rung", [3, 8, 20])
def test_the_interval_holds_the_last_value_as_often_as_it_claims(rung: int) -> None:
    known, unseen = power_laws(10, seed=1), power_laws(400, seed=2)
    below = np.array(
        [forecast_of(c, rung, known).chance_below(float(c.values[-1])) for c in unseen]
    )
    assert np.mean((below > 0.05) & (below < 0.95)) >= 0.85


@pytest.mark.parametrize(("rung", "most"), [(3, 0.6), (8, 0.6), (20, 0.7)])
def test_a_forecast_is_nearer_than_the_last_value(rung: int, most: float) -> None:
    known, unseen = power_laws(10, seed=3), power_laws(200, seed=4)
    off = np.array(
        [abs(forecast_of(curve, rung, known).mean - curve.values[-1]) for curve in unseen]
    )
    naive = np.array([abs(curve.values[rung - 1] - curve.values[-1]) for curve in unseen])
    assert off.mean() < most * naive.mean()


@examples(30)
@given(
    seed=st.integers(0, 10_000),
    rung=st.integers(2, 30),
    shift=st.floats(-5, 5),
    scale=st.floats(1e-3, 1e3),
)
def test_neither_the_unit_nor_the_order_of_curves_matters(
    seed: int, rung: int, shift: float, scale: float
) -> None:
    curve, *known = power_laws(8, seed)
    moved = [
        Curve(curve_of.doublings, shift + scale * curve_of.values) for curve_of in reversed(known)
    ]
    expected = forecast_of(curve, rung, known)
    forecast = forecast_of(Curve(curve.doublings, shift + scale * curve.values), rung, moved)
    assert forecast.mean == pytest.approx(shift + scale * expected.mean, rel=1e-6, abs=1e-6 * scale)
    assert forecast.deviation == pytest.approx(scale * expected.deviation, rel=1e-4)
    assert forecast.freedom == pytest.approx(expected.freedom)


def test_a_forecast_becomes_more_certain_towards_the_end() -> None:
    known = power_laws(10, seed=5)
    early, late = forecast_of(known[0], 2, known[1:]), forecast_of(known[0], 40, known[1:])
    assert late.deviation < early.deviation / 3


def test_a_training_that_diverged_does_not_blur_the_others() -> None:
    curve, *known = power_laws(10, seed=7)
    diverged = Curve(known[0].doublings, -np.geomspace(1.0, 1e6, NUM_RUNGS))
    without, beside = forecast_of(curve, 10, known), forecast_of(curve, 10, [diverged, *known])
    assert beside.deviation < 3 * without.deviation
    assert beside.mean == pytest.approx(without.mean, abs=3 * without.deviation)


def test_nothing_is_forecast_from_curves_that_end_before() -> None:
    curve, *known = power_laws(5, seed=6)
    assert (
        forecast(begin_of(curve, 2), NUM_RUNGS, [begin_of(curve_of, 20) for curve_of in known])
        is None
    )
    assert forecast(begin_of(curve, 10), NUM_RUNGS, []) is None


def test_curves_begin_at_rung_one() -> None:
    assert Curve.of({0: 1.0}) is None
    curve = Curve.of({4: 3.0, 1: 1.0, 0: 9.0})
    assert curve is not None
    assert curve.doublings.tolist() == [0.0, 2.0]
    assert curve.at(1.0) == pytest.approx(2.0)

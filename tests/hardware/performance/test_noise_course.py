"""Noise over a whole training, from the part of it that was seen."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.noise import NoiseCourse, gain, scale_at_batch

PROGRESS = [100.0 * step for step in range(1, 21)]


def test_one_look_is_taken_to_grow_in_proportion_to_progress() -> None:
    course = NoiseCourse.extrapolate([500.0], [1000.0])
    assert course.growth == 1.0
    assert course.end == pytest.approx(1000.0)
    assert course.at(1000.0) == pytest.approx(2000.0)


@given(growth=st.floats(0.0, 2.0), level=st.floats(10, 1e6))
def test_a_long_look_is_believed(growth: float, level: float) -> None:
    course = NoiseCourse.extrapolate(
        PROGRESS, [level * (when / 100) ** growth for when in PROGRESS]
    )
    assert course.growth == pytest.approx(growth, abs=0.05)
    assert course.at(2000.0) == pytest.approx(level * 20**growth, rel=0.05)


@given(growth=st.floats(0.0, 2.0), deviation=st.floats(1e-3, 1.0))
def test_possible_courses_have_the_moments_of_what_is_believed(
    growth: float, deviation: float
) -> None:
    course = NoiseCourse(100.0, 50.0, growth, 1000.0, deviation)
    possible = course.possible()
    assert math.fsum(chance for chance, _ in possible) == pytest.approx(1.0)
    for power, moment in ((1, 0.0), (2, deviation**2), (3, 0.0), (4, 3 * deviation**4)):
        moments = (chance * (other.growth - growth) ** power for chance, other in possible)
        assert math.fsum(moments) == pytest.approx(moment, abs=1e-9)
    assert {other.at(100.0) for _, other in possible} == {50.0}


def test_a_longer_look_knows_the_growth_better() -> None:
    deviations = [
        NoiseCourse.extrapolate(PROGRESS[:num], PROGRESS[:num]).growth_deviation
        for num in (1, 2, 5, 20)
    ]
    assert deviations[0] == 0.5  # the prior
    assert deviations == sorted(deviations, reverse=True)
    # A regression with a scatter of 0.3 and the prior, computed from the definitions.
    away = np.log(PROGRESS) - np.mean(np.log(PROGRESS))
    assert deviations[-1] == pytest.approx((np.sum(away**2) / 0.09 + 4) ** -0.5)


def test_a_short_look_hardly_moves_what_is_believed_of_growth() -> None:
    course = NoiseCourse.extrapolate([1000.0, 1050.0, 1100.0], [1000.0, 1500.0, 500.0])
    assert 0.5 < course.growth < 1.0


def test_one_wild_look_among_many_does_not_set_the_level() -> None:
    scales = [10.0 * when for when in PROGRESS]
    scales[-2] *= 1000
    assert NoiseCourse.extrapolate(PROGRESS, scales).at(2000.0) == pytest.approx(20000.0, rel=0.35)


def test_the_order_of_the_looks_does_not_matter() -> None:
    scales = [7.0 * when for when in PROGRESS]
    there, back = (
        NoiseCourse.extrapolate(PROGRESS, scales),
        NoiseCourse.extrapolate(PROGRESS[::-1], scales[::-1]),
    )
    assert there == back


def test_noise_that_stays_gives_the_steps_of_the_closed_form() -> None:
    course = NoiseCourse(progress=100.0, scale=900.0, growth=0.0, end=5000.0)
    worth = gain(1000, reference_batch=100, noise_scale=900.0)
    assert course.steps(1000, reference_batch=100) == pytest.approx(5000.0 / worth)
    assert course.steps(100, reference_batch=100) == pytest.approx(5000.0)


@given(growth=st.floats(0, 2), batch=st.floats(101, 1e5), times=st.floats(1.1, 10))
def test_a_larger_batch_takes_fewer_steps_and_more_samples(
    growth: float, batch: float, times: float
) -> None:
    course = NoiseCourse(progress=1000.0, scale=1000.0, growth=growth, end=2000.0)
    few, many = (
        course.steps(batch * times, reference_batch=100),
        course.steps(batch, reference_batch=100),
    )
    assert few < many
    assert few * times > many


@given(
    scale=st.floats(1e-3, 1e9),
    seen=st.floats(1, 1e6),
    batch=st.floats(1, 1e6),
    first=st.floats(1, 1e4),
)
def test_the_scale_and_the_temperature_have_the_same_product_at_every_batch(
    scale: float, seen: float, batch: float, first: float
) -> None:
    there = scale_at_batch(scale, seen_batch=seen, batch=batch, reference_batch=first)

    def temperature(samples: float, noise_scale: float) -> float:
        return gain(samples, reference_batch=first, noise_scale=noise_scale) / samples

    assert there * temperature(batch, there) == pytest.approx(scale * temperature(seen, scale))
    back = scale_at_batch(there, seen_batch=batch, batch=seen, reference_batch=first)
    assert back == pytest.approx(scale)
    same = scale_at_batch(scale, seen_batch=seen, batch=seen, reference_batch=first)
    assert same == pytest.approx(scale)


def test_a_batch_far_above_the_noise_scale_has_more_noise_to_average() -> None:
    # Far above the scale, it grows like the square root of the batch. Far below, it stays.
    at = partial(scale_at_batch, seen_batch=10, reference_batch=10)
    assert at(10.0, batch=1e8) == pytest.approx(math.sqrt(10.0 * 1e8), rel=1e-3)
    assert at(1e9, batch=1e4) == pytest.approx(1e9, rel=1e-4)
    course = NoiseCourse(progress=100.0, scale=10.0, growth=0.0, end=5000.0)
    unchanged = 5000.0 / gain(1000, reference_batch=10, noise_scale=10.0)
    assert course.steps(1000, reference_batch=10, seen_batch=10) < 0.3 * unchanged


def test_nothing_seen_is_refused() -> None:
    with pytest.raises(ValueError, match="one measured scale"):
        NoiseCourse.extrapolate([], [])

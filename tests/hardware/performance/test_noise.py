"""Gradient noise from norms of gradients.

Unbiased, smoothed apart, never a number that it cannot be.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.noise import (
    GradientMoments,
    NoiseSmoother,
    critical_batch,
    gain,
)

BATCHES = st.floats(1, 1e6)
SCALES = st.floats(0, 1e9)
# A Gaussian toy: fifty parameters, a noise scale of 229 samples, four parts of eight samples.
DIMENSIONS, TRUE_SCALE, PARTS, PART_BATCH = 50, 229.0, 4, 8


def toy_moments(num_steps: int, seed: int) -> list[GradientMoments]:
    random = np.random.default_rng(seed)
    signal = np.ones(DIMENSIONS) / math.sqrt(DIMENSIONS)
    deviation = math.sqrt(TRUE_SCALE / DIMENSIONS / PART_BATCH)
    parts = signal + deviation * random.standard_normal((num_steps, PARTS, DIMENSIONS))
    of_parts = (parts**2).sum(-1).mean(-1)
    averaged = (parts.mean(1) ** 2).sum(-1)
    return [
        GradientMoments.of_parts(part, whole, num_parts=PARTS, part_batch=PART_BATCH)
        for part, whole in zip(of_parts.tolist(), averaged.tolist(), strict=True)
    ]


@given(
    signal=st.floats(0, 1e3),
    noise=st.floats(0, 1e6),
    small=st.floats(1, 100),
    times=st.floats(1.5, 64),
)
def test_expected_norms_of_two_batches_give_signal_and_noise_back(
    signal: float, noise: float, small: float, times: float
) -> None:
    large = small * times
    moments = GradientMoments.of_two_batches(
        signal + noise / small, signal + noise / large, small_batch=small, large_batch=large
    )
    error = 1e-9 * (signal + noise + 1e-200) * times / (times - 1)
    assert moments.signal_sqr == pytest.approx(signal, abs=error)
    assert moments.noise == pytest.approx(noise, abs=error * small * times)


def test_parts_of_a_step_give_what_adaptdl_computes_from_them() -> None:
    # adaptdl: sqr = (n avg - mean) / (n - 1), var = (mean - avg) / (n - 1) x scale, at the initial
    # batch.
    mean_part, averaged, parts, part_batch, initial_batch = 10.0, 4.0, 4, 8, 16
    moments = GradientMoments.of_parts(mean_part, averaged, num_parts=parts, part_batch=part_batch)
    scale = parts * part_batch / initial_batch
    assert moments.signal_sqr == pytest.approx((parts * averaged - mean_part) / (parts - 1)) == 2.0
    assert moments.noise / initial_batch == pytest.approx(
        (mean_part - averaged) / (parts - 1) * scale
    )
    assert moments.noise_scale() == pytest.approx(32.0)


def test_one_part_or_two_equal_batches_say_nothing() -> None:
    with pytest.raises(ValueError, match="two parts"):
        GradientMoments.of_parts(1.0, 1.0, num_parts=1, part_batch=8)
    with pytest.raises(ValueError, match="small < large"):
        GradientMoments.of_two_batches(1.0, 1.0, small_batch=8, large_batch=8)


@pytest.mark.parametrize("moments", [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, -1.0)])
def test_what_is_not_positive_is_not_estimable_rather_than_infinite(
    moments: tuple[float, float],
) -> None:
    assert GradientMoments(*moments).noise_scale() is None


def test_single_steps_of_the_toy_are_useless_and_their_smoothed_parts_are_not() -> None:
    steps = toy_moments(4000, seed=0)
    negative = sum(step.signal_sqr < 0 for step in steps) / len(steps)
    assert 0.2 < negative < 0.5
    smoother = NoiseSmoother(window=1000)
    for step in steps:
        smoother.add(step)
    assert smoother.noise_scale() == pytest.approx(TRUE_SCALE, rel=0.25)


def test_longer_windows_of_the_toy_scatter_less() -> None:
    def spread(window: int) -> float:
        windows: list[float] = []
        for seed in range(12):
            smoother = NoiseSmoother(window)
            for step in toy_moments(window, seed):
                smoother.add(step)
            windows.append(smoother.noise_scale() or math.inf)
        low, high = np.quantile(windows, [0.25, 0.75])
        return float(high / low)

    assert spread(1600) < spread(100) < 3.0


def test_smoothing_has_no_bias_at_its_start_and_waits_for_a_whole_window() -> None:
    smoother = NoiseSmoother(window=100)
    assert smoother.moments() is None
    for _ in range(99):
        smoother.add(GradientMoments(2.0, 500.0))
    assert smoother.noise_scale() is None
    smoother.add(GradientMoments(2.0, 500.0))
    moments = smoother.moments()
    assert moments is not None
    assert (moments.signal_sqr, moments.noise) == pytest.approx((2.0, 500.0))
    assert smoother.noise_scale() == pytest.approx(250.0)


def test_windows_too_short_to_trust_are_refused() -> None:
    with pytest.raises(ValueError, match="100"):
        NoiseSmoother(window=99)


def test_a_smoother_goes_on_from_a_checkpoint_as_if_it_had_never_stopped() -> None:
    steps = toy_moments(240, seed=3)
    whole, before, after = NoiseSmoother(120), NoiseSmoother(120), NoiseSmoother()
    for step in steps:
        whole.add(step)
    for step in steps[:150]:
        before.add(step)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    for step in steps[150:]:
        after.add(step)
    assert after.state_dict() == whole.state_dict()
    assert after.num_steps == 240


@pytest.mark.parametrize(
    ("batch", "worth"), [(128, 1.0), (256, 0.888889), (512, 0.727273), (1024, 0.533333)]
)
def test_samples_are_worth_what_pollux_publishes(batch: int, worth: float) -> None:
    # Gradient variance 7 and squared norm 1 at batch 128.
    found = gain(batch, reference_batch=128, noise_scale=128 * 7)
    assert found * 128 / batch == pytest.approx(worth, abs=1e-6)


@given(batch=BATCHES, reference=BATCHES, scale=SCALES)
def test_a_step_is_worth_between_one_and_all_of_its_samples(
    batch: float, reference: float, scale: float
) -> None:
    worth = gain(batch, reference_batch=reference, noise_scale=scale)
    low, high = sorted((1.0, batch / reference))
    assert low * (1 - 1e-9) <= worth <= high * (1 + 1e-9)


@given(critical=st.floats(1, 1e6), least_steps=st.floats(1, 1e6))
def test_the_critical_batch_doubles_both_steps_and_samples(
    critical: float, least_steps: float
) -> None:
    least_samples = critical * least_steps
    batch = critical_batch(least_steps=least_steps, least_samples=least_samples)
    assert batch == pytest.approx(critical)
    # McCandlish et al. 2018, equation 2.11: (steps / least - 1) (samples / least - 1) = 1.
    steps, samples = 2 * least_steps, 2 * least_steps * batch
    assert samples == pytest.approx(2 * least_samples)
    assert (steps / least_steps - 1) * (samples / least_samples - 1) == pytest.approx(1.0)

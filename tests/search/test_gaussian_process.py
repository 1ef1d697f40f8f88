"""The Gaussian process gives what the textbook's formulas give."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.search import gaussian_process
from workbench.search.gaussian_process import GaussianProcess, Kernel, fit


def draw(seed: int, num: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Draw features of three groups, the last of two features, and standardised values."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(num)
    return random.random((num, 4)), (values - values.mean()) / values.std()


GROUPS = np.array([0, 1, 2, 2])


def covariance(first: np.ndarray, second: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return Matérn 5/2 as the textbook writes it (Rasmussen and Williams, equation 4.17)."""
    differences = (first[:, None, :] - second[None, :, :]) / lengths[GROUPS]
    r = np.sqrt((differences**2).sum(-1))
    return (1 + math.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-math.sqrt(5) * r)


@examples(30)
@given(seed=st.integers(0, 1000), length=st.floats(0.2, 3.0), noise=st.floats(1e-4, 0.5))
def test_predictions_are_those_of_the_textbook(seed: int, length: float, noise: float) -> None:
    features, values = draw(seed)
    places = np.random.default_rng(seed + 1).random((5, 4))
    lengths = length * np.array([1.0, 2.0, 0.5])
    process = GaussianProcess(Kernel(np.log(lengths), math.log(noise)), GROUPS, features, values)
    mean, deviation = process.predict(places)
    inverse = np.linalg.inv(covariance(features, features, lengths) + noise * np.eye(len(values)))
    cross = covariance(features, places, lengths)
    scale = values @ inverse @ values / len(values)
    np.testing.assert_allclose(mean, cross.T @ inverse @ values, atol=1e-4)
    expected = scale * (1 - np.einsum("ij,ik,kj->j", cross, inverse, cross))
    np.testing.assert_allclose(deviation**2, expected, atol=1e-4 * float(scale))


@examples(30)
@given(seed=st.integers(0, 1000), noise=st.floats(1e-4, 0.5), num_new=st.integers(1, 6))
def test_places_that_are_as_expected_count_as_if_they_had_been_observed(
    seed: int, noise: float, num_new: int
) -> None:
    features, values = draw(seed)
    kernel, random = Kernel(np.zeros(3), math.log(noise)), np.random.default_rng(seed + 1)
    running, places = random.random((num_new, 4)), random.random((5, 4))
    process = GaussianProcess(kernel, GROUPS, features, values)
    every = np.concatenate([features, running])
    observed = np.concatenate([values, process.predict(running)[0]])
    expected = GaussianProcess(kernel, GROUPS, every, observed)
    if_expected = process.as_if_expected(running)
    np.testing.assert_allclose(
        if_expected.predict(places), expected.predict(places), rtol=1e-5, atol=1e-7
    )


@examples(30)
@given(seed=st.integers(0, 1000), share=st.floats(-2.0, 2.0), doublings=st.floats(0.5, 8.0))
def test_values_before_the_end_count_as_the_product_of_the_kernels_says(
    seed: int, share: float, doublings: float
) -> None:
    features, values = draw(seed)
    random = np.random.default_rng(seed + 1)
    ahead, places = 5 * random.random(len(values)), random.random((5, 4))
    kernel = Kernel(np.zeros(3), math.log(1e-2), share, math.log(doublings))
    mean, deviation = GaussianProcess(kernel, GROUPS, features, values, ahead=ahead).predict(places)

    lasting = 1 / (1 + math.exp(-share))
    apart = np.abs(ahead[:, None] - ahead[None, :])
    known = covariance(features, features, np.ones(3)) * (
        lasting + (1 - lasting) * np.exp(-apart / doublings)
    )
    known += np.exp(-0.5 * (apart / 3) ** 2) + 1e-2 * np.eye(len(values))
    cross = covariance(features, places, np.ones(3)) * (
        lasting + (1 - lasting) * np.exp(-ahead[:, None] / doublings)
    )
    inverse = np.linalg.inv(known)
    trend = np.exp(-0.5 * (ahead / 3) ** 2)
    np.testing.assert_allclose(mean, (cross + trend[:, None]).T @ inverse @ values, atol=1e-4)
    scale = values @ inverse @ values / len(values)
    expected = scale * (1 - np.einsum("ij,ik,kj->j", cross, inverse, cross))
    np.testing.assert_allclose(deviation**2, expected, atol=1e-4 * float(scale))


def test_how_much_of_a_value_lasts_is_learned() -> None:
    """Early values that are the later ones without a common gain last; noise does not."""
    random = np.random.default_rng(0)
    features = np.repeat(random.random((30, 1)), 2, axis=0)
    ahead = np.tile([0.0, 4.0], 30)
    ends = np.sin(6 * features[:, 0])
    telling = ends - 0.5 * ahead
    random_early = np.where(ahead == 0, ends, random.standard_normal(60))
    shares = []
    for values in (telling, random_early):
        kernel = fit(features, np.array([0]), (values - values.mean()) / values.std(), ahead)
        shares.append(float(kernel.agreement(np.array(4.0))))
    assert shares[0] > 0.8
    assert shares[1] < 0.6


@examples(30)
@given(seed=st.integers(0, 1000), shift=st.floats(-1.0, 1.0), has_curves=st.booleans())
def test_the_slope_of_the_posterior_is_that_of_small_differences(
    seed: int, shift: float, has_curves: bool
) -> None:
    features, values = draw(seed)
    theta = np.array([-0.5, 0.2, 0.1, -3.0, 0.3, 1.0][: 6 if has_curves else 4]) + shift
    ahead = 5 * np.random.default_rng(seed).random(len(values))
    pairs = gaussian_process._Pairs.of(features, GROUPS, ahead if has_curves else None)
    means, sds = np.zeros_like(theta), np.full_like(theta, 2.0)

    def loss(at: np.ndarray) -> tuple[float, np.ndarray]:
        return gaussian_process._loss(at, pairs, values, means, sds)

    slope = loss(theta)[1]
    for index in range(len(theta)):
        ends = []
        for sign in (-1, 1):
            moved = theta.copy()
            moved[index] += sign * 1e-5
            ends.append(loss(moved)[0])
        assert math.isclose((ends[1] - ends[0]) / 2e-5, slope[index], rel_tol=1e-3, abs_tol=1e-4)


def test_a_parameter_without_effect_gets_a_long_length_scale() -> None:
    features = np.random.default_rng(0).random((40, 3))
    values = np.sin(6 * features[:, 0])
    kernel = fit(features, np.arange(3), (values - values.mean()) / values.std())
    assert kernel.log_lengths[0] < kernel.log_lengths[1:].min() - 1.0
    assert kernel.log_noise < math.log(1e-3)


def test_noise_and_signal_are_separated() -> None:
    random = np.random.default_rng(0)
    features = random.random((60, 1))
    values = np.sin(6 * features[:, 0]) + 0.5 * random.standard_normal(60)
    kernel = fit(features, np.array([0]), (values - values.mean()) / values.std())
    assert math.log(0.05) < kernel.log_noise


def test_places_that_were_observed_twice_can_be_modelled() -> None:
    features = np.full((6, 2), 0.5)
    process = GaussianProcess(
        Kernel(np.zeros(2), math.log(1e-9)), np.arange(2), features, np.linspace(-1, 1, 6)
    )
    assert np.isfinite(process.predict(np.random.default_rng(0).random((3, 2)))).all()


@given(seed=st.integers(0, 1000), num=st.integers(3, 12))
@examples(20)
def test_left_out_errors_are_those_of_processes_without_the_observation(
    seed: int, num: int
) -> None:
    features, values = draw(seed, num)
    kernel = Kernel(np.log([0.3, 0.8, 1.0]), math.log(0.05))
    errors = GaussianProcess(kernel, GROUPS, features, values).left_out_errors()
    for index in range(num):
        others = np.arange(num) != index
        process = GaussianProcess(kernel, GROUPS, features[others], values[others])
        expected = values[index] - process.predict(features[[index]])[0][0]
        np.testing.assert_allclose(errors[index], expected, atol=1e-6)


def predictabilities(
    height: Callable[[np.ndarray, np.ndarray], np.ndarray], num: int
) -> list[float]:
    """Return how far fitted processes predict values that depend on features and noise."""
    scores = []
    for seed in range(20):
        features, noise = draw(seed, num)
        values = height(features, noise)
        values = (values - values.mean()) / values.std()
        process = GaussianProcess(fit(features, GROUPS, values), GROUPS, features, values)
        predictability = process.predictability()
        assert predictability is not None
        scores.append(predictability)
    return scores


def test_noise_is_not_taken_for_predictable_although_length_scales_are_fitted_to_it() -> None:
    for num in (8, 16, 32):
        noise = predictabilities(lambda _features, noise: noise, num)
        smooth = predictabilities(lambda features, noise: features[:, 0] ** 2 - features[:, 1], num)
        assert np.median(noise) < 0.1, num
        assert np.median(smooth) > 0.6, num
        assert max(smooth) <= 1.0


def test_a_few_observations_do_not_show_what_they_predict() -> None:
    features, values = draw(0, 5)
    assert (
        GaussianProcess(Kernel(np.zeros(3), -3.0), GROUPS, features, values).predictability()
        is None
    )

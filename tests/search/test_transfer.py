"""What an earlier run taught helps where it is related, and is forgotten where it is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.builders.studies import Drive, make_experiment
from workbench.foundation.events import PriorTrialAdded
from workbench.search.first_configurations import spread_points
from workbench.search.gaussian_process import fit
from workbench.search.gaussian_process_sampler import Related, Relation, Source, relate

GROUPS = np.arange(2)
SEARCH = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
Height = Callable[[np.ndarray], np.ndarray]


def hill(x: float, y: float) -> Height:
    """Return a smooth function of points that is highest at a place."""
    return lambda points: np.exp(-4.0 * ((points - [x, y]) ** 2).sum(-1))


def related_to(
    height: Height, other: Height, num: int, unit: float = 1.0, zero: float = 0.0
) -> Relation | None:
    """Relate results of one function to an earlier run of another."""
    before, now = spread_points(30, 2), spread_points(num, 2, start=50)
    source = Source(before - 0.5, other(before))
    kernel = fit(source.features, GROUPS, source.standard)
    return relate(kernel, GROUPS, source, now - 0.5, zero + unit * height(now))


@given(
    x=st.floats(0.1, 0.9),
    y=st.floats(0.1, 0.9),
    unit=st.floats(1e-3, 1e3),
    zero=st.floats(-1e3, 1e3),
    num=st.integers(5, 12),
)
@examples(15)
def test_the_same_function_is_recognised_in_any_units(
    x: float, y: float, unit: float, zero: float, num: int
) -> None:
    relation = related_to(hill(x, y), hill(x, y), num, unit, zero)
    assert relation is not None
    assert relation.correlation >= 0.95
    assert relation.evidence > 0


def test_the_opposite_and_noise_are_forgotten() -> None:
    height = hill(0.3, 0.6)
    assert related_to(height, lambda points: -height(points), 8) is None
    noise = np.random.default_rng(0)
    assert related_to(height, lambda points: noise.standard_normal(len(points)), 8) is None


def test_without_results_an_earlier_run_is_expected_to_be_related() -> None:
    relation = related_to(hill(0.5, 0.5), hill(0.5, 0.5), 0)
    assert relation is not None
    assert 0.5 < relation.correlation < 1.0


@given(
    correlations=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4),
    size=st.integers(1, 4),
    num=st.integers(0, 4),
)
@examples(20)
def test_runs_agree_as_their_correlations_say(
    correlations: list[float], size: int, num: int
) -> None:
    kernel = fit(spread_points(6, 2), GROUPS, np.arange(6.0) - 2.5)
    weights = [
        (
            Relation(correlation, 0.0, 1.0),
            Source(spread_points(size, 2), np.arange(float(size))),
            kernel,
        )
        for correlation in correlations
    ]
    between, with_this = Related.of(weights).agreement(num)
    assert (
        between.shape == (len(with_this), len(with_this)) == (len(correlations) * size + num,) * 2
    )
    np.testing.assert_allclose(between, between.T)
    assert np.linalg.eigvalsh(between).min() > -1e-9
    np.testing.assert_allclose(with_this[len(correlations) * size :], 1.0)


def earlier(curve: Callable[[Mapping[str, Any]], float], num: int = 25) -> list[PriorTrialAdded]:
    """Return an earlier run over points that cover the space."""
    points = [dict(zip(SEARCH, map(float, point), strict=True)) for point in spread_points(num, 2)]
    return [
        PriorTrialAdded(
            from_run_id="earlier",
            from_trial=number,
            params=dict(params),
            state="complete",
            values={"loss": curve(params)},
        )
        for number, params in enumerate(points)
    ]


def valley(x: float, y: float) -> Callable[[Mapping[str, Any]], float]:
    return lambda params: (params["x"] - x) ** 2 + (params["y"] - y) ** 2


def losses(history: list[PriorTrialAdded], num: int, seed: int = 0) -> list[float]:
    """Return the best loss so far after each trial of a search for the bottom of a valley."""
    drive = Drive(make_experiment(search=SEARCH, seed=seed))
    for event in history:
        drive.study.apply(event)
    curve = valley(0.3, 0.7)
    values = [curve(drive.train(lambda params, _: curve(params)).params) for _ in range(num)]
    return np.minimum.accumulate(values).tolist()


def test_the_first_trial_tries_what_a_related_run_found() -> None:
    history = earlier(lambda params: 5.0 + 20.0 * valley(0.33, 0.68)(params))
    assert max(losses(history, 4, seed)[-1] for seed in range(3)) < 0.003


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_an_unrelated_run_costs_next_to_nothing(sign: float) -> None:
    wrong = valley(0.3, 0.7) if sign < 0 else valley(0.95, 0.05)
    history = earlier(lambda params: sign * wrong(params))
    assert max(losses(history, 15, seed)[-1] for seed in range(3)) < 0.003


def test_an_earlier_run_of_noise_is_never_related() -> None:
    """Also where few results of this run happen to agree with it."""
    kept = 0
    for seed in range(20):
        random, points = np.random.default_rng(seed), spread_points(30, 2) - 0.5
        source = Source(points, random.standard_normal(30))
        kernel = fit(points, GROUPS, source.standard)
        for num in (2, 4, 8):
            some = random.random((num, 2)) - 0.5
            kept += relate(kernel, GROUPS, source, some, hill(0.3, 0.6)(some)) is not None
    assert kept <= 3


def test_what_an_earlier_run_showed_of_limits_counts() -> None:
    limit = {"metric": "cost", "at_most": 0.4}
    drive = Drive(make_experiment(search=SEARCH, constraints=[limit]))
    for event in earlier(valley(0.9, 0.9)):
        cost = event.params["x"]
        assert isinstance(cost, float)
        drive.study.apply(event.model_copy(update={"values": {**event.values, "cost": cost}}))
    proposed = drive.ask().params["x"]
    assert isinstance(proposed, float)
    assert proposed < 0.6, "the earlier run showed which configurations break the limit"


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_is_enqueued_first_does_not_replace_what_earlier_runs_recommend(
    has_ended: bool,
) -> None:
    """One result, such as that of what was advised, does not decide whether an earlier run is
    related.
    """
    drive, bowl = Drive(make_experiment(search=SEARCH)), valley(0.3, 0.6)
    for prior in earlier(
        lambda params: bowl(params) + 0.02 * math.sin(97 * (params["x"] + 2 * params["y"]))
    ):
        drive.study.apply(prior)
    drive.study.enqueue({"x": 0.9, "y": 0.1})
    if has_ended:
        drive.train(lambda params, _: 3.0)
    else:
        drive.ask()
    second = drive.ask().params
    assert (second["x"], second["y"]) == pytest.approx((0.3, 0.6), abs=0.15)

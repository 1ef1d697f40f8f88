"""Configurations and points of the unit cube belong to each other."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.test_rebuild import spaces
from workbench.experiment.space import Space
from workbench.search.encoding import Encoding
from workbench.search.optuna_space import Parameters

CONDITIONAL = {
    "optimizer": {"choices": ["sgd", "adam"]},
    "momentum": {"low": 0.0, "high": 1.0, "when": {"optimizer": "sgd"}},
    "layers": {"low": 1, "high": 4},
    "skip": {"choices": [True, False], "when": {"layers": [3, 4]}},
    "kind": "net",
    "depth": {"low": 1, "high": 8, "log": True, "when": {"kind": "net"}},
    "never": {"low": 0.0, "high": 1.0, "when": {"optimizer": "adam", "skip": True}},
}


@given(search=spaces("auto"), seed=st.integers(0, 10_000))
def test_a_configuration_comes_back_from_its_point(search: dict[str, Any], seed: int) -> None:
    check_round_trip(search, seed)


@pytest.mark.parametrize("seed", range(20))
def test_conditions_on_ranges_choices_and_fixed_values_hold(seed: int) -> None:
    check_round_trip(CONDITIONAL, seed)


def check_round_trip(search: dict[str, Any], seed: int) -> None:
    parameters = Parameters(Space(search))
    encoding = Encoding(parameters)
    params = parameters.to_optuna(Space(search).sample(random.Random(seed)))
    points, exists = encoding.locate([params])
    assert encoding.params(points[0], exists[0]) == pytest.approx(params)
    snapped, located = encoding.snap(points)
    np.testing.assert_allclose(snapped, points, atol=1e-9)
    assert (located == exists).all()


@given(search=spaces("auto"), seed=st.integers(0, 10_000))
def test_every_point_is_a_configuration_of_the_space(search: dict[str, Any], seed: int) -> None:
    space = Space(search)
    parameters = Parameters(space)
    encoding = Encoding(parameters)
    units = np.random.default_rng(seed).random((20, len(encoding.distributions)))
    points, exists = encoding.snap(units)
    located, places = encoding.locate([*map(encoding.params, points, exists)])
    np.testing.assert_allclose(located, points, atol=1e-9)
    assert (places == exists).all()


def test_choices_are_equally_far_apart_and_absent_parameters_in_between() -> None:
    parameters = Parameters(
        Space(CONDITIONAL | {"optimizer": {"choices": ["sgd", "adam", "lion"]}})
    )
    encoding = Encoding(parameters)
    rows = [
        {"optimizer": "sgd", "momentum": 0.0, "layers": 1, "depth": 1},
        {"optimizer": "sgd", "momentum": 1.0, "layers": 1, "depth": 1},
        {"optimizer": "adam", "layers": 1, "depth": 1},
        {"optimizer": "lion", "layers": 1, "depth": 1},
    ]
    features = encoding.features(*encoding.locate(rows))
    column = list(encoding.distributions).index("optimizer")

    def distance(first: int, second: int, group: int) -> float:
        return float(np.linalg.norm((features[first] - features[second])[encoding.groups == group]))

    assert distance(0, 2, column) == distance(2, 3, column) == pytest.approx(1.0)
    momentum = list(encoding.distributions).index("momentum")
    assert distance(0, 1, momentum) == pytest.approx(1.0)
    assert distance(0, 2, momentum) == distance(1, 2, momentum) == pytest.approx(0.5**0.5)

"""Total shares of parameters in the variance of functions whose shares are known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.builders.studies import make_experiment
from workbench.search.encoding import Encoding
from workbench.search.optuna_space import Parameters
from workbench.search.variance_shares import Basis, Observed, draw_shares

UNIT = {"low": 0.0, "high": 1.0}


def encoding_of(search: dict[str, object]) -> Encoding:
    return Encoding(Parameters(make_experiment(search=search).search))


def ishigami(units: np.ndarray) -> np.ndarray:
    first, second, third = ((2 * units - 1) * math.pi).T
    return np.sin(first) + 7 * np.sin(second) ** 2 + 0.1 * third**4 * np.sin(first)


def additive(units: np.ndarray) -> np.ndarray:
    return units @ np.array([3.0, 2.0, 1.0, 0.0])


def product(units: np.ndarray) -> np.ndarray:
    """The product of two centred terms: each takes part in all of the variance."""
    return (units[:, 0] - 0.5) * (units[:, 1] - 0.5)


@pytest.mark.parametrize(
    ("function", "true"),
    [
        (ishigami, (0.5576, 0.4424, 0.2437)),  # Homma and Saltelli, 1996
        (additive, (9 / 14, 4 / 14, 1 / 14, 0.0)),
        (product, (1.0, 1.0, 0.0)),
    ],
)
def test_shares_are_those_of_the_closed_form(
    function: Callable[[np.ndarray], np.ndarray], true: tuple[float, ...]
) -> None:
    rng = np.random.default_rng(1)
    units = rng.random((200, len(true)))
    values = function(units)
    values = values + 0.1 * values.std() * rng.normal(size=len(values))
    encoding = encoding_of({f"x{index}": UNIT for index in range(len(true))})
    drawn = draw_shares(
        encoding,
        Observed(units, np.ones(units.shape, dtype=bool), values, np.zeros(len(values), dtype=int)),
    )
    assert drawn is not None
    assert np.median(drawn, axis=0) == pytest.approx(true, abs=0.03)


def test_functions_are_orthonormal_over_parameters_of_all_kinds() -> None:
    encoding = encoding_of(
        {
            "a": {"low": 1e-4, "high": 1.0, "log": True},
            "b": {"low": 1, "high": 3},
            "c": {"choices": list("xyz")},
        }
    )
    grid = (np.arange(240) + 0.5) / 240
    points = np.array(
        [(a, b, c) for a in grid for b in (1 / 6, 0.5, 5 / 6) for c in (1 / 6, 0.5, 5 / 6)]
    )
    basis = Basis(encoding)
    values = basis.at(*encoding.snap(points))
    assert values.T @ values / len(points) == pytest.approx(np.eye(values.shape[1]), abs=0.05)
    assert values.mean(0) == pytest.approx(np.zeros(values.shape[1]), abs=0.02)


def test_a_parameter_that_exists_for_one_of_two_choices_has_the_share_of_that_half() -> None:
    encoding = encoding_of(
        {"kind": {"choices": ["a", "b"]}, "rate": {**UNIT, "when": {"kind": "a"}}}
    )
    rng = np.random.default_rng(0)
    units, exists = encoding.snap(rng.random((200, 2)))
    # Half of the space has the value rate, variance 1/12; the other half has 0.5.
    values = np.where(exists[:, 1], units[:, 1], 0.5) + 0.02 * rng.normal(size=200)
    drawn = draw_shares(encoding, Observed(units, exists, values, np.zeros(200, dtype=int)))
    assert drawn is not None
    # The variance is 1/24, all of it by the rate; the choice takes part in half of it.
    assert np.median(drawn, axis=0) == pytest.approx([0.5, 1.0], abs=0.08)


def test_cut_trainings_are_read_by_those_that_went_on() -> None:
    rng = np.random.default_rng(0)
    units = rng.random((300, 3))
    ends = 3 * units[:, 0] + units[:, 1] + 0.1 * rng.normal(size=300)
    at_rung = 0.6 * ends + 20.0 + 0.1 * rng.normal(size=300)
    went_on = at_rung > np.median(at_rung)  # the good ones, as a pruner decides
    observed = Observed(
        units,
        units >= 0,
        np.where(went_on, ends, at_rung),
        np.where(went_on, 0, 1),
        [np.column_stack([at_rung, ends])[went_on]],
    )
    drawn = draw_shares(encoding_of({"a": UNIT, "b": UNIT, "c": UNIT}), observed)
    assert drawn is not None
    assert np.median(drawn, axis=0) == pytest.approx([0.9, 0.1, 0.0], abs=0.03)
    assert np.quantile(drawn[:, 2], 0.95) < 0.01


def test_pure_chance_is_not_taken_for_an_effect() -> None:
    rng = np.random.default_rng(0)
    units = rng.random((60, 3))
    observed = Observed(units, units >= 0, rng.normal(size=60), np.zeros(60, dtype=int))
    drawn = draw_shares(encoding_of({"a": UNIT, "b": UNIT, "c": UNIT}), observed)
    assert drawn is None or (np.quantile(drawn, 0.95, axis=0) > 0.01).all()


def test_many_parameters_leave_room_for_pairs() -> None:
    encoding = encoding_of({f"x{index}": UNIT for index in range(12)})
    rng = np.random.default_rng(0)
    units = rng.random((120, 12))
    values = units[:, 0] + units[:, 3] * units[:, 7] + 0.02 * rng.normal(size=120)
    observed = Observed(units, units >= 0, values, np.zeros(120, dtype=int))
    drawn = draw_shares(encoding, observed)
    assert drawn is not None
    shares = np.median(drawn, axis=0)
    assert set(np.argsort(-shares)[:3]) == {0, 3, 7}

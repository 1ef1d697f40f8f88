from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from workbench.store.history.noise_floor import RepeatedTrainings, noise_floor_of


def groups_of(
    seed: int, num: int, size: int, *, degrees: float, variance: float
) -> list[RepeatedTrainings]:
    """Draw groups whose variances are scaled inverse chi-square variables."""
    random = np.random.default_rng(seed)
    variances = stats.invgamma(degrees / 2, scale=degrees * variance / 2).rvs(
        num, random_state=random
    )
    return [
        RepeatedTrainings(list(random.normal(3.0, np.sqrt(value), size))) for value in variances
    ]


@pytest.mark.parametrize(("degrees", "variance"), [(6.0, 4.0), (20.0, 1e-6)])
def test_the_spread_of_many_groups_is_recovered(degrees: float, variance: float) -> None:
    floor = noise_floor_of(groups_of(1, 300, 9, degrees=degrees, variance=variance))
    assert floor is not None
    assert floor.deviation**2 == pytest.approx(variance, rel=0.15)
    assert floor.num_degrees == pytest.approx(degrees, rel=0.35)
    assert (floor.num_groups, floor.num_trainings) == (300, 2700)


def test_few_groups_are_worth_less_than_many() -> None:
    groups = groups_of(2, 60, 8, degrees=30.0, variance=1.0)
    worth = [noise_floor_of(groups[:num]) for num in (1, 4, 60)]
    degrees = [floor.num_degrees for floor in worth if floor is not None]
    assert degrees == sorted(degrees)
    assert degrees[0] < 6 < degrees[2]


def test_one_group_is_worth_less_than_its_own_trainings() -> None:
    values = [1.0, 1.2, 0.9, 1.1, 1.05, 0.95]
    floor = noise_floor_of([RepeatedTrainings(values)])
    assert floor is not None
    assert floor.deviation**2 == pytest.approx(np.var(values, ddof=1), rel=0.3)
    assert 1 < floor.num_degrees < 5


def test_a_unit_scales_the_floor_and_not_its_worth() -> None:
    groups = groups_of(3, 12, 6, degrees=8.0, variance=1.0)
    scaled = [RepeatedTrainings([100 * value for value in group.values]) for group in groups]
    floor, other = noise_floor_of(groups), noise_floor_of(scaled)
    assert floor is not None
    assert other is not None
    assert other.deviation == pytest.approx(1e2 * floor.deviation)
    assert other.num_degrees == pytest.approx(floor.num_degrees)


def test_groups_that_agree_exactly_were_rounded() -> None:
    groups = groups_of(4, 10, 6, degrees=20.0, variance=1.0)
    floor = noise_floor_of([*groups, RepeatedTrainings([0.5, 0.5, 0.5])])
    assert floor is not None
    assert 0.3 < floor.deviation < 1.7


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0]])
def test_without_differences_there_is_no_floor(values: list[float]) -> None:
    assert noise_floor_of([RepeatedTrainings(values)]) is None


def test_the_floor_follows_the_budget_where_the_groups_do() -> None:
    random = np.random.default_rng(5)
    groups = [
        RepeatedTrainings(list(random.normal(0, steps**-0.5, 12)), steps)
        for steps in np.geomspace(100, 10_000, 30)
    ]
    short, long = noise_floor_of(groups, 100), noise_floor_of(groups, 10_000)
    assert short is not None
    assert long is not None
    assert short.deviation**2 == pytest.approx(1 / 100, rel=0.4)
    assert long.deviation**2 == pytest.approx(1 / 10_000, rel=0.4)


def test_a_budget_far_away_is_less_certain() -> None:
    random = np.random.default_rng(6)
    groups = [RepeatedTrainings(list(random.normal(0, 1, 10)), 1000.0) for _ in range(10)]
    near, far = noise_floor_of(groups, 1000.0), noise_floor_of(groups, 100_000.0)
    assert near is not None
    assert far is not None
    assert far.num_degrees < near.num_degrees / 2

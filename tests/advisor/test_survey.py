"""How many plans a survey measures when time is short."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.survey import num_affordable

seconds = st.floats(min_value=-1e4, max_value=1e4)
plan_seconds = st.floats(min_value=1e-6, max_value=1e3)


def test_all_plans_are_measured_while_there_is_time() -> None:
    assert num_affordable(5, math.inf, 2.0) == 5
    assert num_affordable(5, 10.0, 2.0) == 5


def test_fewer_plans_are_measured_when_time_is_short() -> None:
    assert num_affordable(5, 7.0, 2.0) == 3


def test_two_plans_are_measured_even_when_all_time_is_spent() -> None:
    assert num_affordable(5, -3.0, 2.0) == 2


@given(most=st.integers(2, 20), left_s=seconds, more_s=st.floats(0.0, 1e4), plan_s=plan_seconds)
def test_more_time_never_means_fewer_plans(most: int, left_s: float, more_s: float, plan_s: float) -> None:
    few, many = num_affordable(most, left_s, plan_s), num_affordable(most, left_s + more_s, plan_s)
    assert 2 <= few <= many <= most

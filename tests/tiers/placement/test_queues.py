from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.tiers.placement.queues import erlang_c, wait_of


@pytest.mark.parametrize(
    ("servers", "offered", "known"), [(1, 0.5, 0.5), (2, 1.0, 1 / 3), (10, 8.0, 0.409182)]
)
def test_erlang_c_equals_published_values(servers: int, offered: float, known: float) -> None:
    assert erlang_c(servers, offered) == pytest.approx(known, rel=1e-5)


@given(st.integers(1, 40), st.floats(0.01, 0.99))
def test_erlang_c_equals_the_sum_of_its_definition(servers: int, rho: float) -> None:
    offered = servers * rho
    last = offered**servers / math.factorial(servers) / (1 - rho)
    total = sum(offered**n / math.factorial(n) for n in range(servers)) + last
    assert erlang_c(servers, offered) == pytest.approx(last / total, rel=1e-9)


@given(st.floats(0.01, 0.99))
def test_constant_service_halves_the_wait_at_one_server(rho: float) -> None:
    constant, random = wait_of(rho, 1.0), wait_of(rho, 1.0, variation=1.0)
    assert constant.mean_s == pytest.approx(rho / (2 * (1 - rho)))
    assert random.mean_s == pytest.approx(2 * constant.mean_s)


def test_a_queue_that_cannot_keep_up_grows_without_end() -> None:
    assert math.isinf(wait_of(2.0, 1.0, 2).mean_s)

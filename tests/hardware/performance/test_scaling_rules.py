from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.topology import (
    most_overhead,
    num_parameter_servers,
    parallel_efficiency,
    speedup,
)


@pytest.mark.parametrize(
    ("overhead", "efficiencies"),
    [
        (0.01, (0.990, 0.971, 0.935, 0.871)),
        (0.05, (0.955, 0.875, 0.750, 0.583)),
        (0.10, (0.917, 0.786, 0.611, 0.423)),
        (0.25, (0.833, 0.625, 0.417, 0.250)),
    ],
)
def test_efficiency_by_overhead(overhead: float, efficiencies: tuple[float, ...]) -> None:
    for num_gpus, efficiency in zip((2, 4, 8, 16), efficiencies, strict=True):
        assert parallel_efficiency(num_gpus, overhead) == pytest.approx(efficiency, abs=6e-4)


@pytest.mark.parametrize(
    ("num_gpus", "efficiency", "overhead"),
    [
        (4, 0.75, 0.125),
        (4, 0.80, 0.0909),
        (4, 0.90, 0.0385),
        (8, 0.75, 0.05),
        (8, 0.80, 0.0370),
        (8, 0.90, 0.0161),
    ],
)
def test_the_overhead_that_an_efficiency_allows(
    num_gpus: int, efficiency: float, overhead: float
) -> None:
    assert most_overhead(num_gpus, efficiency) == pytest.approx(overhead, abs=5e-5)


def test_any_overhead_leaves_one_gpu_of_many() -> None:
    assert most_overhead(4, 0.25) == math.inf


def test_speedup() -> None:
    assert speedup(4, 0.10) == pytest.approx(3.14, abs=5e-3)
    assert speedup(10**9, 0.10) == pytest.approx(1.1 / 0.1, rel=1e-6)


@given(st.integers(2, 1000), st.floats(1e-6, 10.0))
def test_the_two_ways_to_ask_agree(num_gpus: int, overhead: float) -> None:
    back = most_overhead(num_gpus, parallel_efficiency(num_gpus, overhead))
    assert back == pytest.approx(overhead, rel=1e-6)


@pytest.mark.parametrize(("compute_s", "servers"), [(1.0, 2), (0.25, 7), (1e6, 1)])
def test_servers_that_hide_their_traffic(compute_s: float, servers: int) -> None:
    # AlexNet: 61 million parameters of 4 bytes, four workers, 10 Gbit Ethernet.
    assert num_parameter_servers(244e6, 4, 1.25e9, compute_s) == servers

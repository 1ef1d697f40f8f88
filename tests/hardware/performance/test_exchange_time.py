"""Two all-reduces show what a link carries; what replicas send takes as long as the law states."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.exchange_time import Link, Way, seconds_by_nodes

SIZES: tuple[int, ...] = (4096, 65536, 524288, 4194304)


@given(
    st.floats(1e-6, 1e-2),
    st.floats(1e6, 1e11),
    st.integers(2, 64),
    st.integers(0, 10**9),
    st.integers(1, 4),
)
def test_a_sweep_without_errors_shows_latency_and_bandwidth(
    latency_s: float, bytes_per_s: float, num_replicas: int, num_bytes: int, num_rounds: int
) -> None:
    true = Link(latency_s, 1.0 / bytes_per_s)
    sweep = {size: true.seconds("reduce", size, num_replicas) for size in SIZES}
    fitted = Link.fit(sweep, num_replicas)
    for way in ("reduce", "gather", "serve"):
        expected_s = true.seconds(way, num_bytes, num_replicas, num_rounds=num_rounds)
        assert fitted.seconds(way, num_bytes, num_replicas, num_rounds=num_rounds) == pytest.approx(
            expected_s, rel=1e-3
        )
    assert fitted.width == pytest.approx(math.exp(1.645 * 0.05))


@given(st.lists(st.floats(1e-6, 10.0), min_size=2, max_size=4), st.integers(2, 16))
def test_no_sweep_makes_a_time_negative_and_intervals_hold_it(
    times: list[float], num_replicas: int
) -> None:
    sweep = dict(zip(SIZES, times, strict=False))
    fitted = Link.fit(sweep, num_replicas)
    assert fitted.latency_s >= 0.0
    assert fitted.s_per_byte >= 0.0
    assert fitted.latency_s + fitted.s_per_byte > 0.0
    assert fitted.width >= 1.0


@pytest.mark.parametrize(
    ("way", "num_replicas", "num_servers", "expected_s"),
    [
        ("reduce", 2, 1, 2 * (0.001 + 0.5)),
        ("reduce", 4, 1, 6 * (0.001 + 0.25)),
        ("gather", 4, 1, 3 * (0.001 + 1.0)),
        ("serve", 2, 1, 2 * (0.001 + 1.0)),
        ("serve", 5, 2, 2 * (0.001 + 2.0)),
        ("serve", 4, 4, 2 * (0.001 + 0.75)),
    ],
)
def test_each_way_takes_its_closed_form(
    way: Way, num_replicas: int, num_servers: int, expected_s: float
) -> None:
    link = Link(0.001, 1e-6)
    assert link.seconds(way, 10**6, num_replicas, num_servers=num_servers) == pytest.approx(
        expected_s
    )


def test_agreeing_by_way_of_nodes_reduces_and_broadcasts_inside_them_and_adds_up_between_them() -> (
    None
):
    inside, between = Link(0.001, 1e-9), Link(0.01, 1e-6)
    expected_s = 2 * 6 * (0.001 + 0.00025) + 2 * (0.01 + 0.5)
    found_s = seconds_by_nodes(inside, between, 10**6, most_on_a_node=4, num_nodes=2)
    assert found_s == pytest.approx(expected_s)
    # Between nodes one copy is sent instead of one for each replica.
    assert found_s < between.seconds("reduce", 10**6, 8)


def test_one_size_shows_no_link() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        Link.fit({4096: 0.1}, 2)

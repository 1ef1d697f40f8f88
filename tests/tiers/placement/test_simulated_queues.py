from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.tiers.placement.queues import wait_of
from workbench.tiers.placement.simulated_queues import (
    Requests,
    Work,
    draw_requests,
    ends_at_devices,
    ends_at_servers,
    ends_in_batches,
    first_stages,
)


@pytest.mark.parametrize("rho", [0.5, 0.8, 0.9])
def test_many_servers_with_random_service_wait_as_erlang_computed(rho: float) -> None:
    servers, number = 64, 600_000
    requests = draw_requests(number, 100_000, rho * servers / 100_000, 1, seed=1)
    service_s = np.random.default_rng(2).exponential(1.0, number)
    ends = ends_at_servers(requests.arrival_s, service_s, servers)
    waited_s = (ends - requests.arrival_s - service_s)[requests.counted].mean()
    known = wait_of(rho * servers, 1.0, servers, variation=1.0).mean_s
    # The wait of few is a small part of a response at low load.
    assert 1.0 + waited_s == pytest.approx(1.0 + known, rel=0.02)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_devices_wait_as_the_closed_form_of_constant_service(rho: float) -> None:
    requests = draw_requests(600_000, 200, rho, 1, seed=3)
    ends = ends_at_devices(requests, np.ones(600_000))
    waited_s = (ends - requests.arrival_s - 1.0)[requests.counted].mean()
    assert waited_s == pytest.approx(wait_of(rho, 1.0).mean_s, rel=0.02)


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.integers(0, 3), st.floats(0.01, 3)), min_size=1, max_size=40
    )
)
@examples(60)
def test_devices_equal_a_loop_over_requests(drawn: list[tuple[float, int, float]]) -> None:
    gaps, devices, service = (np.array(each) for each in zip(*drawn, strict=True))
    requests = Requests(np.cumsum(gaps), devices, np.zeros(len(drawn), dtype=int))
    free, known = dict.fromkeys(range(4), 0.0), []
    for arrival, device, needed in zip(requests.arrival_s, devices, service, strict=True):
        free[int(device)] = max(arrival, free[int(device)]) + needed
        known.append(free[int(device)])
    assert ends_at_devices(requests, service) == pytest.approx(np.array(known))


@given(
    st.lists(
        st.tuples(st.floats(0, 2), st.integers(0, 3), st.sampled_from([0.0, 0.5, 3.0])), max_size=40
    ),
    st.floats(0.01, 2),
)
@examples(60)
def test_first_stages_are_read_in_the_order_in_which_they_end(
    drawn: list[tuple[float, int, float]], first_s: float
) -> None:
    gaps, devices, rests = (
        (np.array(each) for each in zip(*drawn, strict=True)) if drawn else ([], [], [])
    )
    requests = Requests(
        np.cumsum(gaps), np.array(devices, dtype=int), np.zeros(len(drawn), dtype=int)
    )
    free, known = dict.fromkeys(range(4), 0.0), {}
    for number, (arrival, device, rest) in enumerate(
        zip(requests.arrival_s, devices, rests, strict=True)
    ):
        known[number] = max(arrival, free[int(device)]) + first_s
        free[int(device)] = known[number] + rest
    free_s, starts = [0.0] * 4, []
    for number, done in first_stages(requests, first_s, free_s):
        starts.append((number, done))
        free_s[int(devices[number])] = done + rests[number]
    assert dict(starts) == pytest.approx(known)
    assert [done for _, done in starts] == sorted(done for _, done in starts)
    assert len(starts) == len(drawn)


@given(st.lists(st.floats(0, 3), min_size=1, max_size=40), st.integers(1, 5), st.floats(0.01, 4))
@examples(60)
def test_equal_service_equals_a_loop_over_requests(
    gaps: list[float], servers: int, service: float
) -> None:
    ready, free, known = np.cumsum(gaps), [0.0] * servers, []
    for arrival in ready:
        end = max(arrival, free[0]) + service
        heapq.heapreplace(free, end)
        known.append(end)
    assert ends_at_servers(ready, np.full(len(ready), service), servers) == pytest.approx(
        np.array(known)
    )


def test_a_full_batch_takes_its_longest_part_and_what_each_request_adds() -> None:
    random = np.random.default_rng(0)
    alone_s, row_s = random.uniform(1, 3, 500), np.full(500, 0.25)
    calls = random.integers(500, size=(200_000, 4))
    calls_s = (alone_s - row_s)[calls].max(axis=1) + row_s[calls].sum(axis=1)
    assert Work(alone_s, row_s).mean_full_s(4) == pytest.approx(calls_s.mean() / 4, rel=0.005)
    assert Work(alone_s, row_s).mean_full_s(1) == pytest.approx(alone_s.mean())


def test_a_free_server_takes_all_that_wait_and_never_waits_for_more() -> None:
    ready = np.array([0.0, 0.5, 0.6, 0.7, 9.0])
    work = Work(np.full(5, 1.0), np.full(5, 0.25))
    ends, shares_s = ends_in_batches(ready, work, 1, 2)
    # One alone, then two of the three that wait, then the third, and the last when it comes.
    assert ends == pytest.approx([1.0, 2.25, 2.25, 3.25, 10.0])
    assert shares_s == pytest.approx([1.0, 0.625, 0.625, 1.0, 1.0])

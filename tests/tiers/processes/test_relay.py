from __future__ import annotations

import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.tiers.processes.relay import Direction, Link
from workbench.tiers.processes.starting import start_link


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5000)), min_size=1, max_size=20),
    st.floats(1e3, 1e9),
    st.floats(0, 1),
)
def test_a_link_carries_its_bandwidth_in_order_and_after_its_delay(
    sent: list[tuple[float, int]], bits_per_s: float, rtt_s: float
) -> None:
    link, now_s, free_s = Direction(bits_per_s, rtt_s), 0.0, 0.0
    for gap_s, num_bytes in sent:
        now_s += gap_s
        free_s = max(free_s, now_s) + num_bytes * 8 / bits_per_s
        assert link.arrival_s(now_s, num_bytes) == pytest.approx(free_s + rtt_s / 2)


def test_a_trace_changes_the_bandwidth_and_is_repeated() -> None:
    link = Direction(float("inf"), 0.0, [(0.0, 8e3), (1.0, 8e6), (2.0, 8e6)])
    assert link.arrival_s(0.0, 100) == pytest.approx(0.1)
    assert link.arrival_s(1.0, 100) == pytest.approx(1.0001)
    assert link.arrival_s(2.0, 100) == pytest.approx(2.1)


def test_bytes_pass_a_real_link_unchanged_and_no_faster_than_it_is() -> None:
    given = bytes(range(256)) * 40
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            accepted, _ = server.accept()
            with accepted:
                while piece := accepted.recv(65536):
                    accepted.sendall(piece)

        threading.Thread(target=echo, daemon=True).start()
        process = start_link("echo", Link("127.0.0.1", server.getsockname()[1], 4e6, 0.02))
        try:
            process.wait()
            with socket.create_connection(("127.0.0.1", process.port)) as connected:
                times = []
                for _ in range(5):
                    began_s = time.perf_counter()
                    connected.sendall(given)
                    received = b""
                    while len(received) < len(given):
                        received += connected.recv(65536)
                    times.append(time.perf_counter() - began_s)
                    assert received == given
        finally:
            process.stop()
    # There and back, while the first bytes come back as the last ones are still sent.
    assert min(times) >= 0.02 + len(given) * 8 / 4e6

"""The server's rules, compared with their formulas written out for two rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.federated.server import Server

ONE, OTHER = np.array([0.5, -0.25, 0.0]), np.array([-0.1, 0.4, 0.2])
changes = st.lists(st.floats(-10, 10), min_size=1, max_size=5).map(np.array)


@given(changes)
def test_fedavg_of_rate_1_adds_the_mean_change(change: np.ndarray) -> None:
    assert np.array_equal(Server().step(change), change)


@given(changes)
def test_momentum_0_is_fedavg(change: np.ndarray) -> None:
    server = Server("fedavgm", momentum=0.0)
    assert np.array_equal(server.step(change), change)
    assert np.array_equal(server.step(2 * change), 2 * change)


def test_momentum_keeps_a_part_of_earlier_changes() -> None:
    server = Server("fedavgm", lr=0.5, momentum=0.9)
    assert server.step(ONE) == pytest.approx(0.5 * ONE)
    assert server.step(OTHER) == pytest.approx(0.5 * (0.9 * ONE + OTHER))


def test_adaptive_servers_follow_the_published_formulas() -> None:
    tau, decay, lr = 0.1, 0.8, 0.3
    mean_1 = 0.1 * ONE
    mean_2 = 0.9 * mean_1 + 0.1 * OTHER
    for rule in ("fedadagrad", "fedadam", "fedyogi"):
        server = Server(rule, lr=lr, momentum=0.9, second_moment=decay, tau=tau)
        square = np.full(3, tau**2)
        for change, mean in ((ONE, mean_1), (OTHER, mean_2)):
            squared = change**2
            if rule == "fedadagrad":
                square = square + squared
            elif rule == "fedadam":
                square = decay * square + (1 - decay) * squared
            else:
                square = square - (1 - decay) * squared * np.where(square > squared, 1, -1)
            assert server.step(change) == pytest.approx(lr * mean / (np.sqrt(square) + tau)), rule


@pytest.mark.parametrize("rule", ["fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi"])
def test_a_server_goes_on_from_its_state(rule: str) -> None:
    whole, begun, resumed = (Server(rule) for _ in range(3))  # type: ignore[arg-type]
    whole.step(ONE)
    begun.step(ONE)
    resumed.load(begun.state())
    assert np.array_equal(whole.step(OTHER), resumed.step(OTHER))

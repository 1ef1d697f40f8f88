"""What a server makes of changes, and its rules, compared with their formulas for two rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.federated.server import Server, krum, trimmed_mean, weighted_mean

vectors = st.lists(
    st.tuples(st.lists(st.floats(-5, 5), min_size=3, max_size=3).map(np.array), st.integers(1, 50)),
    min_size=1,
    max_size=8,
)


@given(vectors)
def test_the_mean_weighs_clients_by_their_samples(changes: list[tuple[np.ndarray, int]]) -> None:
    mean = weighted_mean((change, float(weight)) for change, weight in changes)
    expected = np.average(
        [change for change, _ in changes], axis=0, weights=[weight for _, weight in changes]
    )
    assert mean == pytest.approx(expected, abs=1e-12)


@given(vectors, st.integers(0, 7))
def test_an_empty_client_changes_nothing(changes: list[tuple[np.ndarray, int]], place: int) -> None:
    weighted = [(change, float(weight)) for change, weight in changes]
    with_empty = [*weighted[:place], (np.full(3, 1e9), 0.0), *weighted[place:]]
    one, other = weighted_mean(weighted), weighted_mean(with_empty)
    assert one is not None
    assert other is not None
    assert np.array_equal(one, other)


def test_empty_clients_alone_have_no_mean() -> None:
    assert weighted_mean([(np.ones(2), 0.0)]) is None
    assert weighted_mean([]) is None


@given(st.integers(5, 15), st.integers(0, 2**32 - 1), st.floats(-1e12, 1e12))
def test_bad_clients_hardly_move_robust_means(num_good: int, seed: int, sent: float) -> None:
    rng = np.random.default_rng(seed)
    good = list(rng.normal(1.0, 0.1, (num_good, 4)))
    changes = [*good, np.full(4, sent)]
    low, high = np.min(good, axis=0), np.max(good, axis=0)
    trimmed = trimmed_mean(changes, 0.2)
    assert ((low - 1e-9 <= trimmed) & (trimmed <= high + 1e-9)).all()
    if not low.min() <= sent <= high.max():
        assert krum(changes, 1) < num_good


@given(vectors)
def test_a_mean_that_trims_nothing_is_the_mean(changes: list[tuple[np.ndarray, int]]) -> None:
    plain = [change for change, _ in changes]
    assert trimmed_mean(plain, 0.0) == pytest.approx(np.mean(plain, axis=0), abs=1e-12)


def test_krum_equals_its_definition_by_brute_force() -> None:
    points = np.random.default_rng(0).normal(size=(9, 3))
    scores = []
    for one in range(9):
        distances = sorted(
            ((points[one] - points[two]) ** 2).sum() for two in range(9) if two != one
        )
        scores.append(sum(distances[: 9 - 2 - 2]))
    assert krum(list(points), 2) == int(np.argmin(scores))


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

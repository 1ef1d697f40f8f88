"""Masks hide what a client sends and vanish from the sum, also where clients fail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.federated.server import (
    SumTooLargeError,
    from_fixed,
    masked,
    pair_secret,
    to_fixed,
    unmasked_sum,
)

clients = st.dictionaries(
    st.integers(0, 50),
    st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4).map(np.array),
    min_size=2,
    max_size=8,
)


def send_all(values: dict[int, np.ndarray], failed: set[int]) -> np.ndarray:
    def secret(one: int, other: int) -> bytes:
        return pair_secret(7, 3, one, other)

    received = {
        client: masked(
            to_fixed(numbers, num_clients=len(values)),
            client,
            {other: secret(client, other) for other in values.keys() - {client}},
        )
        for client, numbers in values.items()
        if client not in failed
    }
    revealed = {(client, gone): secret(client, gone) for client in received for gone in failed}
    return unmasked_sum(received, revealed)


@given(clients, st.data())
def test_the_masked_sum_is_the_plain_sum_also_with_failures(
    values: dict[int, np.ndarray], data: st.DataObject
) -> None:
    failed = set(
        data.draw(st.lists(st.sampled_from(sorted(values)), max_size=len(values) - 1, unique=True))
    )
    left = [numbers for client, numbers in values.items() if client not in failed]
    plain = np.sum(
        [to_fixed(numbers, num_clients=len(values)) for numbers in left], axis=0, dtype=np.uint64
    )
    total = send_all(values, failed)
    assert np.array_equal(total, plain)
    assert from_fixed(total) == pytest.approx(np.sum(left, axis=0), abs=1e-8)


def test_what_a_client_sends_looks_random() -> None:
    sent = masked(to_fixed(np.zeros(100_000), num_clients=2), 0, {1: pair_secret(7, 3, 0, 1)})
    bits = np.unpackbits(sent.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 0.002
    assert len(np.unique(sent)) == len(sent)


def test_each_pair_and_round_has_a_secret_of_its_own() -> None:
    secrets = {
        pair_secret(7, number, one, other)
        for number in (0, 1)
        for one, other in ((0, 1), (0, 2), (1, 2))
    }
    assert len(secrets) == 6
    assert pair_secret(7, 0, 1, 2) == pair_secret(7, 0, 2, 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(OverflowError, match="not finite"):
        to_fixed(np.array([0.0, value]), num_clients=2)


@given(st.integers(1, 10_000), st.floats(0.0, 1e13), st.booleans())
def test_what_is_accepted_from_every_client_never_wraps_around(
    num_clients: int, value: float, is_negative: bool
) -> None:
    value = -value if is_negative else value
    bound = 2.0**31 / num_clients
    if abs(value) > bound * (1 + 1e-9):
        with pytest.raises(SumTooLargeError):
            to_fixed(np.array([value]), num_clients=num_clients)
        return
    if abs(value) > bound * (1 - 1e-9):
        return  # so near that rounding decides
    fixed = to_fixed(np.array([value]), num_clients=num_clients)
    exact = int(fixed.view(np.int64)[0]) * num_clients  # of Python, which never wraps
    assert abs(exact) < 2**63
    total = np.zeros(1, dtype=np.uint64)
    for _ in range(min(num_clients, 50)):
        total += fixed
    assert from_fixed(total)[0] == pytest.approx(
        value * min(num_clients, 50), abs=1e-7 * num_clients
    )


def test_the_number_that_does_not_fit_is_named_with_its_bound() -> None:
    # 2^31 / 50 for each of 50 clients.
    with pytest.raises(
        SumTooLargeError, match=r"number 2 is -5e\+07, and .* is 4\.29497e\+07"
    ) as caught:
        to_fixed(np.array([1.0, 4.2e7, -5e7]), num_clients=50)
    assert (caught.value.position, caught.value.value) == (2, -5e7)

"""Masks hide what a client sends and vanish from the sum, also where clients fail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.federated.masks import from_fixed, masked, pair_secret, to_fixed, unmasked_sum

clients = st.dictionaries(
    st.integers(0, 50), st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4).map(np.array),
    min_size=2, max_size=8,
)  # fmt: skip


def send_all(values: dict[int, np.ndarray], failed: set[int]) -> np.ndarray:
    def secret(one: int, other: int) -> bytes:
        return pair_secret(7, 3, one, other)

    received = {
        client: masked(
            to_fixed(numbers), client, {other: secret(client, other) for other in values.keys() - {client}}
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
    failed = set(data.draw(st.lists(st.sampled_from(sorted(values)), max_size=len(values) - 1, unique=True)))
    left = [numbers for client, numbers in values.items() if client not in failed]
    plain = np.sum([to_fixed(numbers) for numbers in left], axis=0, dtype=np.uint64)
    total = send_all(values, failed)
    assert np.array_equal(total, plain)
    assert from_fixed(total) == pytest.approx(np.sum(left, axis=0), abs=1e-8)


def test_what_a_client_sends_looks_random() -> None:
    sent = masked(to_fixed(np.zeros(100_000)), 0, {1: pair_secret(7, 3, 0, 1)})
    bits = np.unpackbits(sent.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 0.002
    assert len(np.unique(sent)) == len(sent)


def test_each_pair_and_round_has_a_secret_of_its_own() -> None:
    secrets = {
        pair_secret(7, number, one, other) for number in (0, 1) for one, other in ((0, 1), (0, 2), (1, 2))
    }
    assert len(secrets) == 6
    assert pair_secret(7, 0, 1, 2) == pair_secret(7, 0, 2, 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e12])
def test_numbers_that_cannot_be_added_up_are_refused(value: float) -> None:
    with pytest.raises(OverflowError, match="fixed point"):
        to_fixed(np.array([0.0, value]))

"""Every sample has exactly one client, however samples are divided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.federated.clients import (
    Shards,
    by_shares,
    dirichlet_shares,
    iid,
    label_shares,
)

seeds = st.integers(0, 2**32 - 1)


def hold_each_once(shards: Shards, num_samples: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(shards)), np.arange(num_samples))


@given(num_samples=st.integers(0, 200), num_clients=st.integers(1, 30), seed=seeds)
def test_random_shards_lose_no_sample_and_differ_by_one(
    num_samples: int, num_clients: int, seed: int
) -> None:
    shards = iid(num_samples, num_clients, seed=seed)
    assert hold_each_once(shards, num_samples)
    sizes = [len(shard) for shard in shards]
    assert len(sizes) == num_clients
    assert max(sizes) - min(sizes) <= 1


@given(
    classes=st.lists(st.integers(0, 4), max_size=200),
    num_clients=st.integers(1, 20),
    concentration=st.sampled_from([1e-3, 0.1, 0.3, 1.0, 1e3]),
    seed=seeds,
)
def test_dirichlet_shards_lose_no_sample(
    classes: list[int], num_clients: int, concentration: float, seed: int
) -> None:
    shares = dirichlet_shares(5, num_clients, concentration=concentration, seed=seed)
    assert shares.sum(axis=1) == pytest.approx(np.ones(5))
    shards = by_shares(np.array(classes, dtype=int), shares, seed=seed)
    assert len(shards) == num_clients
    assert hold_each_once(shards, len(classes))


def test_a_small_concentration_gives_most_of_a_class_to_few_clients() -> None:
    largest = [
        dirichlet_shares(200, 10, concentration=concentration, seed=1).max(axis=1).mean()
        for concentration in (1e-3, 0.3, 1e4)
    ]
    assert largest[0] > 0.98
    assert 0.4 < largest[1] < 0.75
    assert largest[2] == pytest.approx(0.1, abs=0.01)


@given(
    num_classes=st.integers(1, 12),
    num_labels=st.integers(1, 12),
    num_clients=st.integers(1, 30),
    seed=seeds,
)
def test_each_client_has_its_number_of_classes_and_none_is_lost(
    num_classes: int, num_labels: int, num_clients: int, seed: int
) -> None:
    num_labels = max(min(num_labels, num_classes), -(-num_classes // num_clients))
    shares = label_shares(num_classes, num_clients, num_labels=num_labels, seed=seed)
    assert ((shares > 0).sum(axis=0) == num_labels).all()
    classes = np.repeat(np.arange(num_classes), 40)
    shards = by_shares(classes, shares, seed=seed)
    assert hold_each_once(shards, len(classes))
    assert all(len(np.unique(classes[shard])) <= num_labels for shard in shards)

"""Samples that are on the device come in the order in which they were wanted, whatever the
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.training import tensor_source
from workbench.training.tensor_source import Resident

SAMPLES = Resident(torch.arange(60).reshape(30, 2), torch.arange(30))
BATCHES = st.lists(
    st.lists(st.integers(0, 29), min_size=1, max_size=5),
    max_size=3 * tensor_source.PICKED_AHEAD // 64,
)


@given(BATCHES)
def test_each_micro_batch_has_its_samples(batches: list[list[int]]) -> None:
    many = batches * 64
    picking = SAMPLES.load(np.array(indices) for indices in many)
    for indices in many:
        inputs, targets = picking.next()
        assert targets.tolist() == indices
        assert inputs.tolist() == [[2 * index, 2 * index + 1] for index in indices]


def test_indices_are_taken_ahead_so_that_few_copies_are_made() -> None:
    taken = 0

    def wanted() -> Iterator[np.ndarray]:
        nonlocal taken
        for index in range(2 * tensor_source.PICKED_AHEAD):
            taken = index + 1
            yield np.array([index % 30])

    picking = SAMPLES.load(wanted())
    assert taken == tensor_source.PICKED_AHEAD
    for _ in range(tensor_source.PICKED_AHEAD - 1):
        picking.next()
    assert taken == tensor_source.PICKED_AHEAD
    picking.next()
    assert taken == 2 * tensor_source.PICKED_AHEAD

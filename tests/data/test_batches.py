from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.batches import epoch_indices, global_batches, num_batches, worker_part

settings = {
    "num_samples": st.integers(0, 200),
    "global_batch": st.integers(1, 64),
    "epoch": st.integers(0, 5),
    "seed": st.integers(0, 2**32),
    "shuffle": st.booleans(),
}


@given(**settings, num_workers=st.integers(1, 9))
def test_workers_share_every_sample_of_an_epoch_exactly_once(
    *, num_samples, global_batch, epoch, seed, shuffle, num_workers
):
    batches = list(
        global_batches(
            num_samples, global_batch=global_batch, epoch=epoch, seed=seed, shuffle=shuffle
        )
    )
    assert len(batches) == num_batches(num_samples, global_batch)
    seen: list[int] = []
    for batch in batches:
        parts = [worker_part(batch, rank, num_workers) for rank in range(num_workers)]
        np.testing.assert_array_equal(np.concatenate(parts), batch)
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
        seen += batch.tolist()
    assert all(len(batch) == global_batch for batch in batches[:-1])
    assert sorted(seen) == list(range(num_samples))


@given(**settings, data=st.data())
def test_a_resumed_epoch_goes_on_with_the_batches_that_were_left(
    *, num_samples, global_batch, epoch, seed, shuffle, data
):
    start = data.draw(st.integers(0, num_batches(num_samples, global_batch)))
    given_settings = {
        "global_batch": global_batch,
        "epoch": epoch,
        "seed": seed,
        "shuffle": shuffle,
    }
    whole = list(global_batches(num_samples, **given_settings))
    rest = list(global_batches(num_samples, **given_settings, start=start))
    assert [batch.tolist() for batch in rest] == [batch.tolist() for batch in whole[start:]]


def test_each_epoch_and_each_seed_has_its_own_order():
    orders = {
        (epoch, seed): tuple(epoch_indices(50, epoch=epoch, seed=seed, shuffle=True))
        for epoch in range(3)
        for seed in range(3)
    }
    assert len(set(orders.values())) == 9


def test_without_shuffling_the_order_is_that_of_the_data():
    assert epoch_indices(4, epoch=3, seed=1, shuffle=False).tolist() == [0, 1, 2, 3]

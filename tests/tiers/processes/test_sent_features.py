from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workbench.tiers.processes.features import Outgoing, quantise, restore
from workbench.tiers.processes.frames import decode, encode
from workbench.tiers.processes.scenes import aggregate

numbers = st.floats(-1e6, 1e6, width=32)


@given(arrays.arrays(np.float32, arrays.array_shapes(max_dims=3, max_side=5), elements=numbers))
def test_quantised_values_are_at_most_half_a_step_away(values: np.ndarray) -> None:
    restored = restore(decode(encode(Outgoing("uint8").request(1, values, sender=0, stage=1))))
    step = float(values.max() - values.min()) / 255
    assert restored.shape == values.shape
    assert np.abs(restored - values).max() <= 0.5 * step + 1e-5 * max(
        1.0, float(np.abs(values).max())
    )


def test_values_of_one_kind_and_none_at_all_are_quantised() -> None:
    assert quantise(np.full(3, 7.5, dtype=np.float32))[1:] == (1.0, 7.5)
    assert quantise(np.zeros((0, 2), dtype=np.float32))[0].shape == (0, 2)


def test_noise_is_a_share_of_the_spread_of_what_is_sent() -> None:
    values = np.random.default_rng(0).normal(3, 5, 20000).astype(np.float32)
    sent = Outgoing("float32", 0.3, np.random.default_rng(1)).request(1, values, sender=0, stage=1)
    assert float((sent.tensor - values).std()) == pytest.approx(0.3 * 5, rel=0.03)


def test_whole_numbers_are_sent_as_they_are() -> None:
    values = np.arange(5, dtype=np.uint8)
    sent = Outgoing("uint8", 1.0).request(1, values, sender=0, stage=0)
    assert (restore(decode(encode(sent))) == values).all()


views = st.dictionaries(
    st.integers(0, 3), arrays.arrays(np.float32, (2, 3), elements=numbers), min_size=1, max_size=4
)


@given(views)
def test_absent_devices_change_nothing_in_mean_and_max(seen: dict[int, np.ndarray]) -> None:
    stacked = np.stack([seen[device] for device in sorted(seen)])
    for how, expected in (("mean", stacked.mean(axis=0)), ("max", stacked.max(axis=0))):
        aggregated, mask = aggregate(seen, range(4), how)  # type: ignore[arg-type]
        assert np.array_equal(aggregated, expected)
        assert mask.tolist() == [float(device in seen) for device in range(4)]


@given(views)
def test_absent_devices_are_zeros_in_a_concatenation(seen: dict[int, np.ndarray]) -> None:
    aggregated, _ = aggregate(seen, range(4), "concatenation")
    assert aggregated.shape == (8, 3)
    for device in range(4):
        part = aggregated[2 * device : 2 * device + 2]
        assert np.array_equal(part, seen.get(device, np.zeros((2, 3), dtype=np.float32)))


def test_views_that_do_not_fit_together_are_refused() -> None:
    view = np.zeros(2)
    for seen in ({}, {7: view}, {0: view, 1: np.zeros(3)}):
        with pytest.raises(ValueError, match=r"views"):
            aggregate(seen, [0, 1], "mean")

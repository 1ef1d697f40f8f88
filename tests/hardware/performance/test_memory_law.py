from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.memory import MemoryLaw, StepMemory, fit_law


def step(micro_batch: int, compute_peak_bytes: int, update_peak_bytes: int = 0) -> StepMemory:
    return StepMemory(micro_batch, 0, 0, 0, compute_peak_bytes, update_peak_bytes)


def test_the_published_law_of_a_residual_network() -> None:
    """ResNet-18 on 224 x 224 images, fp32, SGD with momentum: 21.135 MiB a sample + 114.6 MiB."""
    mib = 2**20
    law = fit_law([step(b, round((21.135 * b + 114.6) * mib)) for b in (16, 32, 64)])
    assert law.per_sample_bytes / mib == pytest.approx(21.135, abs=1e-3)
    assert law.constant_bytes / mib == pytest.approx(114.6, abs=1e-2)
    assert law.largest_micro_batch(16 * 2**30) == 692  # (0.9 x 16384 - 114.6) / 21.135
    assert law.largest_micro_batch(100 * mib) == 0


@given(
    st.integers(1, 10**6),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**12),
    st.floats(0, 0.5),
)
def test_the_largest_micro_batch_fits_and_the_next_does_not(
    per_sample: int, constant: int, update: int, limit: int, margin: float
) -> None:
    law = MemoryLaw(per_sample, constant, update)
    largest = law.largest_micro_batch(limit, margin)
    room = limit * (1.0 - margin)
    assert largest == 0 or law.peak_bytes(largest) <= room * (1 + 1e-9)
    assert law.peak_bytes(largest + 1) > room * (1 - 1e-9)


@given(
    st.integers(1, 10**6),
    st.integers(0, 10**9),
    st.lists(st.integers(1, 4096), min_size=2, unique=True),
)
def test_a_law_is_found_again(per_sample: int, constant: int, batches: list[int]) -> None:
    law = fit_law([step(batch, per_sample * batch + constant) for batch in batches])
    assert law.per_sample_bytes == pytest.approx(per_sample, rel=1e-6)
    assert law.constant_bytes == pytest.approx(constant, rel=1e-6, abs=1e-3 * per_sample)


def test_one_micro_batch_is_no_law() -> None:
    with pytest.raises(ValueError, match="two micro batches"):
        fit_law([step(8, 100), step(8, 110)])

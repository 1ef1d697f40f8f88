from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.goodput import PolluxLaw, efficiency, noise_scale_of, optimize

# Computed with the published implementation, petuum/adaptdl.
LAW = PolluxLaw(
    compute_s=0.05,
    compute_s_per_sample=0.002,
    node_s=0.02,
    node_s_per_gpu=0.001,
    network_s=0.10,
    network_s_per_gpu=0.005,
    overlap=1.5,
)
BASE_BATCH = 128
NOISE_SCALE = noise_scale_of(BASE_BATCH, variance=7.0, squared_norm=1.0)


@pytest.mark.parametrize(
    ("plan", "throughput", "worth", "goodput"),
    [
        ((1, 1, 128, 1), 418.3007, 1.0, 418.3007),
        ((1, 4, 32, 1), 1063.5181, 1.0, 1063.5181),
        ((1, 4, 64, 1), 1397.9935, 0.888889, 1242.6609),
        ((1, 4, 64, 2), 1417.8128, 0.727273, 1031.1366),
        ((2, 8, 64, 1), 2081.7738, 0.727273, 1514.0173),
        ((4, 16, 64, 1), 3706.8642, 0.533333, 1976.9942),
    ],
)
def test_golden_values(
    plan: tuple[int, int, int, int], throughput: float, worth: float, goodput: float
) -> None:
    _, gpus, micro_batch, accumulation = plan
    batch = gpus * micro_batch * accumulation
    found = batch / LAW.step_s(*plan)
    assert found == pytest.approx(throughput, abs=1e-3)
    assert efficiency(batch, BASE_BATCH, NOISE_SCALE) == pytest.approx(worth, abs=1e-6)
    assert found * efficiency(batch, BASE_BATCH, NOISE_SCALE) == pytest.approx(goodput, abs=1e-3)


@pytest.mark.parametrize(
    ("nodes", "gpus", "goodput", "micro_batch"),
    [
        (1, 1, 418.3007, 128),
        (1, 2, 737.7566, 113),
        (1, 4, 1254.9566, 81),
        (2, 8, 1566.1045, 88),
        (4, 16, 1992.7634, 74),
    ],
)
def test_golden_optima(nodes: int, gpus: int, goodput: float, micro_batch: int) -> None:
    batches = np.geomspace(max(BASE_BATCH, 16 * gpus), 4096, 50)
    best = optimize(
        lambda micro, accumulation: LAW.step_s(nodes, gpus, micro, accumulation),
        gpus,
        batches,
        base_batch=BASE_BATCH,
        noise_scale=NOISE_SCALE,
        micro_batch_range=(16, 256),
    )
    assert best is not None
    assert (best.micro_batch, best.accumulation) == (micro_batch, 1)
    assert best.goodput_samples_per_s == pytest.approx(goodput, abs=1e-3)
    assert best.goodput_samples_per_s == pytest.approx(
        best.throughput_samples_per_s * best.efficiency
    )


def test_large_batches_are_accumulated_and_impossible_ones_left_out() -> None:
    def search(batches: list[float], gpus: int = 2) -> object:
        return optimize(
            lambda micro, accumulation: LAW.step_s(1, gpus, micro, accumulation),
            gpus,
            batches,
            base_batch=64,
            noise_scale=1e6,
            micro_batch_range=(16, 32),
        )

    best = search([128.0])
    assert best is not None
    assert best[3:] == (32, 2)
    alone = search([96.0], gpus=1)
    assert alone is not None
    assert alone[3:] == (32, 3)
    assert search([63.0]) is None
    assert search([]) is None
    assert search([64.0], gpus=8) is None


positive = st.floats(1e-4, 1.0)
laws = st.builds(
    PolluxLaw, positive, positive, positive, positive, positive, positive, st.floats(1.0, 10.0)
)


@given(st.floats(1.0, 1e4), st.floats(0.0, 1e6), st.floats(1.0, 1e3), st.floats(1.0, 1e3))
def test_efficiency_is_a_falling_part(
    base: float, noise: float, factor: float, further: float
) -> None:
    small, large = efficiency(np.array([base * factor, base * factor * further]), base, noise)
    assert 0.0 < large <= small <= 1.0 + 1e-12


@given(laws, st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_throughput_rises_ever_more_slowly_with_the_micro_batch(
    law: PolluxLaw, nodes: int, per_node: int, accumulation: int
) -> None:
    micro_batch = np.arange(1.0, 200.0, 7.0)
    throughput = micro_batch / law.step_s(nodes, nodes * per_node, micro_batch, accumulation)
    gains = np.diff(throughput)
    assert np.all(gains >= -1e-9 * throughput[1:])
    assert np.all(np.diff(gains) <= 1e-9 * throughput.max())


@given(laws, st.integers(1, 4), st.floats(1.0, 500.0), st.integers(1, 5))
def test_each_gpu_brings_no_more_than_the_one_before(
    law: PolluxLaw, nodes: int, micro_batch: float, accumulation: int
) -> None:
    each = 1.0 / law.step_s(nodes, np.arange(max(nodes, 1), 40), micro_batch, accumulation)
    assert np.all(np.diff(each) <= 1e-12 * each.max())

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.step_law import LAWS, PARAMETERS, Plans, StepLaw, believe
from workbench.hardware.performance.topology import Topology

PLANS = Plans.of(
    [
        Topology.of(nodes, nodes * per_node)
        for nodes in (1, 2, 3, 4, 9)
        for per_node in (1, 2, 3, 8)
        for _ in range(3)
    ],
    [8.0, 32.0, 128.0] * 20,
)
laws = st.builds(StepLaw, st.sampled_from(list(LAWS)), st.just(32.0))
# Three standard deviations to either side of what is believed.
parameters = st.lists(st.floats(-3.0, 3.0), min_size=len(PARAMETERS), max_size=len(PARAMETERS)).map(
    lambda shifts: believe(PLANS, 0.2)[0] + np.array(shifts) * believe(PLANS, 0.2)[1]
)


@given(laws, parameters)
def test_a_step_takes_as_long_as_its_longer_part_and_no_longer_than_both(
    law: StepLaw, at: np.ndarray
) -> None:
    step_s = np.exp(law.log_step(at, PLANS))
    compute_s, communication_s = law.compute_s(at, PLANS), law.communication_s(at, PLANS)
    assert np.all(step_s >= np.maximum(compute_s, communication_s) * (1 - 1e-9))
    assert np.all(step_s <= (compute_s + communication_s) * (1 + 1e-9))


@given(laws, parameters)
def test_steps_grow_with_the_batch_and_one_gpu_talks_to_nobody(
    law: StepLaw, at: np.ndarray
) -> None:
    step_s = np.exp(law.log_step(at, PLANS)).reshape(-1, 3)
    assert np.all(np.diff(step_s, axis=1) >= 0)
    communication_s = law.communication_s(at, PLANS)
    assert np.all((communication_s > 0) == (PLANS.num_gpus > 1))


@given(laws, parameters)
def test_computing_is_affine_in_the_batch(law: StepLaw, at: np.ndarray) -> None:
    computed = law.compute_s(at, Plans.of([Topology.of(2, 6)] * 3, [10.0, 20.0, 30.0]))
    assert computed[1] - computed[0] == pytest.approx(computed[2] - computed[1], rel=1e-6)


def test_the_laws_of_communication_differ_where_they_should() -> None:
    means, _ = believe(PLANS, 0.2)
    of_four = Plans.of([Topology.of(nodes, nodes * 4) for nodes in (2, 4, 8)], [32.0] * 3)
    times = {name: StepLaw(name, 32.0).communication_s(means, of_four) for name in LAWS}
    assert times["log2 of the group"][1] < times["log2 of the group"][2]
    assert times["log2 of the group"][2] < times["linear in the group"][2]
    assert len({tuple(values) for values in times.values()}) == len(LAWS)


@pytest.mark.parametrize(
    ("gpus_per_node", "volumes"), [(1, (1, 4 / 3, 3 / 2)), (4, (7 / 4, 11 / 6, 15 / 8))]
)
def test_a_ring_between_nodes_sends_what_its_links_carry_and_waits_for_each_hop(
    gpus_per_node: int, volumes: tuple[float, ...]
) -> None:
    """The gradients are divided in K parts, of which each link carries 2 (K - 1)."""
    means, _ = believe(PLANS, 0.2)
    at = dict(zip(PARAMETERS, means, strict=True))
    at |= {"many_nodes": 0.0, "many_nodes_exponent": 0.0, "network_growth": -50.0}
    nodes = (2, 3, 4)
    plans = Plans.of([Topology.of(num, num * gpus_per_node) for num in nodes], [32.0] * 3)
    law = StepLaw("GPUs per node", 32.0)

    def seconds(hop_s: float) -> np.ndarray:
        return law.communication_s(np.array([*(at | {"hop": np.log(hop_s)}).values()]), plans)

    assert seconds(1e-30) / seconds(1e-30)[0] == pytest.approx(np.array(volumes) / volumes[0])
    waits = [1e-3 * (num * gpus_per_node - 2) for num in nodes]
    assert seconds(1e-3) - seconds(1e-30) == pytest.approx(waits)

"""The largest sizes that fit a memory are found from a few traces, and are the largest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.memory import sizes_that_fit
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.hardware.performance.memory import MARGIN, StepMemory
from workbench.training.probes.capacity import Capacity, largest_fitting, largest_on_lines
from workbench.training.probes.memory_estimate import estimate_memory

MB = 10**6
FIELDS: dict[str, Any] = {
    "model": {"name": "mlp", "hidden_width": 256, "num_layers": 8},
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "plan": {"precision": "fp32", "micro_batch": 2048},
}


@given(
    constant=st.integers(0, 1000),
    per_size=st.integers(1, 50),
    per_square=st.integers(0, 3),
    limit=st.integers(0, 60_000),
    start=st.integers(1, 40),
    most=st.integers(1, 2000),
    known=st.sets(st.integers(1, 2000), max_size=3),
)
def test_the_largest_size_is_found_with_few_traces(
    *,
    constant: int,
    per_size: int,
    per_square: int,
    limit: int,
    start: int,
    most: int,
    known: set[int],
) -> None:
    traced: list[int] = []

    def peak(size: int) -> float:
        return constant + per_size * size + per_square * size**2

    def trace(size: int) -> float:
        assert 1 <= size <= most
        traced.append(size)
        return peak(size)

    largest = largest_fitting(
        trace, limit, start, most, {size: peak(size) for size in known if size <= most}
    )
    assert largest == max((size for size in range(1, most + 1) if peak(size) <= limit), default=0)
    assert len(traced) == len(set(traced))
    assert len(traced) <= (8 if per_square == 0 else 20)


@given(
    st.integers(0, 500),
    st.integers(0, 20),
    st.integers(0, 500),
    st.integers(0, 20),
    st.integers(0, 9000),
)
def test_two_traces_are_enough_where_both_peaks_are_lines(
    compute: int, per_compute: int, update: int, per_update: int, limit: int
) -> None:
    def step(size: int) -> StepMemory:
        return StepMemory(size, 0, 0, 0, compute + per_compute * size, update + per_update * size)

    fitting = [
        size
        for size in range(1, 200)
        if max(step(size).compute_peak_bytes, step(size).update_peak_bytes) <= limit
    ]
    assert largest_on_lines({4: step(4), 8: step(8)}, limit, 199) == max(fitting, default=0)


def fits(found: Capacity, way: Any, **changes: Any) -> bool:
    """Whether an estimate of its own agrees that a size fits."""
    size = found.largest[way] + changes.pop("more", 0)
    fields = dict(FIELDS)
    plan = {"recompute": way, "workers": 1, "micro_batch": 2048}
    if found.size == "depth":
        fields["model"] = {**FIELDS["model"], "num_layers": size}
    else:
        plan["micro_batch"] = size
    [step] = estimate_memory(
        Experiment(**fields), {}, [int(plan["micro_batch"])], plan=PartialPlan.of(**plan)
    ).steps
    peak_bytes = max(step.compute_peak_bytes, step.update_peak_bytes)
    return peak_bytes <= (1.0 - MARGIN) * found.limit_bytes


@pytest.mark.slow
def test_the_largest_sizes_fit_and_larger_ones_do_not() -> None:
    found = sizes_that_fit(Experiment(**FIELDS), [200 * MB])[200 * MB]
    assert [each.size for each in found] == ["depth", "batch"]
    for limit in found:
        assert limit.now == {"depth": 8, "batch": 2048}[limit.size]
        assert limit.largest["torch"] <= limit.largest["none"] < limit.largest["blocks"]
        for way in ("none", "blocks"):
            assert fits(limit, way)
            if limit.largest[way] < limit.most:
                assert not fits(
                    limit, way, more=1 if limit.size == "depth" else limit.largest[way] // 50
                )
        if limit.halfway is not None:
            assert limit.again is not None
            assert 0.0 < limit.again < 1.0

"""The fastest micro batch that fits, held against trying every size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.batch_finder import MIN_GAIN, FastestBatch, find_fastest
from workbench.foundation.events import PlanMeasured

Law = Callable[[int], float]


class Machine:
    """Takes `law(b)` seconds for a step of b samples, and holds steps of at most `memory`
    samples.
    """

    def __init__(self, law: Law, memory: int) -> None:
        self.law, self.memory = law, memory
        self.sizes: list[int] = []

    def measure(self, sizes: Sequence[int]) -> list[PlanMeasured]:
        self.sizes += sizes
        return [self._measure(size) for size in sizes]

    def _measure(self, size: int) -> PlanMeasured:
        if size > self.memory:
            return PlanMeasured(setting="", plan={"micro_batch": size}, fits=False)
        time_s = self.law(size)
        return PlanMeasured(
            setting="", plan={"micro_batch": size}, step_time_s=time_s, samples_per_s=size / time_s
        )

    def best(self, largest: int) -> float:
        """Try everything."""
        return max(
            (size / self.law(size) for size in range(1, min(self.memory, largest) + 1)), default=0.0
        )


def check(machine: Machine, found: FastestBatch, largest: int, allowed_loss: float) -> None:
    best = machine.best(largest)
    if found.best is None:
        assert machine.memory < 1
        return
    assert found.best.fits
    assert found.best.samples_per_s is not None
    assert found.best.samples_per_s * (1 + allowed_loss) >= best * (1 - 1e-9)
    assert len(set(machine.sizes)) == len(machine.sizes), "no size is measured twice"
    assert max(machine.sizes) <= largest
    assert [step.plan["micro_batch"] for step in found.measured] == machine.sizes
    for index, size in enumerate(machine.sizes):
        if size > machine.memory:
            assert all(later < size for later in machine.sizes[index + 1 :]), (
                "nothing larger is tried"
            )


@given(st.floats(0, 1), st.floats(1e-6, 1), st.integers(0, 5000), st.integers(1, 5000))
def test_hardly_anything_is_faster_where_the_law_holds(
    constant: float, per_sample: float, memory: int, largest: int
) -> None:
    machine = Machine(lambda size: constant + per_sample * size, memory)
    fastest = find_fastest(machine.measure, largest=largest)
    # What a stop by the law gives away at most, and what is left between the last two sizes of a
    # refinement.
    check(machine, fastest, largest, 2 * MIN_GAIN / (1 - MIN_GAIN))


@given(
    st.floats(1e-4, 1),
    st.floats(1e-5, 1),
    st.integers(8, 2000),
    st.floats(1.1, 4),
    st.integers(16, 4000),
)
def test_a_size_from_which_on_samples_cost_more_is_not_passed_by_far(
    constant: float, per_sample: float, spill: int, factor: float, memory: int
) -> None:
    """As where a cache is full, or a library takes another algorithm."""

    def law(size: int) -> float:
        return (constant + per_sample * size) * (factor if size > spill else 1.0)

    machine = Machine(law, memory)
    fastest = find_fastest(machine.measure, largest=4096)
    sizes = [size for size in (2**power for power in range(13)) if size <= memory]
    fastest_power = max(size / law(size) for size in sizes)
    check(machine, fastest, 4096, float("inf"))
    assert fastest.best is not None
    assert fastest.best.samples_per_s is not None
    if fastest_power == max(size / law(size) for size in sizes if size <= spill):
        assert fastest.best.samples_per_s * (1 + 2 * MIN_GAIN / (1 - MIN_GAIN)) >= fastest_power


@given(st.integers(1, 3000))
def test_a_cliff_of_memory_is_found_where_every_sample_still_pays(memory: int) -> None:
    machine = Machine(lambda size: 1.0, memory)
    fastest = find_fastest(machine.measure, largest=4096)
    assert fastest.micro_batch is not None
    assert fastest.micro_batch * (1 + MIN_GAIN) >= memory - 1
    assert sum(size > memory for size in machine.sizes) <= 10


def test_the_fastest_is_not_the_largest_where_throughput_has_levelled_off() -> None:
    machine = Machine(lambda size: 0.001 + 0.001 * size, 10**9)
    fastest = find_fastest(machine.measure)
    assert machine.sizes == [1, 2, 4, 8, 16, 32]
    assert fastest.micro_batch == 32
    assert fastest.reason == "a micro batch of 64 would gain 1.5%"  # 1 / 65, by a / (a + 2 c b)


def test_sizes_between_powers_of_two_are_tried_only_where_it_pays() -> None:
    level = Machine(lambda size: 1e-9 + 0.001 * size, 100)
    assert find_fastest(level.measure).micro_batch == 4
    assert level.sizes == [1, 2, 4]
    steep = Machine(lambda size: 1.0 + 0.001 * size, 100)
    assert find_fastest(steep.measure).micro_batch == 100
    assert steep.sizes == [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104, 100]


@pytest.mark.parametrize("smallest", [1, 7])
def test_where_nothing_fits_there_is_no_answer(smallest: int) -> None:
    machine = Machine(lambda size: 1.0, 0)
    fastest = find_fastest(machine.measure, smallest=smallest)
    assert (fastest.best, fastest.micro_batch) == (None, None)
    assert machine.sizes == [smallest]
    assert fastest.reason == f"a micro batch of {smallest} does not fit"

"""Where the time of a step goes."""

from __future__ import annotations

import pytest
import torch

from tests.builders.clock import Clock
from workbench.foundation.events.trials import input_stall
from workbench.hardware.performance.profiler import PARTS, StepProfiler, summarise


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the profiler."""
    clock = Clock()
    monkeypatch.setattr("workbench.hardware.performance.profiler.perf_counter", clock)
    return clock


def spend(profiler: StepProfiler, clock: Clock, part: str, seconds: float) -> None:
    clock.sleep(seconds)
    profiler.mark(part)


def test_a_window_holds_the_mean_of_each_part(clock: Clock) -> None:
    profiler = StepProfiler("cpu")
    for factor in (1, 2, 3):
        profiler.start_step()
        for part, seconds in zip(PARTS, (0.25, 1.0, 2.0, 0.5), strict=True):
            spend(profiler, clock, part, factor * seconds)
    assert profiler.close_window() == {"data": 0.5, "forward": 2.0, "backward": 4.0, "update": 1.0}


def test_micro_batches_add_up_within_a_step(clock: Clock) -> None:
    profiler = StepProfiler("cpu")
    profiler.start_step()
    for _ in range(3):
        spend(profiler, clock, "forward", 0.5)
    assert profiler.close_window()["forward"] == 1.5


def test_what_happens_between_steps_belongs_to_no_part(clock: Clock) -> None:
    profiler = StepProfiler("cpu")
    profiler.start_step()
    profiler.mark("update")
    clock.sleep(5.0)
    profiler.start_step()
    profiler.mark("data")
    assert sum(profiler.close_window().values()) == 0.0


def test_a_window_starts_empty(clock: Clock) -> None:
    profiler = StepProfiler("cpu")
    profiler.start_step()
    spend(profiler, clock, "data", 1.0)
    profiler.close_window()
    assert profiler.close_window() == {}
    profiler.start_step()
    profiler.mark("data")
    assert profiler.close_window()["data"] == 0.0


def test_a_mark_reads_the_clock_once_and_does_nothing_else(clock: Clock) -> None:
    profiler = StepProfiler("cpu")
    for _ in range(10):
        profiler.start_step()
        for part in PARTS:
            profiler.mark(part)
    assert clock.num_readings == 10 * (1 + len(PARTS))


def step(data: float, forward: float, backward: float, update: float) -> dict[str, float]:
    return {"data": data, "forward": forward, "backward": backward, "update": update}


def test_communication_is_what_an_exchange_adds_to_computing() -> None:
    steps = [step(1.0, 2.0, 9.0, 0.5), step(1.0, 2.0, 8.0, 0.5), step(1.0, 2.0, 30.0, 0.5)]
    alone = [step(1.0, 2.0, 4.0, 0.0), step(1.0, 2.5, 5.0, 0.0), step(1.0, 2.0, 3.0, 0.0)]
    times = summarise(steps, alone)
    assert times.parts_s == {
        "data": 1.0,
        "forward": 2.0,
        "backward": 4.0,
        "communication": 5.0,
        "update": 0.5,
    }
    assert list(times.parts_s) == ["data", "forward", "backward", "communication", "update"]
    assert (times.num_steps, times.step_time_s) == (3, 12.5)
    assert sum(times.parts_s.values()) == times.step_time_s
    assert times.spread_s == pytest.approx(11.0)  # between 12.0 and 23.0
    assert times.input_stall == pytest.approx(1.0 / 12.5)


def test_an_exchange_that_costs_nothing_leaves_the_parts_as_they_are() -> None:
    steps = [step(0.0, 2.0, 4.0, 1.0)]
    times = summarise(steps, [step(0.0, 2.5, 4.0, 0.0)])
    assert times.parts_s == {**steps[0], "communication": 0.0}


def test_nobody_to_exchange_with_is_not_the_same_as_not_knowing() -> None:
    steps = [step(0.5, 2.0, 4.0, 1.0)]
    assert summarise(steps, []).parts_s["communication"] == 0.0
    assert "communication" not in summarise(steps).parts_s
    assert summarise(steps).input_stall == pytest.approx(0.5 / 7.5)
    assert input_stall({}) == 0.0


def test_windows_of_one_step_hold_the_times_of_each_step(clock: Clock) -> None:
    profiler, steps = StepProfiler("cpu", gpu_sampling_interval=1), []
    for seconds in (2.0, 0.5):
        profiler.start_step()
        spend(profiler, clock, "forward", seconds)
        steps.append(profiler.close_window())
    assert [step["forward"] for step in steps] == [2.0, 0.5]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_work_on_a_gpu_is_timed_on_its_stream() -> None:
    profiler = StepProfiler("cuda")
    matrix = torch.randn(4096, 4096, device="cuda")
    for _ in range(21):
        profiler.start_step()
        profiler.mark("data")
        for _ in range(10):
            matrix = torch.tanh(matrix @ matrix)
        profiler.mark("forward")
        profiler.mark("backward")
        profiler.mark("update")
    parts_s = profiler.close_window()
    assert parts_s["forward"] > 10 * parts_s["update"]
    assert parts_s["forward"] > 1e-4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_window_of_one_step_waits_for_the_gpu() -> None:
    profiler, steps = StepProfiler("cuda", gpu_sampling_interval=1), []
    matrix = torch.randn(4096, 4096, device="cuda")
    for _ in range(5):
        profiler.start_step()
        profiler.mark("data")
        for _ in range(10):
            matrix = torch.tanh(matrix @ matrix)
        profiler.mark("forward")
        profiler.mark("backward")
        profiler.mark("update")
        steps.append(profiler.close_window())
        assert torch.cuda.current_stream().query(), "nothing is left to do"
    assert all(each["forward"] > 1e-4 for each in steps)

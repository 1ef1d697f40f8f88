"""Where the time of a step goes."""

from __future__ import annotations

import time

import pytest
import torch

from workbench.performance.profiler import PARTS, StepProfiler


def spend(profiler: StepProfiler, part: str, seconds: float) -> None:
    time.sleep(seconds)
    profiler.mark(part)


def test_a_window_holds_the_mean_of_each_part() -> None:
    profiler = StepProfiler("cpu")
    for _ in range(4):
        profiler.start_step()
        for part, seconds in zip(PARTS, (0.002, 0.010, 0.020, 0.005), strict=True):
            spend(profiler, part, seconds)
    parts_s = profiler.close_window()
    assert list(parts_s) == list(PARTS)
    # A busy machine sleeps longer than asked, never shorter.
    assert parts_s["data"] >= 0.002
    assert parts_s["backward"] > parts_s["forward"] >= 0.010
    assert parts_s["forward"] > parts_s["update"] >= 0.005


def test_micro_batches_add_up_within_a_step() -> None:
    profiler = StepProfiler("cpu")
    profiler.start_step()
    for _ in range(3):
        spend(profiler, "forward", 0.005)
    assert profiler.close_window()["forward"] >= 0.015


def test_what_happens_between_steps_belongs_to_no_part() -> None:
    profiler = StepProfiler("cpu")
    profiler.start_step()
    profiler.mark("update")
    time.sleep(0.05)
    profiler.start_step()
    profiler.mark("data")
    assert sum(profiler.close_window().values()) < 0.02


def test_a_window_starts_empty() -> None:
    profiler = StepProfiler("cpu")
    profiler.start_step()
    spend(profiler, "data", 0.01)
    profiler.close_window()
    assert profiler.close_window() == {}
    profiler.start_step()
    profiler.mark("data")
    assert profiler.close_window()["data"] < 0.01


def test_a_mark_costs_next_to_nothing() -> None:
    profiler = StepProfiler("cpu")
    started_s = time.process_time()
    for _ in range(2000):
        profiler.start_step()
        for part in PARTS:
            profiler.mark(part)
    assert (time.process_time() - started_s) / 2000 < 50e-6


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

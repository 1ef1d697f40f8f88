"""Counters of energy, as the kernel shows them, and what was used between two looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.resources import (
    EnergyCounter,
    energy_between_j,
    gpu_counter,
    processor_counters,
)


def show(folder: Path, zone: str, used_uj: int, most_uj: int = 262_143_328_850) -> None:
    """Write a zone as the kernel does."""
    place = folder / zone
    place.mkdir(exist_ok=True)
    (place / "energy_uj").write_text(f"{used_uj}\n")
    (place / "max_energy_range_uj").write_text(f"{most_uj}\n")


def test_packages_are_read_and_their_parts_are_not_counted_twice(tmp_path: Path) -> None:
    show(tmp_path, "intel-rapl:0", 5_000_000)
    show(tmp_path, "intel-rapl:0:0", 3_000_000)
    show(tmp_path, "intel-rapl:1", 7_000_000)
    counters = processor_counters(tmp_path, "node")
    assert set(counters) == {"node/intel-rapl:0", "node/intel-rapl:1"}
    assert counters["node/intel-rapl:0"].energy_j == pytest.approx(5.0)


def test_counters_that_may_not_be_read_are_left_out(tmp_path: Path) -> None:
    show(tmp_path, "intel-rapl:0", 5_000_000)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert processor_counters(tmp_path) == {}
    assert processor_counters(tmp_path / "none") == {}


@given(st.floats(0.0, 262_143.0), st.floats(0.0, 262_143.0))
def test_a_counter_that_began_again_tells_the_same_as_one_that_did_not(
    start_j: float, used_j: float
) -> None:
    wraps_at_j = 262_143.0
    before = {"package": EnergyCounter(start_j, wraps_at_j)}
    after = {"package": EnergyCounter((start_j + used_j) % wraps_at_j, wraps_at_j)}
    found_j = energy_between_j(before, after)
    assert found_j is not None
    assert min(abs(found_j - used_j), abs(found_j + wraps_at_j - used_j)) < 1e-3


def test_devices_add_up_and_one_that_is_missing_makes_the_sum_unknown() -> None:
    before = {"a": EnergyCounter(1.0), "b": EnergyCounter(10.0)}
    after = {"a": EnergyCounter(3.0), "b": EnergyCounter(15.0)}
    assert energy_between_j(before, after) == pytest.approx(7.0)
    assert energy_between_j(before, {"a": EnergyCounter(3.0)}) is None
    assert energy_between_j({}, {}) is None


def test_a_gpu_that_is_not_there_has_no_counter() -> None:
    assert gpu_counter("GPU-00000000-0000-0000-0000-000000000000") == {}

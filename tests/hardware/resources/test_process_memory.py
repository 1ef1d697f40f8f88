"""What this process holds, and what the kernel says about processes that it ended."""

from __future__ import annotations

from pathlib import Path

from workbench.hardware.resources import num_memory_kills, resident_bytes


def test_memory_that_is_held_is_counted() -> None:
    before = resident_bytes()
    held = bytearray(b"1") * (64 * 2**20)
    assert 60 * 2**20 < resident_bytes() - before < 100 * 2**20
    del held


def test_the_kernels_count_is_read_where_there_is_one(tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    assert num_memory_kills(counters) == 0
    counters.write_text("nr_free_pages 12\noom_kill 3\noom_kill_other 9\n")
    assert num_memory_kills(counters) == 3
    assert num_memory_kills() >= 0

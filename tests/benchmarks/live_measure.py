"""What both sides of the benchmark of the live view are measured with."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process of the benchmark and wait until it is ready."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def last_line(process: subprocess.Popen[str]) -> Any:
    """Wait for a process and return what it printed at its end."""
    said, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(said.strip().splitlines()[-1])


def note(folder: Path, written: list[tuple[int, float]]) -> None:
    """Leave for whoever watches what a rival's writer has written, and when."""
    part = folder / "written.part"
    part.write_text(json.dumps(written))
    part.replace(folder / "written.json")


def lateness(
    written: Sequence[tuple[int, float]], drawn: Sequence[tuple[int, float]]
) -> dict[str, float]:
    """Return the median and the 95th percentile of how late points were drawn.

    Args:
        written: Numbers that grow, each with when it was about to be written.
        drawn: The greatest number in each drawing, with when it was drawn.
    """
    late_ms = sorted(1000 * (_first_at(drawn, number) - at_s) for number, at_s in written)
    if not late_ms:
        return {"median_ms": math.inf, "p95_ms": math.inf}
    return {
        "median_ms": statistics.median(late_ms),
        "p95_ms": late_ms[min(len(late_ms) - 1, int(0.95 * len(late_ms)))],
    }


def _first_at(drawn: Sequence[tuple[int, float]], number: int) -> float:
    return min((at_s for drawn_number, at_s in drawn if drawn_number >= number), default=math.inf)

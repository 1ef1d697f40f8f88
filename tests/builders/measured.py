"""The folder of public measurements that tests and benchmarks compare with.

No part of the repository.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path


def find_measured(part: str) -> Path | None:
    """Return a folder of measurements, or None where it is absent.

    Args:
        part: Its path below the folder that WORKBENCH_MEASURED names, or `../shared/measured`.
    """
    root = os.environ.get("WORKBENCH_MEASURED") or Path(__file__).parents[3] / "shared" / "measured"
    folder = Path(root) / part
    return folder if folder.is_dir() else None


@dataclass(frozen=True)
class PlacedStep:
    """One row of `placements.csv`."""

    gpus_per_node: tuple[int, ...]
    micro_batch: int
    step_time_s: float
    sync_time_s: float


def read_placements(folder: Path) -> list[PlacedStep]:
    """Read the measured steps of one application."""
    with (folder / "placements.csv").open(newline="") as file:
        return [
            PlacedStep(
                tuple(map(int, row["placement"])),
                int(row["local_bsz"]),
                float(row["step_time"]),
                float(row["sync_time"]),
            )
            for row in csv.DictReader(file)
        ]

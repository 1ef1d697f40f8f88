"""A library that answers as NVIDIA's would, built by the tests.

Cards, faults and all, on any machine.

Programs find it by `LD_LIBRARY_PATH`, so whoever is to see it is started as a process of its own
with `environment`. What it answers is written with `play`, at any time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
GIB = 2**30
H100: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "memory_bytes": 80 * GIB,
    "memory_used_bytes": 60 * GIB,
    "busy_percent": 97,
    "power_mw": 650_000,
    "energy_mj": 1_000_000,
    "temperature_c": 64,
    "clock_mhz": 1755,
    "memory_clock_mhz": 2619,
    "slowed_bits": 0,
    "ecc_corrected": 3,
    "ecc_uncorrected": 0,
    "pcie_sent_bytes": 0,
    "pcie_received_bytes": 0,
    "nvlink_sent_kib": 0,
    "nvlink_received_kib": 0,
}
"""A card that tells everything."""
T4: dict[str, Any] = {
    "name": "Tesla T4",
    "memory_bytes": 16 * GIB,
    "memory_used_bytes": GIB,
    "busy_percent": 40,
    "power_mw": 60_000,
    "temperature_c": 71,
    "clock_mhz": 1590,
    "memory_clock_mhz": 5000,
    "slowed_bits": 0x24,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "pcie_sent_kib_per_s": 2048,
    "pcie_received_kib_per_s": 4096,
}
"""One without NVLinks that counts no energy and no bytes."""
K20: dict[str, Any] = {
    "name": "Tesla K20m",
    "memory_bytes": 5 * GIB,
    "temperature_c": 38,
    "listens": 0,
}
"""An old one that tells next to nothing."""


class FakeNvml:
    """The library, and the file that says what it answers."""

    def __init__(self, folder: Path) -> None:
        """Build it.

        Args:
            folder: Where it lies from now on.
        """
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler (apt-get install gcc libc6-dev)")
        library = folder / "libnvidia-ml.so.1"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, SOURCE], check=True
        )
        self.folder = folder
        self.state = folder / "state"
        self.play()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to see it."""
        paths = [str(self.folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {"LD_LIBRARY_PATH": ":".join(paths), "FAKE_NVML": str(self.state)}

    def play(self, *cards: Mapping[str, Any], **more: Any) -> None:
        """Have it answer so from now on.

        Args:
            *cards: What each card tells, as in the library's source; one that has no `uuid` gets
                one.
            **more: What the library tells of itself, such as `init=9`: no driver is loaded.
        """
        lines = [f"count {len(cards)}", *(f"{name} {value}" for name, value in more.items())]
        for index, card in enumerate(cards):
            told = {"uuid": f"GPU-0000000{index}-fake", **card}
            lines += [f"{index}.{name} {value}" for name, value in told.items()]
        unfinished = self.state.with_suffix(".unfinished")
        unfinished.write_text("\n".join(lines) + "\n")
        unfinished.replace(self.state)

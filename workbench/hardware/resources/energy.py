"""Read the energy that devices have used from their own counters.

NVIDIA's GPUs count from the time at which their driver was loaded. The counters of Intel's and
AMD's processors are files of the kernel, which often only root may read. A counter covers all users
of the device.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.hardware.resources.nvml import gpu_energy_j

_POWERCAP = Path("/sys/class/powercap")
_PACKAGES = "intel-rapl:[0-9]*"
"""Processor packages, including AMD's.

Subzones have a second number. Their energy is included in their package.
"""


@dataclass(frozen=True)
class EnergyCounter:
    """The energy counter of one device.

    Attributes:
        energy_j: Joules since an arbitrary time in the past.
        wraps_at_j: The value at which it wraps to 0, or None if it never does.
    """

    energy_j: float
    wraps_at_j: float | None = None


def processor_counters(
    folder: Path = _POWERCAP, host: str | None = None
) -> dict[str, EnergyCounter]:
    """Read the readable counters of this machine's processors, by name.

    Args:
        folder: The kernel's folder of counters.
        host: Name of the machine.
    """
    counters: dict[str, EnergyCounter] = {}
    for zone in sorted(folder.glob(_PACKAGES)):
        try:
            if ":" in zone.name.partition(":")[2]:
                continue
            used, most = (
                (zone / name).read_text() for name in ("energy_uj", "max_energy_range_uj")
            )
        except OSError:  # only root may read them, because they leak secrets
            continue
        counters[f"{host or platform.node()}/{zone.name}"] = EnergyCounter(
            int(used) * 1e-6, int(most) * 1e-6
        )
    return counters


def gpu_counter(uuid: str) -> dict[str, EnergyCounter]:
    """Read the counter of one GPU of this machine, by its UUID, if it has one."""
    energy_j = gpu_energy_j(uuid)
    return {} if energy_j is None else {uuid: EnergyCounter(energy_j)}


def energy_between_j(
    before: Mapping[str, EnergyCounter], after: Mapping[str, EnergyCounter]
) -> float | None:
    """Return the joules between two readings, or None if a device was not read twice.

    Args:
        before: The first reading.
        after: The second reading, less than one wrap later.
    """
    if not before or before.keys() != after.keys():
        return None
    used_j = 0.0
    for name, first in before.items():
        change_j = after[name].energy_j - first.energy_j
        used_j += change_j + (first.wraps_at_j or 0.0) if change_j < 0 else change_j
    return used_j

"""What hardware there is and what it is doing: CPUs, memory, GPUs, and the nodes of a cluster.

NVIDIA's management library has one door here, `nvml`; a machine without it has no GPUs and a reason why.
Who gets which hardware is decided elsewhere. Importing this loads neither torch nor ray.
"""

from __future__ import annotations

from workbench.resources.cluster import (
    ClusterInventory,
    NodeInventory,
    cluster_inventory,
    likely_cluster,
    loaded_ray,
)
from workbench.resources.energy import EnergyCounter, energy_between_j, gpu_counter, processor_counters
from workbench.resources.inventory import Inventory, inventory
from workbench.resources.memory import num_memory_kills, resident_bytes
from workbench.resources.nvml import Gpu, GpuUsage
from workbench.resources.usage import Usage, UsageMeter

__all__ = [
    "ClusterInventory",
    "EnergyCounter",
    "Gpu",
    "GpuUsage",
    "Inventory",
    "NodeInventory",
    "Usage",
    "UsageMeter",
    "cluster_inventory",
    "energy_between_j",
    "gpu_counter",
    "inventory",
    "likely_cluster",
    "loaded_ray",
    "num_memory_kills",
    "processor_counters",
    "resident_bytes",
]

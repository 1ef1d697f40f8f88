"""What hardware there is and what it is doing: CPUs, memory, disks, GPUs, and the nodes of a cluster.

NVIDIA's management library has one door here, `nvml`; a machine without it has no GPUs and a reason why.
Looks are attributed to workers and trials, and thinned with age; who looks when is decided elsewhere.
Who gets which hardware is decided elsewhere. Importing this loads neither torch nor ray.
"""

from __future__ import annotations

from workbench.resources.attribution import Tenure, TrialEnergy
from workbench.resources.cluster import (
    ClusterInventory,
    NodeInventory,
    cluster_inventory,
    likely_cluster,
    loaded_ray,
)
from workbench.resources.energy import EnergyCounter, energy_between_j, gpu_counter, processor_counters
from workbench.resources.gpu_meter import GpuMeter, GpuUsage
from workbench.resources.inventory import Inventory, inventory
from workbench.resources.memory import num_memory_kills, resident_bytes
from workbench.resources.nvml import Gpu
from workbench.resources.sampler import Employed, NodeSample, Sampler, WorkerUsage
from workbench.resources.spans import Span

__all__ = [
    "ClusterInventory",
    "Employed",
    "EnergyCounter",
    "Gpu",
    "GpuMeter",
    "GpuUsage",
    "Inventory",
    "NodeInventory",
    "NodeSample",
    "Sampler",
    "Span",
    "Tenure",
    "TrialEnergy",
    "WorkerUsage",
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

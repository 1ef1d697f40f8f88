"""The hardware and its usage: CPUs, memory, disks, GPUs, and the nodes of a cluster.

`nvml` is the only module that uses NVIDIA's management library. Without the library, a machine has
no GPUs and a reason why. Samples are attributed to workers and trials, and merged as they age.
Importing this package loads neither torch nor ray.
"""

from __future__ import annotations

from workbench.hardware.resources.attribution import Assignment, TrialEnergy
from workbench.hardware.resources.gpu_meter import GpuMeter, GpuUsage
from workbench.hardware.resources.inventory import (
    ClusterInventory,
    Inventory,
    NodeInventory,
    ProcessorTimes,
    cluster_inventory,
    inventory,
    likely_cluster,
    loaded_ray,
    num_memory_kills,
    num_usable_cpus,
    processor_times,
    resident_bytes,
)
from workbench.hardware.resources.nvml import Gpu
from workbench.hardware.resources.rollups import Rollup
from workbench.hardware.resources.usage_sampler import (
    EnergyCounter,
    NodeSample,
    Sampler,
    WatchedWorker,
    WorkerUsage,
    energy_between_j,
    gpu_counter,
    processor_counters,
)

__all__ = [
    "Assignment",
    "ClusterInventory",
    "EnergyCounter",
    "Gpu",
    "GpuMeter",
    "GpuUsage",
    "Inventory",
    "NodeInventory",
    "NodeSample",
    "ProcessorTimes",
    "Rollup",
    "Sampler",
    "TrialEnergy",
    "WatchedWorker",
    "WorkerUsage",
    "cluster_inventory",
    "energy_between_j",
    "gpu_counter",
    "inventory",
    "likely_cluster",
    "loaded_ray",
    "num_memory_kills",
    "num_usable_cpus",
    "processor_counters",
    "processor_times",
    "resident_bytes",
]

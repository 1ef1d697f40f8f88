"""List the resources that this process may use, and those of a cluster by node.

Container limits and CPU affinity count. This module also says how much memory the process holds,
how many processes were killed for it, and whether there is a C++ compiler, which torch.compile
needs.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from workbench.foundation.errors import ExperimentError, ResourcesError
from workbench.hardware.resources.nvml import Gpu, GpusState, list_gpus

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_VIRTUAL_MEMORY = Path("/proc/vmstat")
_SCHEDULED = Path("/proc/thread-self/schedstat")
# Shorter computations may fall between the turns of other processes.
_LEAST_COMPUTED_S = 0.3
CONTEXT_BYTES = 2**30
"""GPU memory of the driver and its libraries per process, which allocators do not count."""
# Ray derives the type from the driver's name in the same way, so measurements have the same names.
_GPU_TYPE = re.compile(r"\w+\s+((?:[A-Z]+\s+)*[A-Z0-9]*\d[A-Z0-9]*)")


@dataclass(frozen=True)
class Inventory:
    """The hardware of one machine that this process may use.

    Attributes:
        host: Name of the machine.
        num_cpus: CPUs that this process may keep busy, at least 1.
        memory_bytes: Memory that this process may fill.
        gpus: GPUs that the driver knows.
        no_gpus_because: Why there are no GPUs, or not all of them.
        gpus_state: The same as a fixed value for programs.
    """

    host: str
    num_cpus: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    no_gpus_because: str | None = None
    gpus_state: GpusState = "ok"


def inventory() -> Inventory:
    """Return the inventory of this machine.

    Returns:
        The inventory. A machine without an NVIDIA driver has no GPUs and a reason why, which is not
        an error.
    """
    folders = cgroup_folders(_CGROUPS, _MEMBERSHIP)
    gpus = list_gpus()
    return Inventory(
        host=platform.node(),
        num_cpus=usable_cpus(_affinity(), folders),
        memory_bytes=usable_memory_bytes(psutil.virtual_memory().total, folders),
        gpus=gpus.gpus,
        no_gpus_because=gpus.reason,
        gpus_state=gpus.state,
    )


@dataclass(frozen=True)
class ProcessorTimes:
    """How long a thread has computed, and how long it was ready to but had no processor.

    Attributes:
        computed_s: Seconds of a processor.
        waited_s: Seconds without one. Waits for disks and locks do not count.
    """

    computed_s: float
    waited_s: float

    def share_until(self, later: ProcessorTimes) -> float | None:
        """Return the part of a processor that the thread got when it needed one, from 0 to 1.

        None if it has computed for too short a time since then to tell.

        Args:
            later: Its times at the end.
        """
        computed_s = later.computed_s - self.computed_s
        waited_s = later.waited_s - self.waited_s
        if computed_s < _LEAST_COMPUTED_S:
            return None
        return computed_s / (computed_s + waited_s)


def processor_times() -> ProcessorTimes:
    """Return the times of the current thread. They are 0 where the system has none: Linux has."""
    with contextlib.suppress(OSError, ValueError):
        computed_ns, waited_ns, *_ = _SCHEDULED.read_text(encoding="ascii").split()
        return ProcessorTimes(int(computed_ns) / 1e9, int(waited_ns) / 1e9)
    return ProcessorTimes(0.0, 0.0)


def num_usable_cpus() -> int:
    """Return how many CPUs this process may keep busy, at least 1."""
    return usable_cpus(_affinity(), cgroup_folders(_CGROUPS, _MEMBERSHIP))


def cgroup_folders(root: Path, membership: Path) -> list[Path]:
    """Return the folders whose limits apply to this process, from its own up to the root.

    Args:
        root: The mount point of the control groups.
        membership: The file that lists the groups of this process.

    Returns:
        The existing folders of version 2, and of the cpu and memory controllers of version 1.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    mounts = {"": root, "cpu": root / "cpu", "memory": root / "memory"}
    folders: list[Path] = []
    for line in lines:
        _, _, group = line.partition(":")  # such as 0::/user.slice or 4:cpu,cpuacct:/docker/1
        controllers, _, path = group.partition(":")
        for controller in controllers.split(","):
            if controller in mounts:
                own_folder = mounts[controller] / path.lstrip("/")
                steps = len(own_folder.relative_to(mounts[controller]).parts)
                folders += [own_folder, *list(own_folder.parents)[:steps]]
    # Inside a container, the path is often a path of the host, while the mount is already the
    # container's group.
    folders += mounts.values()
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def usable_cpus(affinity: int, folders: list[Path]) -> int:
    """Return how many CPUs this process may keep busy.

    Args:
        affinity: CPUs that it may run on.
        folders: Its control groups.

    Returns:
        The tightest limit, rounded up, and at least 1.
    """
    limits = [float(affinity)]
    for folder in folders:
        # Version 2 has both numbers in one file, version 1 in two. "max" means no limit.
        quota, period = _words(folder / "cpu.max", 2) or (
            *(_words(folder / "cpu.cfs_quota_us", 1) or ("max",)),
            *(_words(folder / "cpu.cfs_period_us", 1) or ("100000",)),
        )
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) / int(period))
    return max(1, math.ceil(min(limits)))


def usable_memory_bytes(installed_bytes: int, folders: list[Path]) -> int:
    """Return how much memory this process may fill.

    Args:
        installed_bytes: Memory of the machine.
        folders: Its control groups.
    """
    limits = [installed_bytes]
    for folder in folders:
        for name in ("memory.max", "memory.limit_in_bytes"):
            fields = _words(folder / name, 1)
            if fields and fields[0].isdigit():
                limits.append(int(fields[0]))
    return min(limits)


def stay_near(gpus: Sequence[Gpu], num_threads: int) -> tuple[int, ...]:
    """Keep all threads of this process on the CPUs near some GPUs, and return these CPUs.

    Processes that it starts later stay there too. Nothing changes if the CPUs are unknown or too
    few, or if the system cannot keep threads on CPUs.

    Args:
        gpus: The GPUs.
        num_threads: How many threads compute at once.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ()
    near = {cpu for gpu in gpus for cpu in gpu.cpus}
    near &= os.sched_getaffinity(0)
    if len(near) < max(1, num_threads):
        return ()
    for thread in psutil.Process().threads():
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(thread.id, near)
    return tuple(sorted(near))


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _words(path: Path, count: int) -> tuple[str, ...] | None:
    try:
        fields = tuple(path.read_text().split())
    except OSError:
        return None
    return fields if len(fields) == count else None


def check_compiler(field: str) -> None:
    """Raise an error if this machine has no C++ compiler.

    Args:
        field: The dotted field that requests compiling.

    Raises:
        ExperimentError: If there is none.
    """
    usual = "clang++" if sys.platform == "darwin" else "g++"
    compiler = os.environ.get("CXX", usual)
    if shutil.which(compiler) is None:
        raise ExperimentError(
            f"torch.compile needs a C++ compiler, but there is no {compiler} here",
            field=field,
            allowed="none",
            next_step=("Install one (on Debian: apt-get install g++), or set CXX to another one."),
        )


def resident_bytes() -> int:
    """Return the host memory that this process holds."""
    return _this_process(os.getpid()).memory_info().rss


@functools.lru_cache(maxsize=1)
def _this_process(pid: int) -> psutil.Process:
    return psutil.Process(pid)  # creating it takes longer than reading it


def num_memory_kills(counters: Path = _VIRTUAL_MEMORY) -> int:
    """Return how many processes Linux has killed since its start because memory ran out.

    Args:
        counters: The kernel's file of memory counters.

    Returns:
        The number, or 0 if the system does not count them.
    """
    try:
        lines = counters.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def allowed_bytes(total_bytes: float, share: float) -> float:
    """Return how much GPU memory one process may use.

    If several processes share the GPU, each also has a context of the driver.

    Args:
        total_bytes: Memory of the GPU.
        share: Its share of the GPU. 1 and above mean all of it.
    """
    if share >= 1.0:
        return total_bytes
    return max(share * total_bytes - CONTEXT_BYTES, 0.5 * share * total_bytes)


@dataclass(frozen=True)
class NodeInventory:
    """One node of the cluster.

    Attributes:
        node_id: Ray's name for it.
        host: Its host name.
        num_cpus: CPUs that Ray may lease there.
        num_gpus: GPUs that Ray may lease there.
        memory_bytes: Memory that Ray may lease there.
        gpu_type: Ray's name for the GPUs, if it has one.
    """

    node_id: str
    host: str
    num_cpus: float
    num_gpus: float
    memory_bytes: int
    gpu_type: str | None = None


@dataclass(frozen=True)
class ClusterInventory:
    """All nodes that are alive."""

    nodes: tuple[NodeInventory, ...]

    @property
    def num_cpus(self) -> float:
        """CPUs of all nodes."""
        return sum(node.num_cpus for node in self.nodes)

    @property
    def num_gpus(self) -> float:
        """GPUs of all nodes."""
        return sum(node.num_gpus for node in self.nodes)


def cluster_inventory() -> ClusterInventory:
    """Return the inventory of the cluster that this process is connected to.

    Raises:
        ResourcesError: If it is not connected to a cluster.
    """
    import ray

    if not ray.is_initialized():
        raise ResourcesError(
            "this process is not connected to a cluster",
            next_step="Connect to one, or start a local one.",
        )
    return read_nodes(ray.nodes())


def loaded_ray() -> Any:
    """Return Ray if this process has loaded it, or None. The import would take long."""
    if "ray" not in sys.modules:
        return None
    import ray  # blocks while another thread is importing it

    return ray


def likely_cluster() -> ClusterInventory:
    """Return the connected cluster, or the one that this machine alone would form."""
    ray = loaded_ray()
    if ray is not None and ray.is_initialized():
        return cluster_inventory()
    here = inventory()
    named = _GPU_TYPE.match(here.gpus[0].name) if here.gpus else None
    node = NodeInventory(
        node_id=here.host,
        host=here.host,
        num_cpus=float(here.num_cpus),
        num_gpus=float(len(here.gpus)),
        memory_bytes=here.memory_bytes,
        gpu_type=named.group(1).replace(" ", "-") if named else None,
    )
    return ClusterInventory((node,))


def read_nodes(nodes: Sequence[Mapping[str, Any]]) -> ClusterInventory:
    """Convert the result of `ray.nodes()` to an inventory of the live nodes."""
    alive = [node for node in nodes if node.get("Alive")]
    return ClusterInventory(tuple(_read_node(node) for node in alive))


def _read_node(node: Mapping[str, Any]) -> NodeInventory:
    resources: Mapping[str, float] = node.get("Resources", {})
    prefix = "accelerator_type:"
    types = [name.removeprefix(prefix) for name in resources if name.startswith(prefix)]
    return NodeInventory(
        node_id=str(node["NodeID"]),
        host=str(node.get("NodeManagerHostname") or node.get("NodeManagerAddress", "")),
        num_cpus=float(resources.get("CPU", 0.0)),
        num_gpus=float(resources.get("GPU", 0.0)),
        memory_bytes=int(resources.get("memory", 0)),
        gpu_type=types[0] if types else None,
    )

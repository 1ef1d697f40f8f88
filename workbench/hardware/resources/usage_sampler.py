"""Sample the usage of this machine: processors, memory, disk, network, GPUs and workers.

A sample is cheap enough to be taken every second or two during a training. Expensive work, such as
finding the child processes of a worker, is done less often. Callers decide what happens to samples.

Energy comes from the counters of the devices. NVIDIA's GPUs count from the time at which their
driver was loaded. The counters of Intel's and AMD's processors are files of the kernel, which often
only root may read. A counter covers all users of the device.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import psutil

from workbench.foundation.events import steady_unix_s
from workbench.hardware.resources.gpu_meter import GpuMeter, GpuUsage
from workbench.hardware.resources.inventory import Inventory, inventory
from workbench.hardware.resources.nvml import gpu_energy_j

NodeState = Literal["ok", "silent", "gone"]
"""Whether a node responds, has been silent for a while, or is no longer in the cluster."""
FIND_CHILDREN_S = 10.0
FIND_GPUS_S = 60.0
_POWERCAP = Path("/sys/class/powercap")
_PACKAGES = "intel-rapl:[0-9]*"
"""Processor packages, including AMD's.

Subzones have a second number. Their energy is included in their package.
"""


@dataclass(frozen=True)
class WatchedWorker:
    """A worker and the trial that it serves.

    Attributes:
        pid: Its process.
        trial: The trial.
        rank: Its number in the trial.
        gpus: The GPUs that it holds, by UUID or by number in the order of the PCI bus.
    """

    pid: int
    trial: int
    rank: int = 0
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerUsage:
    """The resource usage of a worker and its child processes.

    Attributes:
        pid: Its process.
        trial: The last trial that it served.
        rank: Its number in the trial.
        cpus: Processors that it kept busy since the last sample.
        memory_bytes: Resident memory. Shared pages count for each process.
        gpus: UUIDs of the GPUs that it holds.
        gpu_memory_bytes: GPU memory that it holds, or None if the driver does not report it.
        cpu_energy_j: Its share of the processors' energy since the last sample, by its share of
            their time.
    """

    pid: int
    trial: int
    rank: int
    cpus: float | None
    memory_bytes: int
    gpus: tuple[str, ...] = ()
    gpu_memory_bytes: int | None = None
    cpu_energy_j: float | None = None


@dataclass(frozen=True)
class NodeSample:
    """A sample of a machine, or the mean of several samples. Unknown values are None.

    Attributes:
        machine: Its inventory.
        time_unix_s: When the sample was taken, by the clock of the process.
        state: Whether it responds.
        elapsed_s: Seconds since the previous sample, or 0 for the first.
        cpu_utilisation: Share of its processors that was busy since the last sample, from 0 to 1.
        memory_used_bytes: Memory in use.
        disk_used_bytes: Used space on the disk of its root folder.
        disk_bytes: The size of that disk.
        disk_read_bytes_per_s: Bytes read from all its disks.
        disk_written_bytes_per_s: Bytes written to them.
        network_sent_bytes_per_s: Bytes sent, except over loopback.
        network_received_bytes_per_s: Bytes received, except over loopback.
        cpu_energy_j: Energy that its processors have used since the last sample.
        gpus: One entry per GPU, in the order of the machine.
        workers: The watched workers.
    """

    machine: Inventory
    time_unix_s: float
    state: NodeState = "ok"
    elapsed_s: float = 0.0
    cpu_utilisation: float | None = None
    memory_used_bytes: int | None = None
    disk_used_bytes: int | None = None
    disk_bytes: int | None = None
    disk_read_bytes_per_s: float | None = None
    disk_written_bytes_per_s: float | None = None
    network_sent_bytes_per_s: float | None = None
    network_received_bytes_per_s: float | None = None
    cpu_energy_j: float | None = None
    gpus: tuple[GpuUsage, ...] = ()
    workers: tuple[WorkerUsage, ...] = ()


@dataclass(frozen=True)
class _Counts:
    """The counters of the machine at one sample. Rates are computed from their increase."""

    time_s: float
    busy_s: float
    total_s: float
    rising: tuple[float | None, ...]
    energy: dict[str, EnergyCounter]


@dataclass
class _ProcessTree:
    """A worker with its child processes, and the processor time that each of them has used."""

    processes: dict[int, psutil.Process]
    used_s: dict[int, float] = field(default_factory=dict)
    found_s: float = 0.0
    is_new: bool = True


class Sampler:
    """Samples this machine repeatedly. Rates refer to the time since the previous sample."""

    def __init__(self) -> None:
        """Take the inventory of the machine."""
        self._machine = inventory()
        self._found_s = time.monotonic()
        self._gpus = GpuMeter(self._machine.gpus)
        self._before: _Counts | None = None
        self._process_trees: dict[int, _ProcessTree] = {}

    def sample(self, employed: Sequence[WatchedWorker] = ()) -> NodeSample:
        """Return a sample of this machine.

        Args:
            employed: The workers to include. Workers that have ended are skipped.
        """
        self._find_gpus()
        before, now = self._before, _count()
        self._before = now
        elapsed_s = 0.0 if before is None else now.time_s - before.time_s
        busy_share, rates, energy_j, busy_s = None, (None,) * len(now.rising), None, 0.0
        if before is not None and elapsed_s > 0:
            energy_j = energy_between_j(before.energy, now.energy)
            busy_s = now.busy_s - before.busy_s
            rates = tuple(
                None if old is None or new is None or new < old else (new - old) / elapsed_s
                for old, new in zip(before.rising, now.rising, strict=True)
            )
            if now.total_s > before.total_s:
                busy_share = busy_s / (now.total_s - before.total_s)
        memory = psutil.virtual_memory()
        gpus = self._gpus.read()
        workers = [
            _with_energy(worker, energy_j, busy_s, elapsed_s)
            for worker in self._measure_workers(employed, gpus, elapsed_s)
        ]
        disk = None
        with contextlib.suppress(OSError):
            disk = psutil.disk_usage("/")
        return NodeSample(
            machine=self._machine,
            time_unix_s=steady_unix_s(),
            elapsed_s=elapsed_s,
            cpu_utilisation=None if busy_share is None else min(1.0, max(0.0, busy_share)),
            memory_used_bytes=int(memory.total - memory.available),
            disk_used_bytes=None if disk is None else disk.used,
            disk_bytes=None if disk is None else disk.total,
            disk_read_bytes_per_s=rates[0],
            disk_written_bytes_per_s=rates[1],
            network_sent_bytes_per_s=rates[2],
            network_received_bytes_per_s=rates[3],
            cpu_energy_j=energy_j,
            gpus=tuple(replace(usage, processes=()) for usage in gpus),
            workers=tuple(workers),
        )

    def close(self) -> None:
        """Close the driver's library."""
        self._gpus.close()

    def _find_gpus(self) -> None:
        """Look for GPUs every minute if there are none, because a driver may be loaded later."""
        now_s = time.monotonic()
        if self._machine.gpus or now_s - self._found_s < FIND_GPUS_S:
            return
        self._found_s = now_s
        self._machine = inventory()
        self._gpus = GpuMeter(self._machine.gpus)

    def _measure_workers(
        self, employed: Sequence[WatchedWorker], gpus: Sequence[GpuUsage], elapsed_s: float
    ) -> list[WorkerUsage]:
        # One process serves many trials: only its latest trial counts.
        latest = {worker.pid: worker for worker in employed}
        for pid in self._process_trees.keys() - latest.keys():
            del self._process_trees[pid]
        usages = (self._measure_worker(worker, gpus, elapsed_s) for worker in latest.values())
        return [usage for usage in usages if usage is not None]

    def _measure_worker(
        self, worker: WatchedWorker, gpus: Sequence[GpuUsage], elapsed_s: float
    ) -> WorkerUsage | None:
        try:
            tree = self._process_tree(worker.pid)
        except psutil.Error:
            self._process_trees.pop(worker.pid, None)
            return None
        used_s, memory_bytes = 0.0, 0
        for pid, process in list(tree.processes.items()):
            try:
                with process.oneshot():
                    times, resident = process.cpu_times(), process.memory_info().rss
            except psutil.Error:
                del tree.processes[pid]
                tree.used_s.pop(pid, None)
                continue
            spent_s = times.user + times.system
            # A new child counts from its start, but a new worker only from its first sample.
            used_s += spent_s - tree.used_s.get(pid, spent_s if tree.is_new else 0.0)
            tree.used_s[pid] = spent_s
            memory_bytes += resident
        if worker.pid not in tree.processes:
            return None
        is_new, tree.is_new = tree.is_new, False
        on_gpus = [
            num_bytes
            for usage in gpus
            for pid, num_bytes in usage.processes
            if pid in tree.processes and num_bytes is not None
        ]
        return WorkerUsage(
            pid=worker.pid,
            trial=worker.trial,
            rank=worker.rank,
            cpus=None if is_new or elapsed_s <= 0 else used_s / elapsed_s,
            memory_bytes=memory_bytes,
            gpus=uuids_of(self._machine, worker.gpus),
            gpu_memory_bytes=sum(on_gpus) if on_gpus else None,
        )

    def _process_tree(self, pid: int) -> _ProcessTree:
        """Return a worker with its processes, refreshed every few samples.

        Raises:
            psutil.Error: If it has ended.
        """
        tree, now_s = self._process_trees.get(pid), time.monotonic()
        if tree is not None and pid in tree.processes and now_s - tree.found_s < FIND_CHILDREN_S:
            return tree
        process = psutil.Process(pid)
        members = [process, *process.children(recursive=True)]
        if tree is None or tree.processes.get(pid, process) != process:
            tree = self._process_trees[pid] = _ProcessTree({})
        tree.processes |= {member.pid: member for member in members}
        tree.found_s = now_s
        return tree


def uuids_of(machine: Inventory, named: Iterable[str]) -> tuple[str, ...]:
    """Return the UUIDs of GPUs that are given by UUID or by number."""
    by_number = {str(gpu.index): gpu.uuid for gpu in machine.gpus}
    return tuple(by_number.get(name, name) for name in named)


def _with_energy(
    worker: WorkerUsage, energy_j: float | None, busy_s: float, elapsed_s: float
) -> WorkerUsage:
    if energy_j is None or worker.cpus is None or busy_s <= 0:
        return worker
    return replace(worker, cpu_energy_j=energy_j * min(1.0, worker.cpus * elapsed_s / busy_s))


def _count() -> _Counts:
    times = psutil.cpu_times()
    total_s = float(sum(times))
    idle_s = float(times.idle + getattr(times, "iowait", 0.0))
    rising: list[float | None] = [None] * 4
    with contextlib.suppress(OSError, RuntimeError):  # a system without these counters
        if (disks := psutil.disk_io_counters()) is not None:
            rising[:2] = disks.read_bytes, disks.write_bytes
    with contextlib.suppress(OSError, RuntimeError):
        by_name = psutil.net_io_counters(pernic=True)
        networks = [counts for name, counts in by_name.items() if not name.startswith("lo")]
        rising[2:] = (
            sum(network.bytes_sent for network in networks),
            sum(network.bytes_recv for network in networks),
        )
    return _Counts(time.monotonic(), total_s - idle_s, total_s, tuple(rising), processor_counters())


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

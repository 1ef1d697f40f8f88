"""What this machine is doing, look after look: processors, memory, disk, network, GPUs, and whose it is.

A look is cheap enough to be taken every second or two beside a training: what costs, such as finding the
processes that a worker has started, is done more rarely. Where looks go is left to others.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import psutil

from workbench.resources.energy import EnergyCounter, energy_between_j, processor_counters
from workbench.resources.gpu_meter import GpuMeter, GpuUsage
from workbench.resources.inventory import Inventory, inventory

NodeState = Literal["ok", "silent", "gone"]
"""Whether a node answers, has not for a while, or is no part of the cluster any more."""
FIND_OFFSPRING_S = 10.0
FIND_GPUS_S = 60.0


@dataclass(frozen=True)
class Employed:
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
    """What a worker, with all processes that it started, uses.

    Attributes:
        pid: Its process.
        trial: The trial that it served last.
        rank: Its number in the trial.
        cpus: Processors that it kept busy since the last look.
        memory_bytes: Memory that it holds, pages that processes share counted in each.
        gpus: UUIDs of the GPUs that it holds.
        gpu_memory_bytes: What it holds of their memory; None where their driver does not tell.
        cpu_energy_j: Its part of what the processors used since the last look, by its part of their time.
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
    """A moment of a machine, or what several moments come to; what is not known is None.

    Attributes:
        machine: What there is.
        time_unix_s: When it was looked at, by its own clock.
        state: Whether it answers.
        elapsed_s: Since the look before; 0 at the first.
        cpu_utilisation: Part of its processors that was busy since the last look, from 0 to 1.
        memory_used_bytes: Memory that is in use.
        disk_used_bytes: What is taken of the disk of its root folder.
        disk_bytes: The size of that disk.
        disk_read_bytes_per_s: What is read from all its disks.
        disk_written_bytes_per_s: What is written to them.
        network_sent_bytes_per_s: What it sends, itself excepted.
        network_received_bytes_per_s: What it receives.
        cpu_energy_j: What its processors have used since the last look.
        gpus: One a GPU, in the order of the machine.
        workers: Those of the run that asked.
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
    """What the machine had counted at a look; rates are what it has risen by since."""

    time_s: float
    busy_s: float
    total_s: float
    rising: tuple[float | None, ...]
    energy: dict[str, EnergyCounter]


@dataclass
class _Family:
    """A worker with the processes that it started, and the processor time that each had used."""

    processes: dict[int, psutil.Process]
    used_s: dict[int, float] = field(default_factory=dict)
    found_s: float = 0.0
    is_new: bool = True


class Sampler:
    """Looks at this machine again and again; each look is against the one before."""

    def __init__(self) -> None:
        """Find out what there is."""
        self._machine = inventory()
        self._found_s = time.monotonic()
        self._gpus = GpuMeter(self._machine.gpus)
        self._before: _Counts | None = None
        self._families: dict[int, _Family] = {}

    def look(self, employed: Sequence[Employed] = ()) -> NodeSample:
        """Return what this machine is doing.

        Args:
            employed: The workers to tell of; those that have ended are left out.
        """
        self._find_gpus()
        before, now = self._before, _count()
        self._before = now
        elapsed_s = 0.0 if before is None else now.time_s - before.time_s
        part, rates, energy_j, busy_s = None, (None,) * len(now.rising), None, 0.0
        if before is not None and elapsed_s > 0:
            energy_j = energy_between_j(before.energy, now.energy)
            busy_s = now.busy_s - before.busy_s
            rates = tuple(
                None if old is None or new is None or new < old else (new - old) / elapsed_s
                for old, new in zip(before.rising, now.rising, strict=True)
            )
            if now.total_s > before.total_s:
                part = busy_s / (now.total_s - before.total_s)
        memory = psutil.virtual_memory()
        gpus = self._gpus.look()
        workers = [
            _with_energy(worker, energy_j, busy_s, elapsed_s)
            for worker in self._look_at_workers(employed, gpus, elapsed_s)
        ]
        disk = None
        with contextlib.suppress(OSError):
            disk = psutil.disk_usage("/")
        return NodeSample(
            machine=self._machine,
            time_unix_s=time.time(),
            elapsed_s=elapsed_s,
            cpu_utilisation=None if part is None else min(1.0, max(0.0, part)),
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
        """Let go of the driver's library."""
        self._gpus.close()

    def _find_gpus(self) -> None:
        """Look for GPUs now and then where there are none: a driver may be loaded later."""
        now_s = time.monotonic()
        if self._machine.gpus or now_s - self._found_s < FIND_GPUS_S:
            return
        self._found_s = now_s
        self._machine = inventory()
        self._gpus = GpuMeter(self._machine.gpus)

    def _look_at_workers(
        self, employed: Sequence[Employed], gpus: Sequence[GpuUsage], elapsed_s: float
    ) -> list[WorkerUsage]:
        # One process serves many trials: those that have ended since the last look say nothing of it now.
        latest = {worker.pid: worker for worker in employed}
        for pid in self._families.keys() - latest.keys():
            del self._families[pid]
        found = (self._look_at_worker(worker, gpus, elapsed_s) for worker in latest.values())
        return [usage for usage in found if usage is not None]

    def _look_at_worker(
        self, worker: Employed, gpus: Sequence[GpuUsage], elapsed_s: float
    ) -> WorkerUsage | None:
        try:
            family = self._family(worker.pid)
        except psutil.Error:
            self._families.pop(worker.pid, None)
            return None
        used_s, memory_bytes = 0.0, 0
        for pid, process in list(family.processes.items()):
            try:
                with process.oneshot():
                    times, resident = process.cpu_times(), process.memory_info().rss
            except psutil.Error:
                del family.processes[pid]
                family.used_s.pop(pid, None)
                continue
            spent_s = times.user + times.system
            used_s += spent_s - family.used_s.get(pid, spent_s if family.is_new else 0.0)
            family.used_s[pid] = spent_s
            memory_bytes += resident
        if worker.pid not in family.processes:
            return None
        is_new, family.is_new = family.is_new, False
        on_gpus = [
            num_bytes
            for usage in gpus
            for pid, num_bytes in usage.processes
            if pid in family.processes and num_bytes is not None
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

    def _family(self, pid: int) -> _Family:
        """Return a worker with its processes, found anew every few looks.

        Raises:
            psutil.Error: If it has ended.
        """
        family, now_s = self._families.get(pid), time.monotonic()
        if family is not None and pid in family.processes and now_s - family.found_s < FIND_OFFSPRING_S:
            return family
        process = psutil.Process(pid)
        members = [process, *process.children(recursive=True)]
        if family is None or family.processes.get(pid, process) != process:
            family = self._families[pid] = _Family({})
        family.processes |= {member.pid: member for member in members}
        family.found_s = now_s
        return family


def uuids_of(machine: Inventory, named: Iterable[str]) -> tuple[str, ...]:
    """Return the UUIDs of GPUs that are named by UUID or by number."""
    by_number = {str(gpu.index): gpu.uuid for gpu in machine.gpus}
    return tuple(by_number.get(name, name) for name in named)


def _with_energy(worker: WorkerUsage, energy_j: float | None, busy_s: float, elapsed_s: float) -> WorkerUsage:
    if energy_j is None or worker.cpus is None or busy_s <= 0:
        return worker
    return replace(worker, cpu_energy_j=energy_j * min(1.0, worker.cpus * elapsed_s / busy_s))


def _count() -> _Counts:
    times = psutil.cpu_times()
    total_s = float(sum(times))
    idle_s = float(times.idle + getattr(times, "iowait", 0.0))
    rising: list[float | None] = [None] * 4
    with contextlib.suppress(OSError, RuntimeError):  # a system that does not count
        if (disks := psutil.disk_io_counters()) is not None:
            rising[:2] = disks.read_bytes, disks.write_bytes
    with contextlib.suppress(OSError, RuntimeError):
        by_name = psutil.net_io_counters(pernic=True)
        others = [counts for name, counts in by_name.items() if not name.startswith("lo")]
        rising[2:] = sum(one.bytes_sent for one in others), sum(one.bytes_recv for one in others)
    return _Counts(time.monotonic(), total_s - idle_s, total_s, tuple(rising), processor_counters())

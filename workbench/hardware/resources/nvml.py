"""The only use of NVIDIA's management library: list the GPUs and the links between them.

If something is missing, there is a state and no exception: `GpusState` for all GPUs, `GpuState` for
one. `gpu_meter` reads their usage through this module.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import psutil

from workbench.foundation.formatting import format_bytes

GpusState = Literal["ok", "no library", "no driver", "wrong driver", "no gpu", "failed"]
"""Whether this machine has GPUs, or what is missing.

It may be the Python library, a driver, a driver that matches its library, or a GPU. "failed" means
anything else.
"""
GpuState = Literal["ok", "lost", "needs reset", "no driver", "failed"]
"""Whether a GPU responds, or why not: it is off the bus, needs a reset, or has no driver."""

_TOPOLOGY = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MAX_NVLINKS = 36
_BITS = 64
"""CPUs in one word of a mask of the library."""
_SWITCH = "switch"


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine.

    Attributes:
        index: Its number in NVML, from 0, in the order of the PCI bus.
        name: The vendor's name for it.
        memory_bytes: Its memory in total.
        uuid: Its permanent id, also in CUDA_VISIBLE_DEVICES.
        links: The link to each GPU of the machine, in their order, as `nvidia-smi topo` writes it.
            NV and a number is the number of NVLinks. Without NVLinks, from near to far: PIX and PXB
            (PCIe switches), PHB (host bridge), NODE (one socket), SYS (between sockets). X is the
            GPU itself, and "" is unknown.
        cpus: The CPUs of its socket or NUMA node, in order, or none if the driver does not tell.
    """

    index: int
    name: str
    memory_bytes: int
    uuid: str
    links: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()


class FoundGpus(NamedTuple):
    """The GPUs of this machine, their overall state, and why some or all are missing."""

    gpus: tuple[Gpu, ...]
    state: GpusState
    reason: str | None


def list_gpus() -> FoundGpus:
    """List the GPUs of this machine."""
    with session() as (nvml, state, reason):
        if nvml is None:
            return FoundGpus((), state, reason)
        described: list[tuple[Gpu, Any]] = []
        problems: list[str] = []
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            return FoundGpus((), "failed", f"NVML cannot count the GPUs: {error}")
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                described.append((_describe(nvml, index, handle), handle))
            except nvml.NVMLError as error:
                problems.append(f"NVML cannot describe GPU {index}: {error}")
        if not described and not problems:
            return FoundGpus((), "no gpu", "the NVIDIA driver finds no GPU")
        state = "ok" if described else "failed"
        return FoundGpus(_linked(nvml, described), state, "; ".join(problems) or None)


def gpu_energy_j(uuid: str) -> float | None:
    """Return the joules that a GPU has used since its driver was loaded, if it counts them.

    Args:
        uuid: As in `Gpu`.
    """
    with session() as (nvml, _, _):
        if nvml is None:
            return None
        try:
            return (
                nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByUUID(uuid))
                * 1e-3
            )
        except nvml.NVMLError:  # before Volta
            return None


FOREIGN_PART = 0.02
"""Part of a GPU that others may hold without a note. A desktop takes about as much."""


class Holder(NamedTuple):
    """A process that holds memory of a GPU.

    Attributes:
        pid: Its number. In a container, it may be that of the host.
        used_bytes: The memory that it holds, or None if the driver does not tell.
        name: Its program, or "" if it cannot be seen from here.
        user: Its user, or "".
    """

    pid: int
    used_bytes: int | None
    name: str
    user: str

    def __str__(self) -> str:
        described = " of ".join(filter(None, [self.name, self.user]))
        text = f"process {self.pid}" + (f" ({described})" if described else "")
        return text if self.used_bytes is None else f"{text}: {format_bytes(self.used_bytes)}"


class Occupation(NamedTuple):
    """The memory of a GPU that others hold, and who they are as far as that is known."""

    uuid: str
    held_bytes: int
    holders: tuple[Holder, ...]

    def __str__(self) -> str:
        who = f" ({', '.join(map(str, self.holders))})" if self.holders else ""
        return f"others hold {format_bytes(self.held_bytes)} of GPU {self.uuid}{who}"


def occupation_of(gpu: str, own_pids: Collection[int] = ()) -> Occupation | None:
    """Return who else holds memory of a GPU, or None if that is too little to matter or unknown.

    Args:
        gpu: Its UUID, or its index.
        own_pids: Processes that do not count.
    """
    with session() as (nvml, _, _):
        if nvml is None:
            return None
        try:
            handle = (
                nvml.nvmlDeviceGetHandleByIndex(int(gpu))
                if gpu.isdecimal()
                else nvml.nvmlDeviceGetHandleByUUID(gpu)
            )
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            uuid = text_of(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError:
            return None
        try:
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError:  # the driver of a container or of Windows
            processes = []
    own_bytes = sum(item.usedGpuMemory or 0 for item in processes if item.pid in own_pids)
    held_bytes = int(memory.used) - own_bytes
    if held_bytes <= FOREIGN_PART * memory.total:
        return None
    others = [_holder(item) for item in processes if item.pid not in own_pids]
    return Occupation(uuid, held_bytes, tuple(others))


def holders_of(uuid: str) -> tuple[Holder, ...]:
    """Return all processes that use a GPU, as far as the driver tells.

    Args:
        uuid: As in `Gpu`.
    """
    with session() as (nvml, _, _):
        if nvml is None:
            return ()
        holders: list[Any] = []
        for name in ("Compute", "Graphics"):
            with contextlib.suppress(nvml.NVMLError):  # not told in a container or on Windows
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                holders += getattr(nvml, f"nvmlDeviceGet{name}RunningProcesses")(handle)
    return tuple(_holder(process) for process in {item.pid: item for item in holders}.values())


def _holder(process: Any) -> Holder:
    name = user = ""
    with contextlib.suppress(psutil.Error):
        holder = psutil.Process(process.pid)
        name, user = holder.name(), holder.username()
    return Holder(process.pid, process.usedGpuMemory, name, user)


def open_library() -> tuple[Any, GpusState, str | None]:
    """Open the library. Close it with `nvmlShutdown`.

    Returns:
        (the library, "ok", None), or (None, the state, the reason as text).
    """
    try:
        import pynvml
    except ImportError as error:
        return None, "no library", f"nvidia-ml-py is not installed: {error}"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = error.value  # pyright: ignore[reportAttributeAccessIssue]  # of its subclasses
        if code in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            return None, "no driver", f"there is no NVIDIA driver here: {error}"
        if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            return None, "wrong driver", f"the NVIDIA driver was updated but not reloaded: {error}"
        return None, "failed", f"the NVIDIA driver does not answer: {error}"
    return pynvml, "ok", None


@contextlib.contextmanager
def session() -> Iterator[tuple[Any, GpusState, str | None]]:
    """Open the library for the block, and yield the result of `open_library`."""
    nvml, state, reason = open_library()
    try:
        yield nvml, state, reason
    finally:
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def text_of(value: str | bytes) -> str:
    """Return a string of the library as text. Older versions return bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _describe(nvml: Any, index: int, handle: Any) -> Gpu:
    return Gpu(
        index=index,
        name=text_of(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        uuid=text_of(nvml.nvmlDeviceGetUUID(handle)),
        cpus=_cpus_near(nvml, handle),
    )


def _cpus_near(nvml: Any, handle: Any) -> tuple[int, ...]:
    """Return the CPUs that are near a GPU, or none if the driver does not tell."""
    num_words = math.ceil((os.cpu_count() or 1) / _BITS)
    try:
        words = nvml.nvmlDeviceGetCpuAffinity(handle, num_words)
    except nvml.NVMLError:
        return ()
    return tuple(
        _BITS * place + bit
        for place, word in enumerate(words)
        for bit in range(_BITS)
        if word >> bit & 1
    )


def gpus_named(names: Collection[str]) -> tuple[Gpu, ...]:
    """Return some GPUs of this machine, in their order, or none if there is no driver.

    Args:
        names: Their UUIDs or indices, as in CUDA_VISIBLE_DEVICES.
    """
    if not names:
        return ()
    return tuple(
        gpu
        for gpu in list_gpus().gpus
        if str(gpu.index) in names or any(gpu.uuid.startswith(name) for name in names)
    )


def _linked(nvml: Any, described: list[tuple[Gpu, Any]]) -> tuple[Gpu, ...]:
    """Return the GPUs with the links between them. A single GPU has none."""
    if len(described) < 2:
        return tuple(gpu for gpu, _ in described)
    ends = [_nvlink_ends(nvml, handle) for _, handle in described]
    buses = [
        _bus_of(lambda handle=handle: nvml.nvmlDeviceGetPciInfo(handle), nvml)
        for _, handle in described
    ]

    def link_between(first: int, second: int) -> str:
        if first == second:
            return "X"
        direct = 0 if buses[second] is None else ends[first].count(buses[second])
        # Through switches, two GPUs are linked by as many NVLinks as the one with fewer has.
        num_nvlinks = direct or min(ends[first].count(_SWITCH), ends[second].count(_SWITCH))
        if num_nvlinks:
            return f"NV{num_nvlinks}"
        try:
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(
                described[first][1], described[second][1]
            )
        except nvml.NVMLError:
            return ""
        return _TOPOLOGY.get(level, "")

    indices = range(len(described))
    return tuple(
        replace(gpu, links=tuple(link_between(index, second) for second in indices))
        for index, (gpu, _) in enumerate(described)
    )


def _nvlink_ends(nvml: Any, handle: Any) -> list[str | None]:
    """Return the other end of each active NVLink of a GPU: a place on the PCI bus, or a switch."""
    ends: list[str | None] = []
    for link in range(_MAX_NVLINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
        except nvml.NVMLError:  # it has no more links
            break
        try:
            kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        except nvml.NVMLError:  # a driver older than NVLink switches
            kind = nvml.NVML_NVLINK_DEVICE_TYPE_GPU
        is_switch = kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        bus = _bus_of(lambda link=link: nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link), nvml)
        ends.append(_SWITCH if is_switch else bus)
    return ends


def _bus_of(ask: Any, nvml: Any) -> str | None:
    try:
        return text_of(ask().busId).lower()
    except nvml.NVMLError:
        return None

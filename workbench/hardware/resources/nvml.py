"""The only access to NVIDIA's management library: which GPUs there are, and how they are linked.

Missing parts are states, not exceptions: `GpusState` for all GPUs, `GpuState` for one. Their usage
is read in `gpu_meter`, through this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

GpusState = Literal["ok", "no library", "no driver", "wrong driver", "no gpu", "failed"]
"""Whether this machine has GPUs, or what is missing.

That is Python's library, a driver, a driver that matches its library, or a GPU. "failed" is
everything else.
"""
GpuState = Literal["ok", "lost", "needs reset", "no driver", "failed"]
"""Whether a GPU responds, or why not: it fell off the bus, must be reset, or its driver is gone."""

_TOPOLOGY = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MAX_NVLINKS = 36
_SWITCH = "switch"


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine.

    Attributes:
        index: Its number in NVML, from 0, in the order of the PCI bus.
        name: The vendor's name for it.
        memory_bytes: Its memory in total.
        uuid: Its permanent id, also in CUDA_VISIBLE_DEVICES.
        links: The link to each GPU of the machine, in their order, as `nvidia-smi topo` writes it:
            NV and the number of NVLinks; else, ever farther: PIX, PXB (PCIe switches), PHB (its
            host bridge), NODE (one socket), SYS (between sockets); X is itself; empty: unknown.
    """

    index: int
    name: str
    memory_bytes: int
    uuid: str
    links: tuple[str, ...] = ()


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
    """Return the joules that a GPU has used since its driver was loaded.

    None if it does not count them.

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


def open_library() -> tuple[Any, GpusState, str | None]:
    """Open the library, to be closed by `nvmlShutdown`.

    Returns:
        (the library, "ok", None), or (None, why not, the same in words).
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
    """Open the library for one use; yields what `open_library` returns."""
    nvml, state, reason = open_library()
    try:
        yield nvml, state, reason
    finally:
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def text_of(value: str | bytes) -> str:
    """Return a library string as text; older versions return bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _describe(nvml: Any, index: int, handle: Any) -> Gpu:
    return Gpu(
        index=index,
        name=text_of(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        uuid=text_of(nvml.nvmlDeviceGetUUID(handle)),
    )


def _linked(nvml: Any, found: list[tuple[Gpu, Any]]) -> tuple[Gpu, ...]:
    """Return the GPUs with the links between them; a single GPU has none."""
    if len(found) < 2:
        return tuple(gpu for gpu, _ in found)
    ends = [_nvlink_ends(nvml, handle) for _, handle in found]
    buses = [
        _bus_of(lambda handle=handle: nvml.nvmlDeviceGetPciInfo(handle), nvml)
        for _, handle in found
    ]

    def way(here: int, there: int) -> str:
        if here == there:
            return "X"
        direct = 0 if buses[there] is None else ends[here].count(buses[there])
        num_nvlinks = direct or min(ends[here].count(_SWITCH), ends[there].count(_SWITCH))
        if num_nvlinks:
            return f"NV{num_nvlinks}"
        try:
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(found[here][1], found[there][1])
        except nvml.NVMLError:
            return ""
        return _TOPOLOGY.get(level, "")

    everyone = range(len(found))
    return tuple(
        Gpu(
            gpu.index,
            gpu.name,
            gpu.memory_bytes,
            gpu.uuid,
            tuple(way(here, there) for there in everyone),
        )
        for here, (gpu, _) in enumerate(found)
    )


def _nvlink_ends(nvml: Any, handle: Any) -> list[str | None]:
    """Return where each active NVLink of a GPU leads: to a place on the PCI bus, or to a switch."""
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

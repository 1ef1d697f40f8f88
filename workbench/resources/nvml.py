"""The one door to NVIDIA's management library: which GPUs there are, and how they are linked.

Whatever is missing has a name and is no exception: `GpusState` of all of them, `GpuState` of one. What
they are doing is asked in `gpu_meter`, through this door.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

GpusState = Literal["ok", "no library", "no driver", "wrong driver", "no gpu", "failed"]
"""Whether this machine has GPUs, or what there is not: Python's library, a driver, a driver that fits its own
library, a GPU; "failed" is all else."""
GpuState = Literal["ok", "lost", "needs reset", "no driver", "failed"]
"""Whether a GPU answers, or why not: it fell off the bus, must be reset, or its driver is gone."""

_TOPOLOGY = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MAX_NVLINKS = 36
_SWITCH = "switch"


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine.

    Attributes:
        index: Its number in NVML, from 0, in the order of the PCI bus.
        name: What the vendor calls it.
        memory_bytes: Its memory in total.
        uuid: What names it for good, also in CUDA_VISIBLE_DEVICES.
        links: The way to each GPU of the machine, in their order, as `nvidia-smi topo` writes it: NV and the
            number of NVLinks; else, ever longer: PIX, PXB (switches of PCIe), PHB (its host bridge), NODE
            (one socket), SYS (between sockets); X is itself, empty what cannot be known.
    """

    index: int
    name: str
    memory_bytes: int
    uuid: str
    links: tuple[str, ...] = ()


class FoundGpus(NamedTuple):
    """The GPUs of this machine, whether there are any, and why none or not all of them."""

    gpus: tuple[Gpu, ...]
    state: GpusState
    reason: str | None


def list_gpus() -> FoundGpus:
    """List the GPUs of this machine."""
    with session() as (nvml, state, reason):
        if nvml is None:
            return FoundGpus((), state, reason)
        found: list[tuple[Gpu, Any]] = []
        problems: list[str] = []
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            return FoundGpus((), "failed", f"NVML cannot count the GPUs: {error}")
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                found.append((_describe(nvml, index, handle), handle))
            except nvml.NVMLError as error:
                problems.append(f"NVML cannot describe GPU {index}: {error}")
        reason = "; ".join(problems) or (None if found else "the NVIDIA driver finds no GPU")
        state = "ok" if found else "failed" if problems else "no gpu"
        return FoundGpus(_linked(nvml, found), state, reason)


def gpu_energy_j(uuid: str) -> float | None:
    """Return the joules that a GPU has used since its driver was loaded; None where it does not count them.

    Args:
        uuid: As in `Gpu`.
    """
    with session() as (nvml, _, _):
        if nvml is None:
            return None
        try:
            return nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByUUID(uuid)) * 1e-3
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
            return None, "wrong driver", f"the NVIDIA driver was changed and not loaded again: {error}"
        return None, "failed", f"the NVIDIA driver does not answer: {error}"
    return pynvml, "ok", None


@contextlib.contextmanager
def session() -> Iterator[tuple[Any, GpusState, str | None]]:
    """Open the library for one look; yields what `open_library` returns."""
    nvml, state, reason = open_library()
    try:
        yield nvml, state, reason
    finally:
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def text_of(value: str | bytes) -> str:
    """Return what the library answered as text, whichever version of it did."""
    return value.decode() if isinstance(value, bytes) else value


def _describe(nvml: Any, index: int, handle: Any) -> Gpu:
    return Gpu(
        index=index,
        name=text_of(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        uuid=text_of(nvml.nvmlDeviceGetUUID(handle)),
    )


def _linked(nvml: Any, found: list[tuple[Gpu, Any]]) -> tuple[Gpu, ...]:
    """Return the GPUs with the ways between them; one alone has none."""
    if len(found) < 2:
        return tuple(gpu for gpu, _ in found)
    ends = [_nvlink_ends(nvml, handle) for _, handle in found]
    buses = [_bus_of(lambda handle=handle: nvml.nvmlDeviceGetPciInfo(handle), nvml) for _, handle in found]

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
        Gpu(gpu.index, gpu.name, gpu.memory_bytes, gpu.uuid, tuple(way(here, there) for there in everyone))
        for here, (gpu, _) in enumerate(found)
    )


def _nvlink_ends(nvml: Any, handle: Any) -> list[str | None]:
    """Return where each active NVLink of a GPU leads: to a place on the PCI bus, or to a switch."""
    ends: list[str | None] = []
    for link in range(_MAX_NVLINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
        except nvml.NVMLError:  # it has no more of them
            break
        try:
            kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        except nvml.NVMLError:  # an old driver, from before there were switches
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

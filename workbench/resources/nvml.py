"""The one door to NVIDIA's management library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine.

    Attributes:
        index: Its number in NVML, from 0, in the order of the PCI bus.
        name: What the vendor calls it.
        memory_bytes: Its memory in total.
        uuid: What names it for good, also in CUDA_VISIBLE_DEVICES.
    """

    index: int
    name: str
    memory_bytes: int
    uuid: str


@dataclass(frozen=True)
class GpuUsage:
    """A moment of a GPU; what its driver does not tell is None.

    Attributes:
        utilisation: Part of the time in which a kernel ran, from 0 to 1.
        memory_used_bytes: Memory that is in use.
        power_w: Power that it draws.
        temperature_c: Its temperature in degrees Celsius.
    """

    utilisation: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None


def list_gpus() -> tuple[tuple[Gpu, ...], str | None]:
    """List the GPUs of this machine.

    Returns:
        The GPUs, and why there are none or not all of them; None where nothing is missing.
    """
    with _session() as (nvml, reason):
        if nvml is None:
            return (), reason
        gpus: list[Gpu] = []
        try:
            gpus.extend(_describe(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        except nvml.NVMLError as error:
            return tuple(gpus), f"NVML cannot describe GPU {len(gpus)}: {error}"
        return tuple(gpus), None if gpus else "the NVIDIA driver finds no GPU"


def gpu_energy_j(uuid: str) -> float | None:
    """Return the joules that a GPU has used since its driver was loaded; None where it does not count them.

    Args:
        uuid: As in `Gpu`.
    """
    with _session() as (nvml, _):
        if nvml is None:
            return None
        try:
            return nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByUUID(uuid)) * 1e-3
        except nvml.NVMLError:  # before Volta
            return None


def gpu_usage(gpus: Sequence[Gpu]) -> tuple[GpuUsage, ...]:
    """Return what GPUs are doing; one that has gone, or tells nothing, has an empty usage.

    Args:
        gpus: As `list_gpus` found them.
    """
    if not gpus:
        return ()
    with _session() as (nvml, _):
        return tuple(GpuUsage() if nvml is None else _usage(nvml, gpu.uuid) for gpu in gpus)


def _usage(nvml: ModuleType, uuid: str) -> GpuUsage:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:  # it fell off the bus
        return GpuUsage()

    def ask(question: Callable[[], float]) -> float | None:
        try:
            return question()
        except nvml.NVMLError:
            return None

    used = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
    return GpuUsage(
        utilisation=ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
        memory_used_bytes=None if used is None else int(used),
        power_w=ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) * 1e-3),
        temperature_c=ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
    )


def _describe(nvml: ModuleType, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
    )


@contextlib.contextmanager
def _session() -> Iterator[tuple[Any, str | None]]:
    """Open the library for one look; yields (library, None) or (None, reason)."""
    try:
        import pynvml
    except ImportError as error:
        yield None, f"nvidia-ml-py is not installed: {error}"
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield None, f"there is no NVIDIA driver here: {error}"
        return
    try:
        yield pynvml, None
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

"""The one door to NVIDIA's management library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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

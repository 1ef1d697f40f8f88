"""What the GPUs of this machine are doing, asked again and again; what one does not tell is None.

Rates are means over the time between two looks, where the card counts; a card that is gone has a state.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.resources.nvml import Gpu, GpuState, open_library, text_of

_MAX_XIDS = 16
_ALL_LINKS = 0xFFFFFFFF
_SLOWED_BY = {0x4: "power limit", 0x8: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}
"""Bits of the reasons for which a card runs slower than it could; being idle is none of them."""
_VALUE_NAMES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True)
class GpuUsage:
    """A moment of a GPU; what its driver does not tell is None.

    Attributes:
        state: Whether it answers.
        utilisation: Part of the time in which a kernel ran, from 0 to 1.
        memory_used_bytes: Memory that is in use.
        power_w: Power that it draws.
        temperature_c: Its temperature in degrees Celsius.
        clock_mhz: Clock of its processors.
        memory_clock_mhz: Clock of its memory.
        slowed_by: Why it runs slower than it could: "power limit", "heat", "hardware", "power brake".
        ecc_corrected: Memory errors since its driver was loaded that were corrected.
        ecc_uncorrected: Those that were not.
        xids: Numbers of the errors (Xid) that the driver has reported since the last look.
        pcie_sent_bytes_per_s: What it sends over PCIe.
        pcie_received_bytes_per_s: What it receives over PCIe.
        nvlink_sent_bytes_per_s: What it sends over all its NVLinks.
        nvlink_received_bytes_per_s: What it receives over them.
        energy_j: What it has used since the last look: by its counter, else by its power.
        processes: (pid, bytes of its memory) of who computes on it; None where the bytes are not told.
    """

    state: GpuState = "ok"
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    slowed_by: tuple[str, ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    xids: tuple[int, ...] = ()
    pcie_sent_bytes_per_s: float | None = None
    pcie_received_bytes_per_s: float | None = None
    nvlink_sent_bytes_per_s: float | None = None
    nvlink_received_bytes_per_s: float | None = None
    energy_j: float | None = None
    processes: tuple[tuple[int, int | None], ...] = ()


@dataclass(frozen=True)
class _Counts:
    """What a GPU had counted at a look."""

    time_s: float
    energy_j: float | None
    power_w: float | None
    bytes_by_way: tuple[float | None, ...]


class GpuMeter:
    """Looks at GPUs with the library kept open in between, because opening it takes long."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        """Prepare to look.

        Args:
            gpus: As `list_gpus` found them.
        """
        self._gpus = tuple(gpus)
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._before: dict[str, _Counts] = {}
        self._events: Any = None

    def look(self) -> tuple[GpuUsage, ...]:
        """Return what the GPUs are doing, in their order."""
        if self._gpus and self._nvml is None:
            self._nvml, _, _ = open_library()
            if self._nvml is not None:
                self._listen()
        if self._nvml is None:
            return tuple(GpuUsage(state="no driver") for _ in self._gpus)
        xids = self._new_xids()
        usages = tuple(self._look_at(gpu, xids.get(gpu.uuid, ())) for gpu in self._gpus)
        if any(usage.state == "no driver" for usage in usages):
            self.close()  # opened anew at the next look
        return usages

    def close(self) -> None:
        """Let go of the library."""
        nvml, self._nvml = self._nvml, None
        if nvml is None:
            return
        with contextlib.suppress(nvml.NVMLError):
            if self._events is not None:
                nvml.nvmlEventSetFree(self._events)
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
        self._events = None
        self._handles.clear()

    def _listen(self) -> None:
        """Have errors of the driver reported, by those cards that can."""
        nvml = self._nvml
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return
        for gpu in self._gpus:
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _new_xids(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        nvml = self._nvml
        if self._events is None:
            return found
        with contextlib.suppress(nvml.NVMLError):  # among them: that there are no more
            for _ in range(_MAX_XIDS):
                event = nvml.nvmlEventSetWait(self._events, 0)
                uuid = text_of(nvml.nvmlDeviceGetUUID(event.device))
                found[uuid] = (*found.get(uuid, ()), int(event.eventData))
        return found

    def _look_at(self, gpu: Gpu, xids: tuple[int, ...]) -> GpuUsage:
        nvml = self._nvml
        states: list[GpuState] = []

        def ask(question: Callable[[], Any]) -> Any:
            """Ask once; a card that is gone is asked nothing else."""
            if states:
                return None
            try:
                return question()
            except nvml.NVMLError as error:
                if (state := _state_after(nvml, error)) is not None:
                    states.append(state)
                return None

        handle = self._handles.get(gpu.uuid)
        if handle is None:
            try:
                handle = self._handles[gpu.uuid] = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
            except nvml.NVMLError as error:
                gone = "lost" if error.value == nvml.NVML_ERROR_NOT_FOUND else "failed"
                return GpuUsage(state=_state_after(nvml, error) or gone, xids=xids)
        used = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
        busy = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        power_w = _scaled(ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle)), 1e-3)
        energy_j = _scaled(ask(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)), 1e-3)
        slowed = ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
        usage = GpuUsage(
            utilisation=_scaled(busy, 1e-2),
            memory_used_bytes=None if used is None else int(used),
            power_w=power_w,
            temperature_c=ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            clock_mhz=ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            slowed_by=tuple(dict.fromkeys(word for bit, word in _SLOWED_BY.items() if slowed & bit)),
            ecc_corrected=ask(lambda: _ecc_errors(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)),
            ecc_uncorrected=ask(lambda: _ecc_errors(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)),
            xids=xids,
            processes=tuple(
                (process.pid, process.usedGpuMemory)
                for process in ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
            ),
            **self._since_last(gpu.uuid, handle, ask, energy_j, power_w),
        )
        if states:
            self._handles.pop(gpu.uuid, None)
            self._before.pop(gpu.uuid, None)
            return GpuUsage(state=states[0], xids=xids)
        return usage

    def _since_last(
        self, uuid: str, handle: Any, ask: Callable[..., Any], energy_j: float | None, power_w: float | None
    ) -> dict[str, Any]:
        """Return the energy used, and the bytes a second, since the last look."""
        ways = self._count_bytes(handle, ask)
        now = _Counts(time.monotonic(), energy_j, power_w, ways)
        before = self._before.get(uuid)
        self._before[uuid] = now
        rates: list[float | None] = [None] * len(ways)
        used_j = None
        if before is not None and now.time_s > before.time_s:
            elapsed_s = now.time_s - before.time_s
            rates = [_rate(*pair, elapsed_s) for pair in zip(before.bytes_by_way, ways, strict=True)]
            used_j = _rise(before.energy_j, energy_j)
            if used_j is None and power_w is not None:
                used_j = (power_w + (power_w if before.power_w is None else before.power_w)) / 2 * elapsed_s
        if ways[0] is None and ways[1] is None:  # it does not count, but measures for 20 ms
            rates[:2] = self._measure_pcie(handle, ask)
        names = ("pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received")
        return {f"{name}_bytes_per_s": rate for name, rate in zip(names, rates, strict=True)} | {
            "energy_j": used_j
        }

    def _count_bytes(self, handle: Any, ask: Callable[..., Any]) -> tuple[float | None, ...]:
        """Return the bytes so far, sent and received over PCIe, sent and received over NVLinks."""
        nvml = self._nvml
        fields = [
            nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
        ]
        values = ask(lambda: nvml.nvmlDeviceGetFieldValues(handle, fields))
        if values is None:
            return (None,) * len(fields)
        units = (1, 1, 1024, 1024)
        return tuple(
            _scaled(_value(value) if value.nvmlReturn == nvml.NVML_SUCCESS else None, unit)
            for value, unit in zip(values, units, strict=True)
        )

    def _measure_pcie(self, handle: Any, ask: Callable[..., Any]) -> tuple[float | None, float | None]:
        nvml = self._nvml
        sent = ask(lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES))
        received = ask(lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES))
        return _scaled(sent, 1024), _scaled(received, 1024)


def _ecc_errors(nvml: Any, handle: Any, kind: int) -> int:
    return nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC)


def _state_after(nvml: Any, error: Any) -> GpuState | None:
    """Name what an error says about the card; None where it is about one value only."""
    if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_GPU_NOT_FOUND):
        return "lost"
    if error.value == nvml.NVML_ERROR_RESET_REQUIRED:
        return "needs reset"
    if error.value in (nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
        return "no driver"
    return None


def _value(field: Any) -> float | None:
    kind = int(field.valueType)
    return getattr(field.value, _VALUE_NAMES[kind]) if kind < len(_VALUE_NAMES) else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _rise(before: float | None, now: float | None) -> float | None:
    """Return by how much a counter rose; None where it began anew."""
    return None if before is None or now is None or now < before else now - before


def _rate(before: float | None, now: float | None, elapsed_s: float) -> float | None:
    rise = _rise(before, now)
    return None if rise is None else rise / elapsed_s

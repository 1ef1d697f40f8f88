"""Read the usage of this machine's GPUs.

Values that a GPU does not report are None. If the card has counters, rates are means between two
readings. A card that is gone has a state that says so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.hardware.resources.nvml import Gpu, GpuState, open_library, text_of

_MAX_XIDS = 16
_ALL_LINKS = 0xFFFFFFFF
_SLOWED_BY = {0x4: "power limit", 0x8: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}
"""Bits of NVML's throttle reasons. Being idle does not count."""
_VALUE_NAMES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True)
class GpuUsage:
    """The usage of a GPU at one time. Values that its driver does not report are None.

    Attributes:
        state: Whether it responds.
        utilisation: Fraction of the time in which a kernel ran, from 0 to 1.
        memory_used_bytes: Memory in use.
        power_w: Power that it draws.
        temperature_c: Its temperature in degrees Celsius.
        clock_mhz: Clock of its multiprocessors.
        memory_clock_mhz: Clock of its memory.
        slowed_by: Why it is throttled: "power limit", "heat", "hardware", "power brake".
        ecc_corrected: Corrected memory errors since its driver was loaded.
        ecc_uncorrected: Uncorrected memory errors since then.
        xids: Numbers of the errors (Xid) that the driver has reported since the last reading.
        pcie_sent_bytes_per_s: Bytes that it sends over PCIe.
        pcie_received_bytes_per_s: Bytes that it receives over PCIe.
        nvlink_sent_bytes_per_s: Bytes that it sends over all its NVLinks.
        nvlink_received_bytes_per_s: Bytes that it receives over them.
        energy_j: Energy used since the last reading, from its counter or estimated from its power.
        processes: (pid, bytes of GPU memory) of each compute process. The bytes are None if they
            are not reported.
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
    """The counters of a GPU at one reading."""

    time_s: float
    energy_j: float | None
    power_w: float | None
    bytes_by_way: tuple[float | None, ...]


class GpuMeter:
    """Reads GPUs repeatedly. The library stays open in between, because opening it is slow."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        """Prepare to read.

        Args:
            gpus: The result of `list_gpus`.
        """
        self._gpus = tuple(gpus)
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._before: dict[str, _Counts] = {}
        self._events: Any = None

    def read(self) -> tuple[GpuUsage, ...]:
        """Return the usage of the GPUs, in their order."""
        if self._gpus and self._nvml is None:
            self._nvml, _, _ = open_library()
            if self._nvml is not None:
                self._register_xid_events()
        if self._nvml is None:
            return tuple(GpuUsage(state="no driver") for _ in self._gpus)
        xids = self._new_xids()
        usages = tuple(self._read_gpu(gpu, xids.get(gpu.uuid, ())) for gpu in self._gpus)
        if any(usage.state == "no driver" for usage in usages):
            self.close()  # the next reading opens it again
        return usages

    def close(self) -> None:
        """Close the library."""
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

    def _register_xid_events(self) -> None:
        """Register for the driver's error events (Xid) of the cards that support them."""
        nvml = self._nvml
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return
        for gpu in self._gpus:
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                nvml.nvmlDeviceRegisterEvents(
                    handle, nvml.nvmlEventTypeXidCriticalError, self._events
                )

    def _new_xids(self) -> dict[str, tuple[int, ...]]:
        xids: dict[str, tuple[int, ...]] = {}
        nvml = self._nvml
        if self._events is None:
            return xids
        with contextlib.suppress(nvml.NVMLError):  # also raised if there are no more events
            for _ in range(_MAX_XIDS):
                event = nvml.nvmlEventSetWait(self._events, 0)
                uuid = text_of(nvml.nvmlDeviceGetUUID(event.device))
                xids[uuid] = (*xids.get(uuid, ()), int(event.eventData))
        return xids

    def _read_gpu(self, gpu: Gpu, xids: tuple[int, ...]) -> GpuUsage:
        nvml = self._nvml
        states: list[GpuState] = []

        def query(call: Callable[[], Any]) -> Any:
            """Make one NVML call, unless an earlier one has shown that the card is gone."""
            if states:
                return None
            try:
                return call()
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
        used = query(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
        busy = query(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        power_w = _scaled(query(lambda: nvml.nvmlDeviceGetPowerUsage(handle)), 1e-3)
        energy_j = _scaled(query(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)), 1e-3)
        slowed = query(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
        usage = GpuUsage(
            utilisation=_scaled(busy, 1e-2),
            memory_used_bytes=None if used is None else int(used),
            power_w=power_w,
            temperature_c=query(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            clock_mhz=query(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=query(
                lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
            ),
            slowed_by=tuple(
                dict.fromkeys(word for bit, word in _SLOWED_BY.items() if slowed & bit)
            ),
            ecc_corrected=query(
                lambda: _ecc_errors(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)
            ),
            ecc_uncorrected=query(
                lambda: _ecc_errors(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
            ),
            xids=xids,
            processes=tuple(
                (process.pid, process.usedGpuMemory)
                for process in (
                    query(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
                )
            ),
            **self._since_last(gpu.uuid, handle, query, energy_j, power_w),
        )
        if states:
            self._handles.pop(gpu.uuid, None)
            self._before.pop(gpu.uuid, None)
            return GpuUsage(state=states[0], xids=xids)
        return usage

    def _since_last(
        self,
        uuid: str,
        handle: Any,
        query: Callable[..., Any],
        energy_j: float | None,
        power_w: float | None,
    ) -> dict[str, Any]:
        """Return the energy used and the bytes per second since the last reading."""
        ways = self._count_bytes(handle, query)
        now = _Counts(time.monotonic(), energy_j, power_w, ways)
        before = self._before.get(uuid)
        self._before[uuid] = now
        rates: list[float | None] = [None] * len(ways)
        used_j = None
        if before is not None and now.time_s > before.time_s:
            elapsed_s = now.time_s - before.time_s
            rates = [
                _rate(*pair, elapsed_s) for pair in zip(before.bytes_by_way, ways, strict=True)
            ]
            used_j = _rise(before.energy_j, energy_j)
            if used_j is None and power_w is not None:
                used_j = (
                    (power_w + (power_w if before.power_w is None else before.power_w))
                    / 2
                    * elapsed_s
                )
        if ways[0] is None and ways[1] is None:  # no counters, so NVML measures for 20 ms
            rates[:2] = self._measure_pcie(handle, query)
        names = ("pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received")
        return {f"{name}_bytes_per_s": rate for name, rate in zip(names, rates, strict=True)} | {
            "energy_j": used_j
        }

    def _count_bytes(self, handle: Any, query: Callable[..., Any]) -> tuple[float | None, ...]:
        """Return the byte counters: PCIe sent and received, NVLink sent and received."""
        nvml = self._nvml
        fields = [
            nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
        ]
        values = query(lambda: nvml.nvmlDeviceGetFieldValues(handle, fields))
        if values is None:
            return (None,) * len(fields)
        units = (1, 1, 1024, 1024)
        return tuple(
            _scaled(_value(value) if value.nvmlReturn == nvml.NVML_SUCCESS else None, unit)
            for value, unit in zip(values, units, strict=True)
        )

    def _measure_pcie(
        self, handle: Any, query: Callable[..., Any]
    ) -> tuple[float | None, float | None]:
        nvml = self._nvml
        sent = query(lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES))
        received = query(
            lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
        )
        return _scaled(sent, 1024), _scaled(received, 1024)


def _ecc_errors(nvml: Any, handle: Any, kind: int) -> int:
    return nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC)


def _state_after(nvml: Any, error: Any) -> GpuState | None:
    """Return the state of the card after an error, or None if only one value is affected."""
    if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_GPU_NOT_FOUND):
        return "lost"
    if error.value == nvml.NVML_ERROR_RESET_REQUIRED:
        return "needs reset"
    if error.value in (nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
        return "no driver"
    return None


def _value(field: Any) -> float | None:
    kind = int(field.valueType)
    if kind >= len(_VALUE_NAMES):
        return None
    return getattr(field.value, _VALUE_NAMES[kind])


def _scaled(value: float | None, factor: float) -> float | None:
    if value is None:
        return None
    return value * factor


def _rise(before: float | None, now: float | None) -> float | None:
    """Return by how much a counter rose, or None if it was reset."""
    if before is None or now is None or now < before:
        return None
    return now - before


def _rate(before: float | None, now: float | None, elapsed_s: float) -> float | None:
    rise = _rise(before, now)
    if rise is None:
        return None
    return rise / elapsed_s

"""Estimate the step time on a device that was not measured from one that was, within wide bounds.

A compute-bound step scales with the peak rates of the two devices, a memory-bound one with their
bandwidths, and one that waits for its host gets no faster at all: the truth lies in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.advisor.stored_advice import Estimate
from workbench.runs.provisioning.catalogue import Device

DEVICE_SLACK = 1.5
"""How far the truth may lie beyond the ratios of two data sheets.

Software uses some devices better.
"""
CPU_SLACK = 2.0
"""The same between two kinds of CPU. Clouds count the threads of a core as CPUs."""
MAX_UTILISATION = 0.6
"""No training gets closer to the peak rate of a data sheet."""


@dataclass(frozen=True)
class Transfer:
    """The factor between two step times and where it comes from.

    Attributes:
        factor: The factor for measured step times, or None if it cannot be estimated.
        reason: Where the factor comes from, or why there is none.
    """

    factor: Estimate | None
    reason: str


def transfer(
    measured: Device | None,
    target: Device | None,
    *,
    precision: str,
    measured_name: str,
    step_flops_per_s: float | None = None,
) -> Transfer:
    """Transfer step times from one device to another.

    Args:
        measured: The device they were measured on, or None for CPUs, and for a GPU that is not in
            the catalogue.
        target: The device they are estimated for, or None for CPUs.
        precision: fp32, bf16 or fp16.
        measured_name: The name of the measured device: "cpu", or as its driver reports it.
        step_flops_per_s: Operations per second of a measured worker, or None if unknown.
    """
    from_cpu = measured_name == "cpu"
    wanted = "CPUs"
    if target is not None:
        wanted = target.name
    devices = f"measured on {measured_name}, not on {wanted}"
    if from_cpu and target is None:
        return Transfer(
            Estimate(1.0, 1.0 / CPU_SLACK, CPU_SLACK, True),
            "measured on CPUs, maybe of another kind",
        )
    if target is None:
        return Transfer(None, f"{devices}: the step time on CPUs cannot be estimated")
    if measured is not None and measured.name == target.name:
        return Transfer(Estimate(1.0, 1.0, 1.0, False), f"measured on {measured_name}")
    if from_cpu:
        return _from_cpu(target, precision, step_flops_per_s, devices)
    if measured is None:
        return Transfer(
            None, f"{devices}: {measured_name} is not in the catalogue. Add it to `devices`"
        )
    ratios = [measured.memory_gb_per_s / target.memory_gb_per_s]
    rates = [device.teraflops.get(precision) for device in (measured, target)]  # type: ignore[call-overload]
    if rates[0] and rates[1]:
        ratios.append(rates[0] / rates[1])
    value = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return Transfer(
        Estimate(value, min(ratios) / DEVICE_SLACK, max(*ratios, 1.0) * DEVICE_SLACK, True),
        f"{devices}: scaled by their data sheets",
    )


def _from_cpu(
    target: Device, precision: str, step_flops_per_s: float | None, devices: str
) -> Transfer:
    peak = target.teraflops.get(precision)  # type: ignore[call-overload]
    if step_flops_per_s is None or peak is None:
        return Transfer(None, f"{devices}: the speed-up cannot be estimated")
    fastest = step_flops_per_s / (MAX_UTILISATION * peak * 1e12)
    if fastest >= 1.0:
        return Transfer(None, f"{devices}: the speed-up cannot be estimated")
    return Transfer(
        Estimate(math.sqrt(fastest), fastest, 1.0, True),
        f"{devices}: the speed may be anything up to {MAX_UTILISATION:.0%} of its peak. Measure on"
        " one first",
    )

"""How long a step takes on a device that nobody measured, from one that somebody did: within wide bounds.

What is compute-bound follows the peak rates of two devices, what is memory-bound their bandwidths, and what
waits for its host gets no faster at all: the truth lies between, which is all that is said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.advisor.advice import Estimate
from workbench.renting.catalogue import Device

DEVICE_SLACK = 1.5
"""How far beyond the ratios of two data sheets the truth may lie: no software uses two devices alike."""
CPU_SLACK = 2.0
"""Between CPUs of one kind and another; clouds count threads of a core as CPUs."""
MOST_UTILISATION = 0.6
"""No training comes nearer to a data sheet's peak."""


@dataclass(frozen=True)
class Carried:
    """What a step time is multiplied by, and on what that rests; None where nothing can be said."""

    factor: Estimate | None
    words: str


def carry(
    measured: Device | None,
    target: Device | None,
    *,
    precision: str,
    measured_name: str,
    step_flops_per_s: float | None = None,
) -> Carried:
    """Carry step times from a device to another.

    Args:
        measured: Where they were measured; None for CPUs, and for a GPU that the catalogue does not know.
        target: Where they are asked for; None for CPUs.
        precision: fp32, bf16 or fp16.
        measured_name: What was measured on, for people: "cpu", or as its driver gives it.
        step_flops_per_s: Operations a second that a worker did where it was measured; None where unknown.
    """
    from_cpu = measured_name == "cpu"
    here = "CPUs" if target is None else target.name
    said = f"measured on {measured_name}, this is {here}"
    if from_cpu and target is None:
        return Carried(Estimate(1.0, 1.0 / CPU_SLACK, CPU_SLACK, True), f"{said} of another kind, maybe")
    if target is None:
        return Carried(None, f"{said}: nothing says how long a step takes on CPUs")
    if measured is not None and measured.name == target.name:
        return Carried(Estimate(1.0, 1.0, 1.0, False), f"measured on {measured_name}")
    if from_cpu:
        return _from_cpu(target, precision, step_flops_per_s, said)
    if measured is None:
        return Carried(None, f"{said}: the catalogue does not know the first; add it to devices")
    ratios = [measured.memory_gb_per_s / target.memory_gb_per_s]
    rates = [device.teraflops.get(precision) for device in (measured, target)]  # type: ignore[call-overload]
    if rates[0] and rates[1]:
        ratios.append(rates[0] / rates[1])
    value = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return Carried(
        Estimate(value, min(ratios) / DEVICE_SLACK, max(*ratios, 1.0) * DEVICE_SLACK, True),
        f"{said}: carried over by their data sheets",
    )


def _from_cpu(target: Device, precision: str, step_flops_per_s: float | None, said: str) -> Carried:
    peak = target.teraflops.get(precision)  # type: ignore[call-overload]
    if step_flops_per_s is None or peak is None:
        return Carried(None, f"{said}: nothing says how much faster that is")
    least = step_flops_per_s / (MOST_UTILISATION * peak * 1e12)
    if least >= 1.0:
        return Carried(None, f"{said}: nothing says how much faster that is")
    return Carried(
        Estimate(math.sqrt(least), least, 1.0, True),
        f"{said}: anything from {MOST_UTILISATION:.0%} of its peak to no faster; measure on one first",
    )

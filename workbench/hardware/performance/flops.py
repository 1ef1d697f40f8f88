"""How many floating-point operations a step needs, and how close to the device's peak it runs.

The count is what the model needs: forward and backward once each, without recomputation, and only
matrix products and convolutions, because everything else is small.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

_TERA = 1e12
_PEAK_TERAFLOPS: tuple[tuple[str, dict[str, float]], ...] = (
    ("H200 NVL", {"fp32": 60.0, "bf16": 835.5, "fp16": 835.5}),
    ("H200", {"fp32": 67.0, "bf16": 989.5, "fp16": 989.5}),
    ("H100 NVL", {"fp32": 60.0, "bf16": 835.5, "fp16": 835.5}),
    ("H100 PCIe", {"fp32": 51.0, "bf16": 756.5, "fp16": 756.5}),
    ("H100", {"fp32": 67.0, "bf16": 989.5, "fp16": 989.5}),
    ("A100", {"fp32": 19.5, "bf16": 312.0, "fp16": 312.0}),
    ("A40", {"fp32": 37.4, "bf16": 149.7, "fp16": 149.7}),
    ("A30", {"fp32": 10.3, "bf16": 165.0, "fp16": 165.0}),
    ("A10", {"fp32": 31.2, "bf16": 125.0, "fp16": 125.0}),
    ("L40S", {"fp32": 91.6, "bf16": 362.0, "fp16": 362.0}),
    ("L4", {"fp32": 30.3, "bf16": 121.0, "fp16": 121.0}),
    ("V100-SXM2", {"fp32": 15.7, "fp16": 125.0}),
    ("V100-PCIE", {"fp32": 14.0, "fp16": 112.0}),
    ("T4", {"fp32": 8.1, "fp16": 65.0}),
)
"""By a word, or words, of the name that the driver gives: the first that fits counts.

Without sparsity, with which data sheets from Ampere on state twice as much; fp32 without TF32,
which torch's products do not use unless this is switched on.
"""

_MATRIX_SIZE = 768
_RATE_S = 0.05
"""Seconds that a CPU's rate is measured for."""


def count_flops(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    inputs: Any,
    targets: Any,
    call: Callable[[nn.Module, Any], Any] = nn.Module.__call__,
) -> int:
    """Count the floating-point operations of forward and backward over one batch, which are carried
    out.

    Attention is computed as plain products meanwhile, and recurrent layers step by step, because
    what a fused kernel does is not counted.

    Source: torch.utils.flop_counter; a product of [n, k] and [k, m] counts 2 n k m.

    Args:
        model: The model, on the device of the batch; its gradients are dropped.
        loss: (outputs, targets) -> a scalar.
        inputs: The batch, of any shape.
        targets: What belongs to it.
        call: How the model is called with the batch.

    Returns:
        Operations.
    """
    counter = FlopCounterMode(display=False)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="TF32 acceleration"
        )  # about flags that are left alone
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False), counter:
            loss(call(model, inputs), targets).backward()
    model.zero_grad(set_to_none=True)
    return counter.get_total_flops()


def gpu_peak_flops_per_s(name: str, precision: str) -> float | None:
    """Return the peak rate of a GPU by its data sheet.

    Source: NVIDIA's data sheets of V100 (2020), T4 (2019), A100 (2022), A40 (2022), A30 (2022), A10
    (2021), L4 (2023), L40S (2023), H100 (2024) and H200 (2024).

    Args:
        name: As the driver gives it, such as `NVIDIA A100-SXM4-80GB`.
        precision: fp32, bf16 or fp16.

    Returns:
        Operations a second of dense products; None where that is not known, as for a slice of a GPU
        (MIG).
    """
    words = f" {name} "
    if " MIG " in words:
        return None
    for known, rates in _PEAK_TERAFLOPS:
        # A10 is another one than A100 and A10G, but A100 is A100-SXM4-80GB.
        if any(f" {known}{end}" in words for end in (" ", "-")):
            rate = rates.get(precision)
            if rate is None:
                return None
            return rate * _TERA
    return None


def cpu_peak_flops_per_s(precision: str) -> float:
    """Return the peak rate of this process's CPUs, measured once by a product of matrices.

    It is what this process reaches with its threads and what else runs beside it, not a data
    sheet's number.

    Args:
        precision: fp32, bf16 or fp16.

    Returns:
        Operations a second.
    """
    return _measured_rate(precision, torch.get_num_threads())


@functools.lru_cache(maxsize=16)
def _measured_rate(precision: str, num_threads: int) -> float:
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    matrix = torch.full((_MATRIX_SIZE, _MATRIX_SIZE), 1e-3, dtype=dtype)
    shortest_s = float("inf")
    with torch.inference_mode():
        torch.mm(matrix, matrix)
        began_s = perf_counter()
        while perf_counter() - began_s < _RATE_S or shortest_s == float("inf"):
            started_s = perf_counter()
            torch.mm(matrix, matrix)
            shortest_s = min(shortest_s, perf_counter() - started_s)
    return 2.0 * _MATRIX_SIZE**3 / shortest_s


def peak_flops_per_s(device: torch.device, precision: str) -> float | None:
    """Return the peak rate of a worker's device.

    Args:
        device: The device.
        precision: fp32, bf16 or fp16.

    Returns:
        Operations a second, by the data sheet for a GPU and measured for a CPU; None where it is
        not known.
    """
    if device.type == "cuda":
        return gpu_peak_flops_per_s(torch.cuda.get_device_name(device), precision)
    if device.type == "cpu":
        return cpu_peak_flops_per_s(precision)
    return None


def utilisation(
    step_flops: float, step_time_s: float, peak_flops_per_s: float | None, num_workers: int = 1
) -> float | None:
    """Return which part of the devices' peak rate the operations of a model use.

    Source: Chowdhery et al. 2022, "PaLM", appendix B: model FLOPs utilisation.

    Args:
        step_flops: Operations of a step over all workers, forward and backward.
        step_time_s: Seconds a step takes, > 0.
        peak_flops_per_s: Peak rate of one device; None where it is not known.
        num_workers: Devices.

    Returns:
        From 0 to 1, never more, though a measured peak may be exceeded; None where the peak is not
        known.
    """
    if peak_flops_per_s is None:
        return None
    return min(1.0, step_flops / (step_time_s * peak_flops_per_s * num_workers))

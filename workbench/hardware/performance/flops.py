"""Count the floating-point operations of a step, and compare its rate with the device's peak.

The count is what the model needs: forward and backward once each, without recomputation. It
includes only matrix products and convolutions, because everything else is small.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
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
"""Peak rates by a part of the driver's name for a GPU. The first that matches counts.

The rates are without sparsity, for which data sheets from Ampere on give twice as much. fp32 is
without TF32, which torch does not use for products by default.
"""

_MATRIX_SIZE = 768
_RATE_S = 0.05
"""How long a CPU's rate is measured, in seconds."""


def count_flops(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    inputs: Any,
    targets: Any,
    call: Callable[[nn.Module, Any], Any] = nn.Module.__call__,
) -> int:
    """Count the floating-point operations of one forward and backward pass, which this runs.

    During the count, attention is computed with plain products, and recurrent layers step by step,
    because operations in fused kernels are not counted.

    Source: torch.utils.flop_counter; a product of [n, k] and [k, m] counts 2 n k m.

    Args:
        model: The model, on the device of the batch. Its gradients are dropped.
        loss: (outputs, targets) -> a scalar.
        inputs: The batch, of any shape.
        targets: The targets of the batch.
        call: How the model is called with the batch.

    Returns:
        The number of operations.
    """
    counter = FlopCounterMode(display=False)
    with warnings.catch_warnings():
        # The warning is about flags that this does not change.
        warnings.filterwarnings("ignore", message="TF32 acceleration")
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
        Operations per second of dense products. None if they are not known, as for a slice of a GPU
        (MIG).
    """
    padded = f" {name} "
    if " MIG " in padded:
        return None
    for pattern, rates in _PEAK_TERAFLOPS:
        # Only whole words match: A10 must not match A100 or A10G, but A100 must match
        # A100-SXM4-80GB.
        if any(f" {pattern}{end}" in padded for end in (" ", "-")):
            rate = rates.get(precision)
            if rate is None:
                return None
            return rate * _TERA
    return None


def cpu_peak_flops_per_s(precision: str) -> float:
    """Return the peak rate of this process's CPUs, measured once with a product of matrices.

    It is the rate that this process reaches with its threads and the current load of the machine,
    not the number of a data sheet.

    Args:
        precision: fp32, bf16 or fp16.

    Returns:
        Operations per second.
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
        Operations per second, from the data sheet for a GPU and measured for a CPU. None if they
        are not known.
    """
    if device.type == "cuda":
        return gpu_peak_flops_per_s(torch.cuda.get_device_name(device), precision)
    if device.type == "cpu":
        return cpu_peak_flops_per_s(precision)
    return None


def flops_per_token(model: nn.Module, length: int) -> float | None:
    """Count the operations that a model needs for one token, from its layers, without running it.

    A product with a matrix of N numbers takes 2 N operations forward, 2 N for the gradient of its
    input, and 2 N for its own gradient if it is trained. Attention to `length` tokens takes 12
    operations per token, layer and number of the width. Only the experts that a token uses count.

    Source: Chowdhery et al. 2022, "PaLM", appendix B.

    Args:
        model: The whole model, of any device, also without values.
        length: Tokens of a sample, at least 1.

    Returns:
        Operations of forward and backward. None if there is no matrix, or if it is unknown how many
        experts a token uses.
    """
    config = getattr(model, "config", None)
    used = _share_of_experts(config)
    total = 0.0
    for name, module in model.named_modules():
        is_expert = ".experts" in f".{name}"
        for weight, num_numbers in _matrices(module, is_expert=is_expert):
            if is_expert and used is None:
                return None
            share = used if is_expert and used is not None else 1.0
            total += (6.0 if weight.requires_grad else 4.0) * num_numbers * share
    return (total + 12.0 * length * _attention_width(model, config)) or None


def _matrices(module: nn.Module, *, is_expert: bool) -> Iterator[tuple[Tensor, int]]:
    """Yield the matrices of a module by which tokens are multiplied, and their sizes."""
    parameters = dict(module.named_parameters(recurse=False))
    weight = getattr(module, "weight", None)
    # 4-bit weights are packed, so the size follows from the layer.
    sizes = (getattr(module, "in_features", None), getattr(module, "out_features", None))
    if isinstance(weight, Tensor) and all(isinstance(size, int) for size in sizes):
        yield weight, sizes[0] * sizes[1]  # type: ignore[operator]
    elif type(module).__name__ == "Conv1D" and isinstance(weight, Tensor):  # of GPT-2
        yield weight, weight.numel()
    elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        yield from ((item, item.numel()) for item in parameters.values() if item.ndim == 2)
    elif is_expert:  # all experts of a layer in one tensor
        yield from ((item, item.numel()) for item in parameters.values() if item.ndim == 3)


def _share_of_experts(config: Any) -> float | None:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    num = next((value for name in names if (value := getattr(config, name, None))), None)
    used = getattr(config, "num_experts_per_tok", None)
    return used / num if num and used else None


def _attention_width(model: nn.Module, config: Any) -> int:
    """Return the width of all heads of a layer, summed over the layers."""
    layers, heads = (
        getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads")
    )
    if isinstance(layers, int) and isinstance(heads, int):
        own = getattr(config, "head_dim", None) or getattr(config, "hidden_size", 0) // heads
        return layers * heads * own
    width = 0
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            width += module.embed_dim
        else:
            heads, own = getattr(module, "num_heads", None), getattr(module, "head_width", None)
            width += heads * own if isinstance(heads, int) and isinstance(own, int) else 0
    return width


def utilisation(
    step_flops: float, step_time_s: float, peak_flops_per_s: float | None, num_workers: int = 1
) -> float | None:
    """Return the share of the devices' peak rate that the operations of a model use.

    Source: Chowdhery et al. 2022, "PaLM", appendix B: model FLOPs utilisation.

    Args:
        step_flops: Operations of a step over all workers, forward and backward.
        step_time_s: Seconds per step, > 0.
        peak_flops_per_s: Peak rate of one device, or None if it is not known.
        num_workers: Number of devices.

    Returns:
        A number from 0 to 1, even if a measured peak is exceeded. None if the peak is not known.
    """
    if peak_flops_per_s is None:
        return None
    return min(1.0, step_flops / (step_time_s * peak_flops_per_s * num_workers))

"""Quantisation-aware training: a model learns with the rounding that 8-bit integers will bring.

While it trains, inputs and weights of linear and convolutional layers are rounded as `quantisers`
will round them, and gradients pass as if they were not (straight-through). Afterwards it has 32-bit
floats again, which suit static quantisation.
Source: Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference (2018), section 3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.deploy.compression.quantisers import MAX_WEIGHT

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
_MOMENTUM = 0.05


def why_not_aware(model: nn.Module) -> str | None:
    """Return why a model cannot be trained with rounding; None if it can."""
    if _layers_of(model):
        return None
    return f"{type(model).__name__} has no linear or convolutional layer whose weights are its own"


@contextlib.contextmanager
def rounding(model: nn.Module) -> Iterator[None]:
    """Round inputs and weights of a model's layers for as long as the context lasts.

    Args:
        model: The model; its weights are floats again afterwards, and what it learned stays.
    """
    layers = _layers_of(model)
    ranges = [_Range() for _ in layers]
    handles = [
        layer.register_forward_pre_hook(each.round)
        for layer, each in zip(layers, ranges, strict=True)
    ]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", _RoundedWeight())
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for layer in layers:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


def _layers_of(model: nn.Module) -> list[nn.Module]:
    uses: dict[int, int] = {}
    for parameter in (each for _, each in model.named_parameters(remove_duplicate=False)):
        uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    return [
        module
        for module in model.modules()
        if isinstance(module, _LAYERS)
        and not parametrize.is_parametrized(module)
        and uses[id(module.weight)] == 1
    ]


class _RoundedWeight(nn.Module):
    """Weights as the integers of `quantisers` will hold them, with a scale for each output."""

    def forward(self, weight: Tensor) -> Tensor:
        scale = (weight.detach().flatten(1).abs().amax(dim=1) / MAX_WEIGHT).clamp_min(1e-12)
        zero = torch.zeros_like(scale, dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(
            weight, scale, zero, 0, -MAX_WEIGHT, MAX_WEIGHT
        )


class _Range:
    """The range of a layer's inputs, a moving mean of that of each batch, and inputs rounded within
    it.
    """

    def __init__(self) -> None:
        self._range: tuple[float, float] | None = None

    def round(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values = inputs[0]
        if module.training or self._range is None:
            low, high = (float(each) for each in torch.aminmax(values.detach()))
            known = self._range or (low, high)
            self._range = (
                known[0] + _MOMENTUM * (low - known[0]),
                known[1] + _MOMENTUM * (high - known[1]),
            )
        low, high = min(self._range[0], 0.0), max(self._range[1], 0.0)  # zero has to be exact
        scale = max((high - low) / 255, 1e-12)
        rounded = torch.fake_quantize_per_tensor_affine(values, scale, round(-low / scale), 0, 255)
        return (rounded, *inputs[1:])

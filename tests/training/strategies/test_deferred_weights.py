"""Layers whose weights wait have the gradients of plain ones, once what waits was called."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from workbench.training.strategies.pipeline import Waiting, defer_weights

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 6), (4, 6)),
    "linear without a bias, of sequences": (lambda: nn.Linear(6, 6, bias=False), (4, 3, 6)),
    "convolution": (lambda: nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2), (2, 4, 8, 8)),
    "convolution of sequences": (lambda: nn.Conv1d(4, 4, 3, dilation=2, bias=False), (2, 4, 9)),
    "what stays as it is": (lambda: nn.Conv2d(4, 4, 3, padding="same"), (2, 4, 8, 8)),
}


def step(
    model: nn.Module, inputs: Tensor, waiting: Waiting, precision: torch.dtype | None
) -> list[Any]:
    """Make two passes, as of two micro batches; return outputs and all gradients."""
    received = inputs.clone().requires_grad_()
    outputs = []
    for factor in (1.0, 2.0):
        with torch.autocast("cpu", precision, enabled=precision is not None):
            result = model(received * factor)
        result.float().square().mean().backward()
        outputs.append(result.detach())
    for add_gradients in waiting:
        add_gradients()
    return [*outputs, received.grad, *(each.grad for each in model.parameters())]


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_plain_layers(name: str, precision: torch.dtype | None) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), make(), nn.Tanh())
    inputs, plain, waiting = torch.randn(shape), copy.deepcopy(model), []
    defer_weights([model], waiting)
    gradients, expected = (
        step(model, inputs, waiting, precision),
        step(plain, inputs, [], precision),
    )
    assert bool(waiting) == (name != "what stays as it is")
    torch.testing.assert_close(gradients, expected, rtol=1e-5, atol=1e-6)
    assert [gradient.dtype for gradient in gradients] == [gradient.dtype for gradient in expected]


def test_nothing_waits_for_what_is_not_trained() -> None:
    model, waiting = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), []
    model[0].requires_grad_(False)
    defer_weights([model], waiting)
    with torch.no_grad():
        model(torch.ones(2, 3))
    model(torch.ones(2, 3)).sum().backward()
    assert len(waiting) == 1
    assert model[1].weight.grad is None
    waiting[0]()
    assert model[1].weight.grad is not None
    assert model[0].weight.grad is None


def test_a_layer_that_is_used_twice_has_both_gradients() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    model, waiting = nn.Sequential(layer, nn.Tanh(), layer), []
    plain = copy.deepcopy(model)
    defer_weights([model], waiting)
    inputs = torch.randn(2, 3)
    torch.testing.assert_close(step(model, inputs, waiting, None), step(plain, inputs, [], None))

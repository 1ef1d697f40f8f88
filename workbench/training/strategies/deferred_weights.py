"""Layers that compute the gradients of their inputs first, and of their weights later.

In a pipeline, the previous stage waits only for the gradients of the inputs. Linear and
convolutional layers can do this. All others compute both at once. When the deferred gradients are
computed is left to `pipeline`.

Source: Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

Waiting = list[Callable[[], None]]
"""Functions that add gradients to weights when they are called."""


def defer_weights(modules: Iterable[nn.Module], waiting: Waiting) -> None:
    """Let layers append the gradients of their weights to `waiting` in each backward pass.

    Args:
        modules: The modules with the layers. Their parameters must be whole.
        waiting: The list. Call everything of a backward pass before the weights are used.
    """
    for module in {layer for outer in modules for layer in outer.modules()}:
        kind = _KINDS.get(type(module))
        if kind is not None and kind.can_wait(module):
            # Changing the class keeps the module, its parameters and its hooks as they are.
            module.__class__ = kind
            cast(Any, module).waiting = waiting


class _Layer(nn.Module):
    """A layer whose weights get their gradients later."""

    weight: Tensor
    bias: Tensor | None
    waiting: Waiting

    @staticmethod
    def can_wait(layer: Any) -> bool:
        return True

    def forward(self, input: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and self.weight.requires_grad and self.is_batch(input)):
            return self.outputs(input)
        # The weight is an argument only so that autograd calls the backward pass even if the
        # inputs need no gradient.
        return _Later.apply(input, self.weight, self)

    def is_batch(self, inputs: Tensor) -> bool:
        return True

    def outputs(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)

    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        raise NotImplementedError

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError

    def add_gradients(self, inputs: Tensor, gradient: Tensor) -> None:
        for parameter, gradient_part in zip(
            (self.weight, self.bias), self.weight_gradients(inputs, gradient), strict=True
        ):
            if parameter is None or gradient_part is None or not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = gradient_part.to(parameter.dtype)
            else:
                parameter.grad += gradient_part


class _Linear(_Layer, nn.Linear):
    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        return gradient @ self.weight.to(gradient.dtype)

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        flat = gradient.reshape(-1, self.out_features)
        bias = flat.sum(0) if self.bias is not None else None
        return flat.t() @ inputs.reshape(-1, self.in_features), bias


class _Convolution(_Layer):
    @staticmethod
    def can_wait(layer: Any) -> bool:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)

    def is_batch(self, inputs: Tensor) -> bool:
        return inputs.ndim == self.weight.ndim

    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        return self._backward(inputs, gradient, True)[0]

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        _, weight, bias = self._backward(inputs, gradient, False)
        return weight, bias

    def _backward(
        self, inputs: Tensor, gradient: Tensor, is_of_inputs: bool
    ) -> tuple[Any, Any, Any]:
        layer: Any = self
        has_bias = self.bias is not None
        return torch.ops.aten.convolution_backward(
            gradient,
            inputs,
            self.weight.to(gradient.dtype),
            [layer.out_channels] if has_bias else None,
            layer.stride,
            layer.padding,
            layer.dilation,
            False,
            layer.output_padding,
            layer.groups,
            [is_of_inputs, not is_of_inputs, has_bias and not is_of_inputs],
        )


class _Convolution1d(_Convolution, nn.Conv1d):
    pass


class _Convolution2d(_Convolution, nn.Conv2d):
    pass


_KINDS: dict[type[nn.Module], type[_Layer]] = {
    nn.Linear: _Linear,
    nn.Conv1d: _Convolution1d,
    nn.Conv2d: _Convolution2d,
}


class _Later(torch.autograd.Function):
    """A layer whose backward pass skips the weights, and adds them to the waiting list."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, layer: _Layer) -> Tensor:
        outputs = layer.outputs(inputs)
        ctx.save_for_backward(inputs.to(outputs.dtype))  # as autocast does
        ctx.layer = layer
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        (inputs,) = ctx.saved_tensors
        layer: _Layer = ctx.layer
        layer.waiting.append(functools.partial(layer.add_gradients, inputs, gradient))
        gradient_of_inputs = None
        if ctx.needs_input_grad[0]:
            gradient_of_inputs = layer.input_gradient(inputs, gradient)
        return gradient_of_inputs, None, None

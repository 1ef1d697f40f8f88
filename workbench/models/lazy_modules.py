"""Lazy modules, such as `torch.nn.LazyLinear`, whose shapes follow from the first input that they
receive.

They are set up before anything counts, shares or trains the parameters. Where the input comes from
is left to training.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parameter import is_lazy

from workbench.foundation.errors import ExperimentError
from workbench.models.calls import Inputs, call_model
from workbench.models.layers import needs_values, refuse_inputs


def has_lazy(model: nn.Module) -> bool:
    """Return whether a model has parameters or buffers without a shape."""
    return any(map(is_lazy, itertools.chain(model.parameters(), model.buffers())))


def set_up_lazy(
    model: nn.Module, inputs: Inputs, call: Callable[[nn.Module, Inputs], Any] = call_model
) -> None:
    """Send a batch through a model, so that its lazy modules get their shapes and initial values.

    The batch changes nothing else: statistics and modes stay as they are.

    Args:
        model: The model.
        inputs: A batch that it takes, samples first.
        call: How it is called with the batch.

    Raises:
        ExperimentError: If the model cannot take the batch, or does not use all of its modules.
    """
    modes = {module: module.training for module in model.modules()}
    try:
        for is_training in (False, True):  # some modules are used in training only
            model.train(is_training)
            with torch.no_grad():
                call(model, inputs)
            if not has_lazy(model):
                return
    except (ExperimentError, *needs_values()):
        raise
    except Exception as error:  # user code
        raise refuse_inputs(error, inputs, "") from error
    finally:
        for module, was_training in modes.items():
            module.training = was_training
    names = [
        name
        for name, item in itertools.chain(model.named_parameters(), model.named_buffers())
        if is_lazy(item)
    ]
    raise ExperimentError(
        f"the lazy modules of {', '.join(names)} have no shape after a forward pass",
        field="model",
        next_step="Use them in forward, or remove them.",
    )


def make_fake(model: nn.Module, mode: FakeTensorMode) -> dict[Tensor, Tensor]:
    """Replace the parameters and buffers of a model by fake ones of the same shape, shared ones
    once.

    Returns:
        The fake ones by those that they replace.
    """
    known: dict[Tensor, Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    if tensor not in known:
                        known[tensor] = mode.from_tensor(tensor)
                    held[name] = known[tensor]  # type: ignore[assignment]
    return known

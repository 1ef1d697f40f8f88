"""Initialises the weights of a model, before its parameters are counted, shared or trained.

Lazy modules, such as `torch.nn.LazyLinear`, get their shapes from the first input that they
receive. If an experiment sets an initialisation, weights are drawn again.

Sources: He et al., Delving Deep into Rectifiers (2015). Glorot and Bengio, Understanding the
Difficulty of Training Deep Feedforward Neural Networks (2010). Saxe et al., Exact Solutions to the
Nonlinear Dynamics of Learning in Deep Linear Neural Networks (2014).
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

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

    The batch changes nothing else: statistics and modes stay the same.

    Args:
        model: The model.
        inputs: A batch for the model, samples first.
        call: How the model is called with the batch.

    Raises:
        ExperimentError: If the model cannot take the batch, or does not use all of its modules.
    """
    modes = {module: module.training for module in model.modules()}
    try:
        for is_training in (False, True):  # some modules are only used in training
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
    """Replace the parameters and buffers of a model with fake tensors of the same shape.

    Returns:
        The fake tensors, by the tensors that they replace. A shared tensor has a single one.
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


_FILL: dict[str, Callable[[Tensor], Any]] = {
    "he": functools.partial(nn.init.kaiming_normal_, nonlinearity="relu"),
    "xavier": nn.init.xavier_normal_,
    "orthogonal": nn.init.orthogonal_,
}
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def initialise(model: nn.Module, way: str) -> None:
    """Draw the weights of all linear and convolutional layers again, in place.

    Biases, normalisations and embeddings do not change, and neither do weights that a layer shares
    with another module.

    Args:
        model: Any model.
        way: `he`, `xavier` or `orthogonal`. `default` changes nothing.
    """
    if way == "default":
        return
    owners = Counter(
        id(parameter)
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
    )
    for module in model.modules():
        if not isinstance(module, _LAYERS) or parametrize.is_parametrized(module):
            continue
        if owners[id(module.weight)] == 1:
            _FILL[way](module.weight)

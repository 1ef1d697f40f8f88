"""The layers of a model in their order, with output shapes, parameters and weights.

It works on any `torch.nn.Module`, and with torch's fake tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from workbench.foundation.errors import ExperimentError, WorkbenchError, first_line_of
from workbench.models.model_calls import Inputs, call_model, describe_inputs, num_samples


@dataclass(frozen=True)
class Layer:
    """One module of a model.

    Attributes:
        name: The path of the module, such as `blocks.0.attention`.
        kind: The name of its class.
        depth: How many modules contain it, not counting the model itself.
        output_shape: Shape of its output for one sample. If the samples do not come first, the
            shape for all of them. None if it returns no tensor, or is never called itself.
        num_parameters: Parameters of the module and of all modules in it. Shared parameters only
            count at their first place.
        shares: The module that owns the parameters of this one, or "" if they are its own.
    """

    name: str
    kind: str
    depth: int
    output_shape: tuple[int, ...] | None
    num_parameters: int
    shares: str = ""


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer, for the same layer of another framework.

    Attributes:
        name: The path of the module.
        kind: The name of its class, such as `Linear`.
        arrays: Its parameters and buffers by name. Each layer of an LSTM counts on its own, and its
            names have no suffix: `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`.
    """

    name: str
    kind: str
    arrays: dict[str, np.ndarray[Any, Any]]


def weights_of_layers(model: nn.Module) -> Iterator[LayerWeights]:
    """Yield the layers that have weights, in the order of their definition.

    Weights that are shared only count at their first place.

    Args:
        model: The model.
    """
    seen: set[int] = set()
    for name, module in model.named_modules():
        of_layers: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
        held = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        for key, value in held:
            if id(value) in seen or not value.ndim:  # a buffer may count steps
                continue
            seen.add(id(value))
            stem, number = key, ""
            if isinstance(module, nn.RNNBase):
                stem, _, number = key.rpartition("_l")
            # A copy, because another framework may keep the memory that torch trains in.
            of_layers.setdefault(number, {})[stem] = value.detach().cpu().numpy().copy()
        for arrays in of_layers.values():
            yield LayerWeights(name, type(module).__name__, arrays)


def describe_layers(
    model: nn.Module, inputs: Inputs, call: Callable[[nn.Module, Inputs], Any] = call_model
) -> list[Layer]:
    """Send a batch through a model and describe its modules in the order of their definition.

    Args:
        model: The model.
        inputs: A batch for the model, samples first.
        call: How the model is called with the batch.

    Raises:
        ExperimentError: If the model cannot take the batch. The message says which module failed.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    inside: list[str] = []
    modules = {name: module for name, module in model.named_modules() if name}
    handles = [
        handle
        for name, module in modules.items()
        for handle in (
            module.register_forward_pre_hook(_entering(name, inside)),
            module.register_forward_hook(_leaving(name, inside, shapes)),
        )
    ]
    try:
        call(model, inputs)
    except (WorkbenchError, *needs_values()):
        raise
    except Exception as error:  # user code
        # `inside` ends with the module whose forward pass did not return.
        where = "".join(f"{name}, " for name in inside[-1:])
        raise refuse_inputs(error, inputs, where) from error
    finally:
        for handle in handles:
            handle.remove()
    return list(_layers(model, modules, shapes, num_samples(inputs)))


def needs_values() -> tuple[type[Exception], ...]:
    """Return the errors that torch raises if code reads the values of fake tensors."""
    from torch._subclasses import fake_tensor

    return (
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedOperatorException,
    )


def refuse_inputs(error: Exception, inputs: Inputs, where: str) -> ExperimentError:
    """Return an ExperimentError for inputs that a model cannot take."""
    return ExperimentError(
        f"the model cannot take the data: {where}{type(error).__name__}: {first_line_of(error)}",
        field="model",
        allowed=describe_inputs(inputs),
        next_step="Change the model, or choose data that it can take.",
    )


def _entering(name: str, inside: list[str]) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any) -> None:
        inside.append(name)

    return hook


def _leaving(
    name: str, inside: list[str], shapes: dict[str, tuple[int, ...]]
) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any, returned: Any) -> None:
        inside.pop()
        tensor = _first_tensor(returned)
        if tensor is not None:
            shapes.setdefault(name, tuple(tensor.shape))

    return hook


def _first_tensor(returned: Any) -> Tensor | None:
    leaves = tree_leaves(returned)
    return next((leaf for leaf in leaves if isinstance(leaf, Tensor)), None)


def _layers(
    model: nn.Module, modules: dict[str, nn.Module], shapes: dict[str, tuple[int, ...]], size: int
) -> Iterator[Layer]:
    owners: dict[int, str] = {}
    held = dict.fromkeys(modules, 0)
    shares = dict.fromkeys(modules, "")
    for name, module in [("", model), *modules.items()]:
        for parameter in module.parameters(recurse=False):
            owner = owners.setdefault(id(parameter), name)
            if owner != name:
                shares[name] = shares[name] or owner
                continue
            for outer in _outwards(name):
                held[outer] += parameter.numel()
    for name, module in modules.items():
        shape = shapes.get(name)
        if shape is not None and shape[:1] == (size,):
            shape = shape[1:]
        yield Layer(
            name=name,
            kind=type(module).__name__,
            depth=name.count("."),
            output_shape=shape,
            num_parameters=held[name],
            shares=shares[name],
        )


def _outwards(name: str) -> Iterator[str]:
    """Yield a module's name and the names of all modules that contain it."""
    while name:
        yield name
        name = name.rpartition(".")[0]

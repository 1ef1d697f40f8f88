"""How a model is called with a batch, and which part of what it returns is its output and which its
loss.

A batch is a tensor, a tuple of several inputs, or a mapping of named ones; a model may return a
tensor, a tuple, a mapping or a dataclass. How samples become a batch is left to data and training.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree

_OUTPUTS = (
    "logits",
    "out",
    "output",
    "outputs",
    "pred",
    "preds",
    "prediction",
    "predictions",
    "y_pred",
    "y_hat",
)
"""The names of outputs beside others, such as those of an auxiliary classifier or hidden states."""
Inputs = Any
"""A tensor, a tuple of inputs, or a mapping of named ones."""


def call_model(model: nn.Module, inputs: Inputs) -> Any:
    """Call a model with a batch.

    Args:
        model: The model, or what a strategy placed around it.
        inputs: A tensor is the only argument, the members of a tuple are several. Of a mapping,
            `forward` receives the entries that it names, or the whole as one argument where it
            names none.
    """
    if isinstance(inputs, Mapping):
        named = _named_arguments(model, inputs)
        return model(inputs) if named is None else model(**named)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def loss_in(outputs: Any) -> Tensor | None:
    """Return the loss that a model returned; None where there is none.

    It is the entry or attribute `loss`, the only scalar of a tuple, or the scalar that was
    returned.
    """
    if isinstance(outputs, Tensor):
        return outputs if outputs.ndim == 0 else None
    if isinstance(outputs, tuple | list) and not hasattr(outputs, "_fields"):
        scalars = [item for item in outputs if isinstance(item, Tensor) and item.ndim == 0]
        return scalars[0] if len(scalars) == 1 else None
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    return loss if isinstance(loss, Tensor) else None


def output_in(outputs: Any) -> Any:
    """Return what is compared with targets.

    `logits`, `out` or `pred`, else the first tensor with dimensions.

    Anything without a tensor is returned as it is.
    """
    if isinstance(outputs, Tensor):
        return outputs
    for name in _OUTPUTS:
        output = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
        if isinstance(output, Tensor) and (output.ndim > 0 or name == "logits"):
            return output
    return next((item for item in _tensors(outputs) if item.ndim > 0), outputs)


def num_samples(batch: Any) -> int:
    """Return the number of samples of inputs or targets.

    The length of their first tensor or list.
    """
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if isinstance(batch, tuple):
        sizes = (num_samples(part) for part in batch)
        return next((size for size in sizes if size), 0)
    return len(batch) if hasattr(batch, "__len__") and getattr(batch, "ndim", 1) else 0


def map_tensors(function: Any, batch: Any) -> Any:
    """Return a batch with `function` applied to each of its tensors; what else it holds stays."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {name: map_tensors(function, part) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, part) for part in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(map_tensors(function, part) for part in batch)
    return batch


def map_outputs(function: Any, outputs: Any) -> Any:
    """Return outputs as `map_tensors` does.

    A mapping keeps its type, as a loss may read attributes of it.
    """
    if isinstance(outputs, Mapping):
        return type(outputs)(map_tensors(function, outputs))  # type: ignore[call-arg]
    return map_tensors(function, outputs)


def describe_inputs(inputs: Inputs) -> str:
    """Return the types and shapes of inputs, the samples first."""
    if isinstance(inputs, Mapping):
        return ", ".join(f"{name}: {describe_inputs(part)}" for name, part in inputs.items())
    if isinstance(inputs, tuple | list):
        return ", ".join(describe_inputs(part) for part in inputs)
    if isinstance(inputs, Tensor):
        return (
            f"{str(inputs.dtype).removeprefix('torch.')} inputs of shape"
            f" {('batch', *inputs.shape[1:])}"
        )
    return f"an object of type {type(inputs).__name__}"


def _tensors(outputs: Any) -> Iterable[Tensor]:
    if dataclasses.is_dataclass(outputs) and not isinstance(outputs, Mapping | type):
        outputs = [getattr(outputs, field.name) for field in dataclasses.fields(outputs)]
    return [leaf for leaf in _pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _named_arguments(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `forward` by name; None where the whole mapping is its only one."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    inner = getattr(inner, "_orig_mod", inner)
    parameters = list(inspect.signature(type(inner).forward).parameters.values())[1:]
    by_name = {
        item.name
        for item in parameters
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
    }
    takes_all = any(item.kind is item.VAR_KEYWORD for item in parameters)
    named = {str(name): part for name, part in inputs.items() if takes_all or name in by_name}
    needed = [
        item.name for item in parameters if item.default is item.empty and item.name in by_name
    ]
    is_whole = not named or (len(needed) == 1 and needed[0] not in inputs)
    return None if is_whole else named

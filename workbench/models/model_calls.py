"""Calls a model with a batch, and finds the output and the loss in its result.

A batch is a tensor, a tuple of several inputs, or a mapping of named inputs. A model may return a
tensor, a tuple, a mapping or a dataclass. Making batches of samples is left to `workbench.data`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
"""Names that mark the output among other results, such as auxiliary outputs or hidden states."""
Inputs = Any
"""A tensor, a tuple of inputs, or a mapping of named inputs."""


class TokenLosses(NamedTuple):
    """What a language model has measured itself, so that its scores need not be kept.

    Attributes:
        total: The sum of the negative log-likelihoods of the targets that count, in nats.
        num: How many targets count.
        num_right: How many of them have the highest score.
    """

    total: Tensor
    num: Tensor
    num_right: Tensor


class AnswerRewards(NamedTuple):
    """How much more likely a training has made two answers to each prompt.

    A reward is beta times the difference of the log-likelihoods of an answer, in nats, between the
    trained model and the reference.

    Attributes:
        chosen: The reward of each preferred answer, (pairs,).
        rejected: The reward of each other answer, (pairs,).
    """

    chosen: Tensor
    rejected: Tensor


class EmbeddedPairs(NamedTuple):
    """Pairs of texts that belong together, as vectors of length 1.

    Attributes:
        first: The first text of each pair, (pairs, width).
        second: The second text of each pair, (pairs, width).
        temperature: What cosines are divided by to get scores, a scalar.
    """

    first: Tensor
    second: Tensor
    temperature: Tensor


def call_model(model: nn.Module, inputs: Inputs) -> Any:
    """Call a model with a batch.

    Args:
        model: The model, perhaps wrapped by a strategy.
        inputs: A tensor is the only argument, and the members of a tuple are several. From a
            mapping, `forward` receives the entries that have the names of its parameters. If there
            are none, it receives the mapping as its only argument.
    """
    if isinstance(inputs, Mapping):
        named = _named_arguments(model, inputs)
        if named is not None:
            return model(**named)
    elif isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(inputs)


def needed_inputs(model: nn.Module, inputs: Inputs, targets: Collection[str]) -> Inputs:
    """Return the inputs that a model needs to answer, without those that only training has.

    Args:
        model: The model, in evaluation mode.
        inputs: A batch as training has it.
        targets: Names under which a mapping may hold what is to be predicted.

    Returns:
        The entries of a mapping that `forward` takes, without targets that change no output.
        Anything else is returned unchanged.
    """
    if not isinstance(inputs, Mapping):
        return inputs
    needed = dict(_named_arguments(model, inputs) or inputs)
    for name in [name for name in targets if name in needed and len(needed) > 1]:
        others = {other: part for other, part in needed.items() if other != name}
        try:
            known = output_in(call_model(model, needed))
            changed = output_in(call_model(model, others))
        except Exception:  # the model cannot do without it
            continue
        if (
            isinstance(known, Tensor)
            and isinstance(changed, Tensor)
            and torch.equal(known, changed)
        ):
            needed = others
    return needed


def loss_in(outputs: Any) -> Tensor | None:
    """Return the loss in a model's result, or None.

    It is the entry or attribute `loss`, the only scalar of a tuple, or the whole result if that is
    a scalar.
    """
    if isinstance(outputs, Tensor):
        scalars = [outputs] if outputs.ndim == 0 else []
    elif isinstance(outputs, tuple | list) and not hasattr(outputs, "_fields"):
        scalars = [item for item in outputs if isinstance(item, Tensor) and item.ndim == 0]
    else:
        scalars = [loss for loss in [_entry(outputs, "loss")] if isinstance(loss, Tensor)]
    if len(scalars) != 1:
        return None
    return scalars[0]


def output_in(outputs: Any) -> Any:
    """Return the part of a model's result that is compared with targets.

    It is the entry `logits`, `out` or `pred`, or else the first tensor that is not a scalar. A
    result without such a tensor is returned unchanged.
    """
    if isinstance(outputs, Tensor):
        return outputs
    for name in _OUTPUTS:
        output = _entry(outputs, name)
        if isinstance(output, Tensor) and (output.ndim > 0 or name == "logits"):
            return output
    return next((item for item in _tensors(outputs) if item.ndim > 0), outputs)


def num_samples(batch: Any) -> int:
    """Return the number of samples in inputs or targets: the length of the first tensor or list."""
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if isinstance(batch, tuple):
        sizes = (num_samples(part) for part in batch)
        return next((size for size in sizes if size), 0)
    if not hasattr(batch, "__len__") or getattr(batch, "ndim", 1) == 0:
        return 0
    return len(batch)


def map_tensors(function: Any, batch: Any) -> Any:
    """Return a batch with `function` applied to each of its tensors."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {name: map_tensors(function, part) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, part) for part in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(map_tensors(function, part) for part in batch)
    return batch


def named_tensors(inputs: Inputs) -> dict[str, Tensor]:
    """Return the tensors of a batch by name, in the order in which `map_tensors` visits them.

    An entry of a mapping or a tuple inside of another is named by both, such as `image.left`.

    Args:
        inputs: A batch. Entries that are None are left out.

    Raises:
        ValueError: If an entry is neither a tensor nor None, or two have the same name.

    Example:
        >>> one = torch.ones(2)
        >>> list(named_tensors({"image": {"left": one, "mask": None}, "sizes": (one, one)}))
        ['image.left', 'sizes.0', 'sizes.1']
        >>> list(named_tensors((one, one)))
        ['inputs_0', 'inputs_1']
    """
    if isinstance(inputs, Tensor):
        return {"inputs": inputs}
    entries = _entries(inputs)
    if not isinstance(inputs, Mapping) and not hasattr(inputs, "_fields"):
        entries = {f"inputs_{place}": part for place, part in entries.items()}
    return _flattened(entries, "")


def tensors_named(inputs: Inputs, names: Sequence[str]) -> dict[str, Tensor]:
    """Return some tensors of a batch, in the order of their names.

    Args:
        inputs: A batch. Entries of a mapping without these names may be anything.
        names: Names as `named_tensors` returns them.

    Raises:
        ValueError: If the batch has no tensor of such a name.

    Example:
        >>> one = torch.ones(2)
        >>> list(tensors_named({"id": ["x"], "image": {"left": one}}, ["image.left"]))
        ['image.left']
    """
    if isinstance(inputs, Mapping):
        tops = {name.partition(".")[0] for name in names} | set(names)
        inputs = {name: part for name, part in inputs.items() if str(name) in tops}
    tensors = named_tensors(inputs)
    if absent := [name for name in names if name not in tensors]:
        raise ValueError(f"the samples have no input {absent[0]!r}, but {', '.join(tensors)}")
    return {name: tensors[name] for name in names}


def _flattened(entries: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for key, part in entries.items():
        name = prefix + key
        if isinstance(part, Tensor):
            inside = {name: part}
        elif part is None:
            inside = {}
        elif isinstance(part, Mapping | tuple) or _holds_tensors(part):
            inside = _flattened(_entries(part), f"{name}.")
        else:
            raise ValueError(f"the input {name!r} is of type {type(part).__name__}, not a tensor")
        if twice := tensors.keys() & inside:
            raise ValueError(f"two inputs have the name {min(twice)!r}")
        tensors |= inside
    return tensors


def _holds_tensors(part: Any) -> bool:
    return isinstance(part, list) and any(isinstance(item, Tensor) for item in part)


def _entries(inputs: Any) -> dict[str, Any]:
    if hasattr(inputs, "_fields"):
        inputs = inputs._asdict()
    if isinstance(inputs, Mapping):
        return {str(name): part for name, part in inputs.items()}
    return {str(place): part for place, part in enumerate(inputs)}


def map_outputs(function: Any, outputs: Any) -> Any:
    """Return outputs with `function` applied to each tensor.

    A mapping keeps its type, because a loss may read its attributes.
    """
    if isinstance(outputs, Mapping):
        return type(outputs)(map_tensors(function, outputs))  # type: ignore[call-arg]
    return map_tensors(function, outputs)


def describe_inputs(inputs: Inputs) -> str:
    """Return the types and shapes of inputs in words, samples first."""
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


def _entry(outputs: Any, name: str) -> Any:
    if isinstance(outputs, Mapping):
        return outputs.get(name)
    return getattr(outputs, name, None)


def _tensors(outputs: Any) -> Iterable[Tensor]:
    if dataclasses.is_dataclass(outputs) and not isinstance(outputs, Mapping | type):
        outputs = [getattr(outputs, field.name) for field in dataclasses.fields(outputs)]
    return [leaf for leaf in _pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _named_arguments(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `forward` by name, or None if the mapping is its only argument."""
    inner = model
    if isinstance(model, DistributedDataParallel):
        inner = model.module
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
    takes_whole = len(needed) == 1 and needed[0] not in inputs
    if not named or takes_whole:
        return None
    return named

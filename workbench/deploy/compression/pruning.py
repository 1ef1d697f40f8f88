"""Structured pruning: channels that one layer computes and one other layer reads are removed from
both.

The number that stays is rounded to what processors compute at once: a model with 45 channels is no
faster than one with 48. Channels that are added to others, as between the blocks of a residual
network, stay whole. Training what is left is done by `compression`.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.foundation.errors import ExperimentError, first_line_of
from workbench.models.convolutional import BasicBlock, ConvNet
from workbench.models.transformer import Block

FIELD = "search.pruning"
_BY_CHANNEL = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Hardswish,
    nn.Identity,
    nn.Dropout,
    nn.Dropout2d,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_WIDE = 64
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Channels:
    """Channels that only two layers know: one computes them, the other reads them.

    Attributes:
        producer: Name of the layer that computes them.
        norms: Names of the batch normalisations between the two.
        consumer: Name of the layer that reads them.
        count: How many there are.
    """

    producer: str
    norms: tuple[str, ...]
    consumer: str
    count: int


def find_channels(model: nn.Module) -> list[Channels]:
    """Return the channels of a model that can be removed without changing its inputs and outputs.

    They are found in every `nn.Sequential`, and in the blocks of the zoo's models.

    Args:
        model: Any model.
    """
    modules = dict(model.named_modules())
    inner = {
        f"{name}.{part}" if name else part
        for name, module in modules.items()
        if isinstance(module, nn.Sequential)
        for part, _ in module.named_children()
    }
    channels: list[Channels] = []
    for name, module in modules.items():
        prefix = f"{name}." if name else ""
        match module:
            case nn.Sequential() if name not in inner:
                channels += _in_chain(list(_flat(name, module)))
            case ConvNet():
                channels += _in_chain(
                    [*_flat(f"{prefix}features", module.features), _part(prefix, "output", module)]
                )
            case BasicBlock():
                names = ("conv1", "norm1", "conv2")
                channels += _in_chain([_part(prefix, item, module) for item in names])
            case Block():
                names = ("feedforward_input", "feedforward_output")
                channels += _in_chain([_part(prefix, item, module) for item in names])
    shared = _shared_layers(model)
    unique = {item.producer: item for item in channels}.values()
    return [item for item in unique if not shared & {item.producer, item.consumer, *item.norms}]


def scales_of(model: nn.Module) -> list[nn.Parameter]:
    """Return the factors of the channels that can be removed, of the normalisations that they pass.

    Training with a penalty on their sizes shows which channels are dispensable.
    Source: Liu et al., Learning Efficient Convolutional Networks through Network Slimming (2017).
    """
    modules = dict(model.named_modules())
    norms = {name for channels in find_channels(model) for name in channels.norms}
    weights = [modules[name].weight for name in sorted(norms)]
    return [weight for weight in weights if isinstance(weight, nn.Parameter)]


def num_kept(count: int, ratio: float) -> int:
    """Return how many of some channels stay, in the multiples that processors compute at once.

    Args:
        count: How many there are.
        ratio: The share to remove.
    """
    multiple = 16 if count >= _WIDE else 8
    kept = max(multiple, round(count * (1 - ratio) / multiple) * multiple)
    return count if ratio <= 0 else min(count, kept)


def why_not_pruned(model: nn.Module) -> str | None:
    """Return why no channel of a model can be removed, or None if some can."""
    channels = find_channels(model)
    if not channels:
        return (
            f"{type(model).__name__} has no channels that one linear or convolutional layer"
            " computes and only one other reads"
        )
    if all(num_kept(group.count, 0.99) == group.count for group in channels):
        return f"{type(model).__name__} has too few channels: 8 of each layer are left in any case"
    return None


def prune(model: nn.Module, ratio: float, example: Tensor | tuple[Tensor, ...]) -> nn.Module:
    """Return a copy of a model without the channels that matter least, by the norms of their
    weights.

    Args:
        model: The model. It is not changed.
        ratio: The share of channels to remove, of every layer that allows it.
        example: Inputs, by which the result is checked. A tuple holds several arguments.

    Returns:
        The smaller model, which computes what the model would with those channels at zero.

    Raises:
        ExperimentError: If no channel can be removed, or the model reads channels in a way that is
            not known.
    """
    smaller = copy.deepcopy(model)
    if ratio <= 0:
        return smaller
    if (reason := why_not_pruned(model)) is not None:
        raise ExperimentError(f"cannot be pruned: {reason}", field=FIELD, allowed="0")
    kept = choose_kept(model, ratio)
    silenced = silence(model, kept)
    for channels, indices in kept.items():
        _remove(smaller, channels, indices)
    _check_same(silenced, smaller, example)
    return smaller


def choose_kept(model: nn.Module, ratio: float) -> dict[Channels, Tensor]:
    """Return which channels stay: those with the largest weights, in their order."""
    modules = dict(model.named_modules())
    kept = {}
    for channels in find_channels(model):
        number = num_kept(channels.count, ratio)
        if number < channels.count:
            importance = _importance(modules, channels)
            kept[channels] = importance.topk(number).indices.sort().values
    return kept


def silence(model: nn.Module, kept: Mapping[Channels, Tensor]) -> nn.Module:
    """Return a copy of a model of the same size that ignores all but the channels that are kept."""
    silenced = copy.deepcopy(model)
    modules: dict[str, Any] = dict(silenced.named_modules())
    for channels, indices in kept.items():
        dropped = torch.ones(channels.count, dtype=torch.bool)
        dropped[indices] = False
        with torch.no_grad():
            weight = modules[channels.consumer].weight
            _by_channel(weight, channels.count)[:, dropped] = 0.0
    return silenced


def _part(prefix: str, name: str, owner: nn.Module) -> tuple[str, nn.Module]:
    return f"{prefix}{name}", getattr(owner, name)


def _flat(name: str, sequence: nn.Sequential) -> Iterator[tuple[str, nn.Module]]:
    for part, module in sequence.named_children():
        path = f"{name}.{part}" if name else part
        if isinstance(module, nn.Sequential):
            yield from _flat(path, module)
        else:
            yield path, module


def _in_chain(layers: list[tuple[str, nn.Module]]) -> Iterator[Channels]:
    """Yield the channels between layers that are applied one after the other."""
    producer: tuple[str, Any] | None = None
    norms: list[str] = []
    for name, layer in layers:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            if producer is not None and _reads(producer[1], layer):
                yield Channels(producer[0], tuple(norms), name, producer[1].weight.shape[0])
            is_plain = getattr(layer, "groups", 1) == 1 and not parametrize.is_parametrized(layer)
            producer, norms = ((name, layer) if is_plain else None), []
        elif producer is not None and isinstance(layer, _NORMS):
            norms.append(name)
            if layer.num_features != producer[1].weight.shape[0]:
                producer = None
        elif not isinstance(layer, (*_BY_CHANNEL, nn.Flatten)):
            producer = None


def _reads(producer: Any, consumer: Any) -> bool:
    """Return whether a layer reads the channels of another one after the other."""
    if getattr(consumer, "groups", 1) != 1 or parametrize.is_parametrized(consumer):
        return False
    count, inputs = producer.weight.shape[0], consumer.weight.shape[1]
    if isinstance(consumer, nn.Conv2d) or isinstance(producer, nn.Linear):
        return type(producer) is type(consumer) and inputs == count
    return (
        inputs % count == 0
    )  # pixels of a channel come one after the other where they are flattened


def _shared_layers(model: nn.Module) -> set[str]:
    """Return the layers that share parameters with others or are used in several places."""
    owners: dict[int, set[str]] = {}
    uses = Counter(
        id(child)
        for module in model.modules()
        for _, child in module._modules.items()
        if child is not None
    )
    shared = {name for name, module in model.named_modules() if uses[id(module)] > 1}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), set()).add(name.rpartition(".")[0])
    return shared | {name for names in owners.values() if len(names) > 1 for name in names}


def _by_channel(weight: Tensor, count: int) -> Tensor:
    """Return a view of what a layer reads: (outputs, channels, ...)."""
    return weight.view(weight.shape[0], count, -1) if weight.dim() == 2 else weight


def _importance(modules: Mapping[str, Any], channels: Channels) -> Tensor:
    producer, consumer = modules[channels.producer], modules[channels.consumer]
    with torch.no_grad():
        norm = producer.weight.flatten(1).norm(dim=1)
        for name in channels.norms:
            layer = modules[name]
            if layer.running_var is not None:
                norm = norm / (layer.running_var + layer.eps).sqrt()
            if layer.weight is not None:
                norm = norm * layer.weight.abs()
        read = _by_channel(consumer.weight, channels.count).transpose(0, 1).flatten(1).norm(dim=1)
        return norm * read


def _remove(model: nn.Module, channels: Channels, kept: Tensor) -> None:
    modules: dict[str, Any] = dict(model.named_modules())
    producer, consumer = modules[channels.producer], modules[channels.consumer]
    _keep_rows(producer, kept, ("weight", "bias"))
    setattr(
        producer, "out_features" if isinstance(producer, nn.Linear) else "out_channels", len(kept)
    )
    for name in channels.norms:
        _keep_rows(modules[name], kept, ("weight", "bias", "running_mean", "running_var"))
        modules[name].num_features = len(kept)
    read = _by_channel(consumer.weight.detach(), channels.count)[:, kept]
    if isinstance(consumer, nn.Linear):
        read = read.flatten(1)
        consumer.in_features = read.shape[1]
    else:
        consumer.in_channels = len(kept)
    consumer.weight = nn.Parameter(read.clone())


def _keep_rows(layer: nn.Module, kept: Tensor, names: tuple[str, ...]) -> None:
    for name in names:
        values = getattr(layer, name)
        if isinstance(values, nn.Parameter):
            setattr(layer, name, nn.Parameter(values.detach()[kept].clone()))
        elif values is not None:
            setattr(layer, name, values[kept].clone())


def _check_same(
    silenced: nn.Module, smaller: nn.Module, example: Tensor | tuple[Tensor, ...]
) -> None:
    """Refuse a result that is not the model without these channels.

    Its code reads them elsewhere.
    """
    silenced.eval()
    smaller.eval()
    problem = "another layer reads the channels that were removed"
    try:
        with torch.no_grad():
            given = example if isinstance(example, tuple) else (example,)
            wanted, outputs = silenced(*given), smaller(*given)
        if torch.allclose(
            wanted, outputs, rtol=_TOLERANCE, atol=_TOLERANCE * float(wanted.abs().max() + 1)
        ):
            return
    except (RuntimeError, ValueError) as error:
        problem = first_line_of(error)
    raise ExperimentError(f"the model cannot be pruned: {problem}", field=FIELD, allowed="0")

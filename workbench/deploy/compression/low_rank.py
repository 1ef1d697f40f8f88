"""Low rank: a linear layer becomes two small ones whose product approximates its weights best."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import nn

_MULTIPLE = 8


def factorise(model: nn.Module, share: float) -> nn.Module:
    """Return a copy of a model whose linear layers have a lower rank, if that makes them smaller.

    Args:
        model: The model. It is not changed.
        share: The rank as a share of the full rank. 1 changes nothing.

    Returns:
        A copy, in which each layer that becomes smaller consists of two.
    """
    smaller = copy.deepcopy(model)
    if share >= 1:
        return smaller
    modules = dict(smaller.named_modules())
    for name in list(_chosen(smaller, share)):
        parent, _, attribute = name.rpartition(".")
        layer = modules[name]
        assert isinstance(layer, nn.Linear)
        setattr(modules[parent], attribute, _two_layers(layer, _rank(layer, share)))
    return smaller


def can_factorise(model: nn.Module, share: float) -> bool:
    """Return whether a linear layer of a model becomes smaller at a share of its rank."""
    return any(True for _ in _chosen(model, share))


def _chosen(model: nn.Module, share: float) -> Iterator[str]:
    """Yield the linear layers that become smaller.

    A model that is one layer, and tied layers, stay.
    """
    counts: dict[int, int] = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        counts[id(parameter)] = counts.get(id(parameter), 0) + 1
    for name, layer in model.named_modules():
        if type(layer) is nn.Linear and name and counts[id(layer.weight)] == 1:
            inputs, outputs = layer.in_features, layer.out_features
            if _rank(layer, share) * (inputs + outputs) < inputs * outputs:
                yield name


def _rank(layer: nn.Linear, share: float) -> int:
    full = min(layer.in_features, layer.out_features)
    return max(_MULTIPLE, round(full * share / _MULTIPLE) * _MULTIPLE)


def _two_layers(layer: nn.Linear, rank: int) -> nn.Sequential:
    left, values, right = torch.linalg.svd(layer.weight.detach(), full_matrices=False)
    scale = values[:rank].sqrt()
    first = nn.Linear(layer.in_features, rank, bias=False)
    second = nn.Linear(rank, layer.out_features, bias=layer.bias is not None)
    with torch.no_grad():
        first.weight.copy_(scale[:, None] * right[:rank])
        second.weight.copy_(left[:, :rank] * scale)
        if layer.bias is not None:
            second.bias.copy_(layer.bias)
    return nn.Sequential(first, second)

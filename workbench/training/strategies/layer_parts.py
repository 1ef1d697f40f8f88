"""How the layers of a model are cut for tensor parallelism.

Pairs of linear layers, and heads of attention.

A model defines them by `layer_pairs`, or is a plain sequence. The first layer of a pair is cut by
outputs, the second by inputs, so that only the sum of what the second ones compute is exchanged.
Training the parts is left to `tensor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from workbench.foundation.errors import ExperimentError

_ON_EACH_VALUE = (
    nn.ReLU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.LeakyReLU,
    nn.ELU,
    nn.Dropout,
    nn.Identity,
)


@dataclass(frozen=True)
class RowOrder:
    """Rows in several blocks, ordered so that a cut gives each worker its part of every block.

    Attributes:
        num_blocks: Equal blocks in the order of the model, such as query, key and value.
        num_parts: Parts of each block.
    """

    num_blocks: int
    num_parts: int

    def arrange(self, whole: Tensor) -> Tensor:
        """Return rows of the model in the order in which they are cut."""
        return self._swapped(whole, self.num_blocks, self.num_parts)

    def restore(self, arranged: Tensor) -> Tensor:
        """Return rows that were arranged in the order of the model."""
        return self._swapped(arranged, self.num_parts, self.num_blocks)

    @staticmethod
    def _swapped(rows: Tensor, first: int, second: int) -> Tensor:
        cut = rows.reshape(first, second, -1, *rows.shape[1:])
        return cut.transpose(0, 1).reshape(rows.shape).contiguous()


def cut_layers(model: nn.Module, mesh: Any) -> dict[str, RowOrder]:
    """Cut the layers of a model in place.

    Args:
        model: A `nn.Sequential`; or it has `layer_pairs`, which returns names of two linear layers
            and the number of blocks in the rows of the first one, and `take_part`, where something
            counts parts.
        mesh: The workers of a replica, in one dimension.

    Returns:
        The order of the rows of each parameter whose rows are not in the order of the model.

    Raises:
        ExperimentError: If the model cannot be cut.
    """
    num_parts = int(mesh.size())
    orders: dict[str, RowOrder] = {}
    layers: dict[str, Any] = {}
    for first, second, num_blocks in prepare_cut(model, num_parts):
        layers |= {first: ColwiseParallel(), second: RowwiseParallel()}
        if num_blocks > 1:
            order = RowOrder(num_blocks, num_parts)
            for name, parameter in model.get_submodule(first).named_parameters():
                orders[f"{first}.{name}"] = order
                with torch.no_grad():
                    parameter.copy_(order.arrange(parameter.detach()))
    parallelize_module(model, mesh, layers, src_data_rank=None)
    return orders


def prepare_cut(model: nn.Module, num_parts: int) -> list[tuple[str, str, int]]:
    """Let a model compute with a part of its layers, which are not cut yet.

    Args:
        model: As in `cut_layers`.
        num_parts: Parts of each layer.

    Returns:
        The pairs of layers to cut.

    Raises:
        ExperimentError: If the model cannot be cut.
    """
    found = _pairs_of(model)
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)] = "" if id(parameter) in names else name
    for first, second, num_blocks in found:
        for layer in (first, second):
            if any(not names[id(each)] for each in model.get_submodule(layer).parameters()):
                raise ExperimentError(
                    f"{layer} shares its weights with another layer, so it cannot be cut",
                    field="plan.tensor",
                    allowed="1",
                )
        linear: Any = model.get_submodule(first)
        if linear.out_features % (num_blocks * num_parts):
            raise ExperimentError(
                f"{first} has {linear.out_features // num_blocks} outputs, which {num_parts}"
                " workers cannot share equally",
                field="plan.tensor",
                allowed="divisors of the width",
            )
    take_part = getattr(model, "take_part", None)
    if take_part is not None:
        take_part(num_parts)
    return found


def _pairs_of(model: nn.Module) -> list[tuple[str, str, int]]:
    """Return the pairs that a model defines, or those in a sequence with nothing but activations
    between.
    """
    if hasattr(model, "layer_pairs"):
        found = list(cast(Any, model).layer_pairs())
    elif isinstance(model, nn.Sequential):
        found, first = [], ""
        for name, layer in model.named_children():
            if isinstance(layer, nn.Linear):
                found += [(first, name, 1)] if first else []
                first = "" if first else name
            elif not isinstance(layer, _ON_EACH_VALUE):
                first = ""
    else:
        raise ExperimentError(
            f"it is not known how the layers of a {type(model).__name__} are cut into parts",
            field="plan.tensor",
            allowed=(
                "1; or more with transformer, mlp, nn.Sequential or a model that has layer_pairs"
            ),
            next_step="Add the method, set plan.tensor to 1, or use the strategy fsdp.",
        )
    if not found:
        raise ExperimentError(
            f"a {type(model).__name__} has no two linear layers in a row that can be cut",
            field="plan.tensor",
            allowed="1",
        )
    return found

"""Early exits: a model that is a sequence answers after some of its pieces, too, and is trained jointly.

While it trains it returns the outputs of every exit, and `joint` weighs their losses; else it is the model
that it holds. Calibration, thresholds and what is exported are left to `workbench.deploy.placement`.

Source: Teerapittayanon et al., BranchyNet (2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workbench.errors import ExperimentError

_EXITS = "early_exits"
_WEIGHT = "early_exit_weight"
_MAX_POSITIONS = 4


class EarlyExits(nn.Module):
    """A model with linear outputs after some of its pieces.

    Attributes:
        model: The model as it is without exits.
        heads: The output of each early exit, in their order.
        begins: The number of the first piece of each stage, and the number of pieces.
        weight: Factor of the loss of an early exit; that of the last exit has 1.
    """

    def __init__(
        self, model: nn.Module, *, input_shape: tuple[int, ...], num_outputs: int, num_exits: int,
        weight: float,
    ) -> None:  # fmt: skip
        """Add exits before pieces with weights, evenly over all of these.

        Args:
            model: A `torch.nn.Sequential`, or a model with a method `pieces`, as for a pipeline.
            input_shape: Shape of one sample.
            num_outputs: Number of outputs of every exit.
            num_exits: Number of early exits.
            weight: Factor of the loss of an early exit.

        Raises:
            ExperimentError: If the model is not a sequence, or has too few pieces.
        """
        super().__init__()
        self.model = model
        self.weight = weight
        self.begins = _cut(model, num_exits)
        self.heads = nn.ModuleList()
        was_training = model.training
        model.eval()
        values = torch.zeros(2, *input_shape)
        with torch.no_grad():
            for stage in range(num_exits):
                values = self.stage(stage, values)
                self.heads.append(_head(tuple(values.shape[1:]), num_outputs))
        model.train(was_training)

    @property
    def num_stages(self) -> int:
        """Number of stages: one more than early exits."""
        return len(self.begins) - 1

    def stage(self, number: int, values: Any) -> Any:
        """Compute the pieces of one stage from what the stage before it returned."""
        for call in _calls(self.model)[self.begins[number] : self.begins[number + 1]]:
            values = call(values)
        return values

    def exit_outputs(self, inputs: Any) -> list[Tensor]:
        """Return what each exit answers, that of the last one included."""
        found, values = [], inputs
        for number, head in enumerate(self.heads):
            values = self.stage(number, values)
            found.append(head(values))
        return [*found, self.stage(self.num_stages - 1, values)]

    def forward(self, inputs: Any) -> Any:
        """Return the outputs of the last exit; while it trains, those of all exits."""
        if not self.training:
            return self.model(inputs)
        *early, last = self.exit_outputs(inputs)
        return {"logits": last, _EXITS: early, _WEIGHT: self.weight}


def joint(loss: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """Return a loss that adds those of early exits, where a model returned them.

    Args:
        loss: The loss of one exit.
    """

    def total(outputs: Any, targets: Any) -> Tensor:
        if not isinstance(outputs, dict) or _EXITS not in outputs:
            return loss(outputs, targets)
        early = sum((loss(each, targets) for each in outputs[_EXITS]), start=torch.zeros(()))
        return loss(outputs["logits"], targets) + outputs[_WEIGHT] * early

    return total


def _cut(model: nn.Module, num_exits: int) -> list[int]:
    """Return where stages begin: before pieces with weights, evenly over those that may begin a stage."""
    pieces = _pieces(model)
    weighted = [
        number for number, (_, modules) in enumerate(pieces)
        if any(each.ndim > 1 for module in modules for each in module.parameters())
    ]  # fmt: skip
    # The first one begins the model, and before the last one an exit would be what the model answers.
    possible = weighted[1:-1]
    if num_exits > len(possible):
        raise ExperimentError(
            f"{type(model).__name__} has no places for {num_exits} early exits", field="exits",
            allowed=f"at most {len(possible)}", next_step="Use fewer exits or a deeper model.",
        )  # fmt: skip
    chosen = [possible[(number + 1) * len(possible) // (num_exits + 1)] for number in range(num_exits)]
    return [0, *chosen, len(pieces)]


def _pieces(model: nn.Module) -> list[tuple[Callable[[Any], Any], Sequence[nn.Module]]]:
    if callable(getattr(model, "pieces", None)):
        stated = model.pieces()  # type: ignore[operator]
    elif isinstance(model, nn.Sequential):
        stated = list(model)
    else:
        raise ExperimentError(
            f"{type(model).__name__} is not a sequence, so it has no place for early exits", field="exits",
            allowed="a torch.nn.Sequential, or a model with a method pieces",
        )  # fmt: skip
    return [(each, (each,)) if isinstance(each, nn.Module) else (each[0], each[1:]) for each in stated]


def _calls(model: nn.Module) -> list[Callable[[Any], Any]]:
    return [call for call, _ in _pieces(model)]


def _head(shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Return a linear output, of images after a mean over parts of them."""
    layers: list[nn.Module] = []
    if len(shape) == 3:
        height, width = (max(1, size // _MAX_POSITIONS) for size in shape[1:])
        layers.append(nn.AvgPool2d((height, width)))
        shape = (shape[0], shape[1] // height, shape[2] // width)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(math.prod(shape), num_outputs))

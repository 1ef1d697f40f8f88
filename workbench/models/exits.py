"""Early exits: a model that is a sequence answers after some of its pieces, too, and is trained
jointly.

While it trains it returns the outputs of every exit, and `joint` weighs their losses; else it is
the model that it holds. The pieces of a user's own model are found by `block_sequence`.
Calibration, thresholds and what is exported are left to `workbench.tiers.placement`, exits of trees
to `tree_exits`.

Source: Teerapittayanon et al., BranchyNet (2016).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import ExperimentError
from workbench.models.block_sequence import BlockSequence

_EXITS = "early_exits"
_WEIGHT = "early_exit_weight"
_MAX_POSITIONS = 4


class EarlyExits(nn.Module):
    """A model with outputs after some of its pieces.

    Attributes:
        model: The model as it is without exits.
        heads: The output of each early exit, in their order.
        begins: The number of the first piece of each stage, and the number of pieces.
        weight: Factor of the loss of an early exit; that of the last exit has 1.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        num_exits: int,
        weight: float,
        vocabulary_size: int | None = None,
    ) -> None:
        """Add exits before pieces with weights, evenly over all of these.

        A model may state its outputs at an exit by a method `exit_head`, which takes their number
        and returns a module; else they are linear, of images and series after a mean over parts of
        them.

        Args:
            model: A `torch.nn.Sequential`, a model with a method `pieces`, as for a pipeline, or
                one that computes the members of a list or sequence of modules one after another.
            input_shape: Shape of one sample.
            num_outputs: Number of outputs of every exit.
            num_exits: Number of early exits.
            weight: Factor of the loss of an early exit.
            vocabulary_size: Number of token ids where the inputs are token ids.

        Raises:
            ExperimentError: If the model is not a sequence, or has too few pieces.
        """
        super().__init__()
        self.model = model
        self.weight = weight
        was_training = model.training
        model.eval()
        if _states_pieces(model):
            self._blocks: BlockSequence | None = None
            values = _example(input_shape, vocabulary_size)
            possible, num_pieces = _places(model), len(_pieces(model))
        else:
            self._blocks = BlockSequence.of(model, input_shape, vocabulary_size)
            values = self._blocks.zeros(2)
            possible, num_pieces = self._blocks.places(model), len(self._blocks.names)
        self.begins = [0, *_chosen(model, possible, num_exits), num_pieces]
        self.heads = nn.ModuleList()
        with torch.no_grad():
            for stage in range(num_exits):
                values = self.stage(stage, values)
                self.heads.append(_head(model, tuple(values.shape[1:]), num_outputs))
        model.train(was_training)

    @property
    def num_stages(self) -> int:
        """Number of stages: one more than early exits."""
        return len(self.begins) - 1

    def stage(self, number: int, values: Any) -> Any:
        """Compute the pieces of one stage from what the stage before it returned."""
        first, end = self.begins[number], self.begins[number + 1]
        if self._blocks is not None:
            return self._blocks.compute(self.model, first, end, values)
        for call in _calls(self.model)[first:end]:
            values = call(values)
        return values

    def exit_outputs(self, inputs: Any) -> list[Tensor]:
        """Return what each exit answers, that of the last one included."""
        if self._blocks is not None:
            early, last = self._blocks.pass_through(self.model, self.begins[1:-1], inputs)
            return [*(head(each) for head, each in zip(self.heads, early, strict=True)), last]
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


class LastPosition(nn.Module):
    """What an exit of a model that reads a sequence answers from.

    The state at its last position.
    """

    def forward(self, states: Tensor) -> Tensor:
        """Map (batch, time, width) to (batch, width)."""
        return states[:, -1]


def check_task(model: nn.Module, task: Task, target_shape: tuple[int, ...]) -> None:
    """Refuse early exits of a model for data whose samples have not one class each.

    Args:
        model: The model.
        task: The task of the data.
        target_shape: The shape of the targets of a sample, where it has several.

    Raises:
        ExperimentError: If it has exits, and none of its answers is left by a probability.
    """
    has_exits = isinstance(model, EarlyExits) or getattr(model, "num_exits", 0) > 0
    if has_exits and (task != "classification" or target_shape):
        raise ExperimentError(
            "an early exit is left by the probability of one class of a sample, which this data"
            " has not",
            field="exits",
            allowed="0",
            next_step="Remove the exits, or choose data of a classification.",
        )


def joint(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a loss that adds those of early exits, where a model returned them.

    Args:
        loss: The loss of one exit: a mean, or a total and a count.
    """

    @functools.wraps(loss, updated=())
    def total(outputs: Any, targets: Any) -> Any:
        if not isinstance(outputs, dict) or _EXITS not in outputs:
            return loss(outputs, targets)
        last, early = (
            loss(outputs["logits"], targets),
            [loss(each, targets) for each in outputs[_EXITS]],
        )
        if isinstance(last, tuple):  # a total and a count, which is that of all exits
            return last[0] + outputs[_WEIGHT] * _sum(each[0] for each in early), last[1]
        return last + outputs[_WEIGHT] * _sum(early)

    return total


def _sum(losses: Iterable[Tensor]) -> Tensor:
    return sum(losses, start=torch.zeros(()))


def _example(input_shape: tuple[int, ...], vocabulary_size: int | None) -> Tensor:
    return torch.zeros(
        2, *input_shape, dtype=torch.float32 if vocabulary_size is None else torch.int64
    )


def _chosen(model: nn.Module, possible: Sequence[int], num_exits: int) -> list[int]:
    """Return the pieces before which exits are, evenly over those that may begin a stage."""
    if num_exits > len(possible):
        raise ExperimentError(
            f"{type(model).__name__} has no places for {num_exits} early exits",
            field="exits",
            allowed=f"at most {len(possible)}",
            next_step="Use fewer exits or a deeper model.",
        )
    return [
        possible[(number + 1) * len(possible) // (num_exits + 1)] for number in range(num_exits)
    ]


def _places(model: nn.Module) -> list[int]:
    """Return the pieces that may begin a stage.

    Those with weights, but for the first and the last of them.

    The first one begins the model, and before the last one an exit would be what the model answers.
    An embedding is no beginning: what a token is shows nothing of a text.
    """
    weighted = [
        number
        for number, (_, modules) in enumerate(_pieces(model))
        if any(_has_weights(part) for module in modules for part in module.modules())
    ]
    return weighted[1:-1]


def _has_weights(module: nn.Module) -> bool:
    if isinstance(module, nn.Embedding):
        return False
    return any(each.ndim > 1 for each in module.parameters(recurse=False))


def _states_pieces(model: nn.Module) -> bool:
    return isinstance(model, nn.Sequential) or callable(getattr(model, "pieces", None))


def _pieces(model: nn.Module) -> list[tuple[Callable[[Any], Any], Sequence[nn.Module]]]:
    stated = model.pieces() if callable(getattr(model, "pieces", None)) else list(model)  # type: ignore
    return [
        (each, (each,)) if isinstance(each, nn.Module) else (each[0], each[1:]) for each in stated
    ]


def _calls(model: nn.Module) -> list[Callable[[Any], Any]]:
    return [call for call, _ in _pieces(model)]


def _head(model: nn.Module, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Return the output of an exit.

    The model's own, or a linear one, after a mean over parts of an image.
    """
    if callable(getattr(model, "exit_head", None)):
        return model.exit_head(num_outputs)  # type: ignore[operator]
    layers: list[nn.Module] = []
    if len(shape) == 3:
        height, width = (max(1, size // _MAX_POSITIONS) for size in shape[1:])
        layers.append(nn.AvgPool2d((height, width)))
        shape = (shape[0], shape[1] // height, shape[2] // width)
    elif len(shape) == 2:  # (time, width): a mean over parts of the time
        length = max(1, shape[0] // _MAX_POSITIONS)
        layers.append(nn.AvgPool2d((length, 1)))
        shape = (shape[0] // length, shape[1])
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(math.prod(shape), num_outputs))

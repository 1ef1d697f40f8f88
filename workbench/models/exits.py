"""Early exits: a model that is a sequence also predicts after some of its pieces.

All exits are trained jointly. In training, the model returns the outputs of every exit, and `joint`
weighs their losses. Otherwise it behaves like the original model. Finding the pieces of your own
model is left to `block_sequence`, calibrating exits and their thresholds to
`workbench.tiers.placement`, and exits of trees to `trees`.

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
        model: The model without exits.
        heads: The output layer of each early exit, in order.
        begins: The number of the first piece of each stage, and the number of pieces.
        weight: Factor of the loss of each early exit. The loss of the last exit has the factor 1.
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
        """Add exits before pieces with weights, spread evenly over them.

        A model may define the output layer of an exit with a method `exit_head`, which receives the
        number of outputs and returns a module. Otherwise it is linear. For images and series, it
        follows a mean over parts of the sample.

        Args:
            model: A `torch.nn.Sequential`, a model with a method `pieces`, as for a pipeline, or
                one that computes the members of a list or sequence of modules one after another.
            input_shape: Shape of one sample.
            num_outputs: Number of outputs of every exit.
            num_exits: Number of early exits.
            weight: Factor of the loss of an early exit.
            vocabulary_size: Number of token ids, if the inputs are token ids.

        Raises:
            ExperimentError: If the model is not a sequence, or has too few pieces.
        """
        super().__init__()
        self.model = model
        self.weight = weight
        was_training = model.training
        model.eval()
        self._blocks: BlockSequence | None = None
        if _has_pieces(model):
            values = _example(input_shape, vocabulary_size)
            possible = _places(model)
            num_pieces = len(_pieces(model))
        else:
            self._blocks = BlockSequence.of(model, input_shape, vocabulary_size)
            values = self._blocks.zeros(2)
            possible = self._blocks.places(model)
            num_pieces = len(self._blocks.names)
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
        """Compute the pieces of one stage from the output of the previous stage."""
        first, end = self.begins[number], self.begins[number + 1]
        if self._blocks is not None:
            return self._blocks.compute(self.model, first, end, values)
        for call in _calls(self.model)[first:end]:
            values = call(values)
        return values

    def exit_outputs(self, inputs: Any) -> list[Tensor]:
        """Return the outputs of each exit, including the last one."""
        if self._blocks is not None:
            early, last = self._blocks.pass_through(self.model, self.begins[1:-1], inputs)
            return [*(head(state) for head, state in zip(self.heads, early, strict=True)), last]
        outputs = []
        values = inputs
        for number, head in enumerate(self.heads):
            values = self.stage(number, values)
            outputs.append(head(values))
        return [*outputs, self.stage(self.num_stages - 1, values)]

    def forward(self, inputs: Any) -> Any:
        """Return the outputs of the last exit, or of all exits in training."""
        if not self.training:
            return self.model(inputs)
        *early, last = self.exit_outputs(inputs)
        return {"logits": last, _EXITS: early, _WEIGHT: self.weight}


class LastPosition(nn.Module):
    """Takes the state at the last position, from which an exit of a sequence model predicts."""

    def forward(self, states: Tensor) -> Tensor:
        """Map (batch, time, width) to (batch, width)."""
        return states[:, -1]


def check_task(model: nn.Module, task: Task, target_shape: tuple[int, ...]) -> None:
    """Check that each sample of the data has exactly one class, as early exits need.

    Args:
        model: The model.
        task: The task of the data.
        target_shape: The shape of the targets of a sample, if it has several.

    Raises:
        ExperimentError: If the model has exits, and the samples do not have one class each.
    """
    has_exits = isinstance(model, EarlyExits) or getattr(model, "num_exits", 0) > 0
    if has_exits and (task != "classification" or target_shape):
        raise ExperimentError(
            "early exits depend on the probability of a class, but the samples of this data do not"
            " have one class each",
            field="exits",
            allowed="0",
            next_step="Remove the exits, or choose data for classification.",
        )


def joint(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a loss that adds the losses of early exits, if a model returns them.

    Args:
        loss: The loss of one exit: a mean, or a total and a count.
    """

    @functools.wraps(loss, updated=())
    def total(outputs: Any, targets: Any) -> Any:
        if not isinstance(outputs, dict) or _EXITS not in outputs:
            return loss(outputs, targets)
        last = loss(outputs["logits"], targets)
        early = [loss(output, targets) for output in outputs[_EXITS]]
        weight = outputs[_WEIGHT]
        if isinstance(last, tuple):  # a total and a count. All exits have the same count.
            return last[0] + weight * _sum(part for part, _ in early), last[1]
        return last + weight * _sum(early)

    return total


def _sum(losses: Iterable[Tensor]) -> Tensor:
    return sum(losses, start=torch.zeros(()))


def _example(input_shape: tuple[int, ...], vocabulary_size: int | None) -> Tensor:
    dtype = torch.int64
    if vocabulary_size is None:
        dtype = torch.float32
    return torch.zeros(2, *input_shape, dtype=dtype)


def _chosen(model: nn.Module, possible: Sequence[int], num_exits: int) -> list[int]:
    """Return the pieces that exits come before, spread evenly over the possible ones."""
    if num_exits > len(possible):
        raise ExperimentError(
            f"{type(model).__name__} has too few places for {num_exits} early exits",
            field="exits",
            allowed=f"at most {len(possible)}",
            next_step="Use fewer exits or a deeper model.",
        )
    return [
        possible[(number + 1) * len(possible) // (num_exits + 1)] for number in range(num_exits)
    ]


def _places(model: nn.Module) -> list[int]:
    """Return the pieces that may start a stage: all with weights, except the first and the last.

    The first one starts the model, and an exit before the last one would compute the model's own
    output. Embeddings do not count, because a single token says nothing about a text.
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
    return any(parameter.ndim > 1 for parameter in module.parameters(recurse=False))


def _has_pieces(model: nn.Module) -> bool:
    return isinstance(model, nn.Sequential) or callable(getattr(model, "pieces", None))


def _pieces(model: nn.Module) -> list[tuple[Callable[[Any], Any], Sequence[nn.Module]]]:
    declared: Iterable[Any] = model  # type: ignore[assignment]
    if callable(getattr(model, "pieces", None)):
        declared = model.pieces()  # type: ignore[operator]
    pieces = []
    for piece in declared:
        if isinstance(piece, nn.Module):
            pieces.append((piece, (piece,)))
        else:
            pieces.append((piece[0], piece[1:]))
    return pieces


def _calls(model: nn.Module) -> list[Callable[[Any], Any]]:
    return [call for call, _ in _pieces(model)]


def _head(model: nn.Module, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Return the output layer of an exit: the model's own, or a linear one after a mean."""
    if callable(getattr(model, "exit_head", None)):
        return model.exit_head(num_outputs)  # type: ignore[operator]
    layers: list[nn.Module] = []
    if len(shape) == 3:
        # Pool to a few positions, so that an exit is small compared with the pieces before it.
        height, width = (max(1, size // _MAX_POSITIONS) for size in shape[1:])
        layers.append(nn.AvgPool2d((height, width)))
        shape = (shape[0], shape[1] // height, shape[2] // width)
    elif len(shape) == 2:  # (time, width): a mean over parts of the time
        length = max(1, shape[0] // _MAX_POSITIONS)
        layers.append(nn.AvgPool2d((length, 1)))
        shape = (shape[0] // length, shape[1])
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(math.prod(shape), num_outputs))

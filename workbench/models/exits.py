"""Early exits: a model that is a sequence also predicts after some of its pieces.

All exits are trained jointly. In training, the model returns the outputs of every exit, and `joint`
weighs their losses. Otherwise it behaves like the original model. Finding the pieces of your own
model is left to `block_sequence`, calibrating exits and their thresholds to
`workbench.tiers.placement`, and exits of trees to `trees`.

Where several devices see one scene, the first stage computes each view alone, and the later stages
compute what the views have become together.

Sources: Teerapittayanon et al., BranchyNet (2016), and Distributed Deep Neural Networks over the
Cloud, the Edge and End Devices (2017).
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
from workbench.models import Aggregate
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


class SceneExits(nn.Module):
    """A model that sees several views of each sample, as several devices do.

    The first stage computes each view alone, with the same weights. Its features are joined, and
    the later stages compute the joined ones. In training, views are missing at random.

    Attributes:
        exits: The model with early exits that computes one view.
        num_views: Number of views of a sample.
        aggregate: How their features become one.
        missing: Probability that a view is missing in training.
        joint: The layer that mixes the features of a concatenation. None for a mean or a maximum.
    """

    def __init__(
        self,
        exits: EarlyExits,
        *,
        input_shape: tuple[int, ...],
        aggregate: Aggregate,
        missing: float,
        vocabulary_size: int | None = None,
    ) -> None:
        """Join views after the first stage.

        Args:
            exits: A model with at least one early exit, for one view.
            input_shape: Shape of one sample: (views, ...).
            aggregate: `mean` or `max` over the views that are there, or `concatenation`, which a
                linear layer turns into features of the size of one view.
            missing: Probability that a view is missing in training. At least one is always there.
            vocabulary_size: Number of token ids, if the inputs are token ids.

        Raises:
            ExperimentError: If the first stage does not return a tensor.
        """
        super().__init__()
        self.exits, self.num_views = exits, input_shape[0]
        self.aggregate: Aggregate = aggregate
        self.missing = missing
        was_training = exits.training
        exits.eval()
        with torch.no_grad():
            features = exits.stage(0, _example(input_shape[1:], vocabulary_size))
        exits.train(was_training)
        if not isinstance(features, Tensor) or features.ndim < 2:
            raise ExperimentError(
                "the first stage does not return features that can be joined",
                field="views",
                next_step="Remove views, or let the first blocks of the model return a tensor.",
            )
        self.joint = None
        if aggregate == "concatenation":
            self.joint = _Joint(self.num_views, features.shape[1])

    @property
    def num_stages(self) -> int:
        """Number of stages: one more than early exits."""
        return self.exits.num_stages

    def gathered(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the features of the views as the second stage takes them.

        Args:
            features: (samples, views, channels, ...).
            mask: (samples, views): 1 for views that are there, otherwise 0.

        Returns:
            (samples, channels, ...), of which features of missing views are no part. For a
            concatenation (samples, views * channels, ...), with zeros for them.
        """
        there = mask.reshape(*mask.shape, *[1] * (features.ndim - 2)).to(features.dtype)
        if self.aggregate == "max":
            return features.masked_fill(there == 0, -math.inf).amax(dim=1)
        present = features * there
        if self.joint is not None:
            return present.flatten(1, 2)
        return present.sum(dim=1) / there.sum(dim=1)

    def second_stage(self, gathered: Tensor, mask: Tensor) -> Tensor:
        """Compute the second stage from what `gathered` returns, and the mask of views."""
        if self.joint is not None:
            gathered = self.joint(gathered, mask.to(gathered.dtype))
        return self.exits.stage(1, gathered)

    def exit_outputs(self, inputs: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """Return the outputs of each exit.

        Args:
            inputs: (samples, views, ...).
            mask: (samples, views): 1 for views that are there, otherwise 0. None if all are.

        Returns:
            (samples, views, outputs) for the first exit, which sees each view alone, and
            (samples, outputs) for each later one.
        """
        if mask is None:
            mask = torch.ones(inputs.shape[:2], device=inputs.device)
        features = self.exits.stage(0, inputs.flatten(0, 1))
        outputs = [self.exits.heads[0](features).unflatten(0, inputs.shape[:2])]
        gathered = self.gathered(features.unflatten(0, inputs.shape[:2]), mask)
        values = self.second_stage(gathered, mask)
        for number in range(2, self.num_stages):
            outputs.append(self.exits.heads[number - 1](values))
            values = self.exits.stage(number, values)
        return [*outputs, values]

    def forward(self, inputs: Tensor) -> Any:
        """Return the outputs of the last exit, or of all exits in training."""
        if not self.training:
            return self.exit_outputs(inputs)[-1]
        first, *later, last = self.exit_outputs(inputs, self._drawn(inputs))
        # Together, the views weigh as much as one exit.
        weight, weight_of_view = self.exits.weight, self.exits.weight / self.num_views
        return {
            "logits": last,
            _EXITS: [*first.unbind(dim=1), *later],
            _WEIGHT: [weight_of_view] * self.num_views + [weight] * len(later),
        }

    def _drawn(self, inputs: Tensor) -> Tensor:
        """Return which views are there in training."""
        drawn = torch.rand(inputs.shape[:2], device=inputs.device)
        kept = drawn.argmax(dim=1, keepdim=True) == torch.arange(
            self.num_views, device=inputs.device
        )
        return ((drawn >= self.missing) | kept).float()


class _Joint(nn.Module):
    """Mixes the channels of concatenated views, at each position. It starts as their mean."""

    def __init__(self, num_views: int, num_channels: int) -> None:
        super().__init__()
        self.layer = nn.Linear(num_views * num_channels + num_views, num_channels)
        mean = torch.eye(num_channels).repeat(1, num_views) / num_views
        with torch.no_grad():
            self.layer.weight.copy_(torch.cat([mean, torch.zeros(num_channels, num_views)], dim=1))
            self.layer.bias.zero_()

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Map (samples, views * channels, ...) and (samples, views) to (samples, channels, ...)."""
        last = values.movedim(1, -1)
        there = mask.reshape(mask.shape[0], *[1] * (last.ndim - 2), mask.shape[1])
        there = there.expand(*last.shape[:-1], mask.shape[1])
        return self.layer(torch.cat([last, there], dim=-1)).movedim(-1, 1)


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
    has_exits = isinstance(model, EarlyExits | SceneExits) or getattr(model, "num_exits", 0) > 0
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
        weights = outputs[_WEIGHT]
        if not isinstance(weights, list):
            weights = [weights] * len(early)
        if isinstance(last, tuple):  # a total and a count. All exits have the same count.
            return last[0] + _sum(weights, (part for part, _ in early)), last[1]
        return last + _sum(weights, early)

    return total


def _sum(weights: Sequence[float], losses: Iterable[Tensor]) -> Tensor:
    parts = (weight * part for weight, part in zip(weights, losses, strict=True))
    return sum(parts, start=torch.zeros(()))


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

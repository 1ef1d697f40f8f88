"""A small detector: every cell of a coarse grid predicts a box and a score of each class.

It has no anchors, and one size of cells. Selecting boxes is left to `detected_boxes`.

Sources: Tian et al., FCOS (2019), for the cells that learn a box. Lin et al., Focal Loss for Dense
Object Detection (2017). Rezatofighi et al., Generalized Intersection over Union (2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.foundation.errors import ExperimentError
from workbench.models.convolutional import convolutions
from workbench.models.detected_boxes import NUM_EDGES, FoundBox, find_boxes, mean_average_precision
from workbench.models.metrics import WholeMetric

_FIRST_SCORE = 0.01
"""Score of every class before training. It is low, because most cells are empty."""
_NEAR = 1.0
"""The cells that learn a box are at most this far from its centre, in cells."""
_ALPHA, _GAMMA = 0.25, 2.0
"""Weight of a box against an empty cell, and how much less easy cells count. From the paper."""


class Detector(nn.Module):
    """The convolutions of a convnet, then one that predicts four edges and the classes per cell."""

    def __init__(
        self, *, input_shape: tuple[int, ...], num_outputs: int, dropout: float, **blocks: Any
    ) -> None:
        """Build the detector with PyTorch's default initialisation, and low scores.

        Args:
            input_shape: (channels, height, width).
            num_outputs: Number of classes.
            dropout: Probability that a feature is dropped before the output layer.
            **blocks: The options of `convolutions`.
        """
        super().__init__()
        layers, channels = convolutions(input_shape, **blocks)
        output = nn.Conv2d(channels, NUM_EDGES + num_outputs, kernel_size=3, padding=1)
        assert output.bias is not None
        with torch.no_grad():
            output.bias[NUM_EDGES:] = math.log(_FIRST_SCORE / (1 - _FIRST_SCORE))
        self.layers = nn.Sequential(*layers, nn.Dropout(dropout), output)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, rows, columns, 4 + num_outputs).

        A cell has the left, top, right and bottom edge of its box, as shares of the image, and a
        score of each class before the logistic function. A box may extend beyond the image.
        """
        answers = self.layers(inputs).permute(0, 2, 3, 1)
        rows, columns = answers.shape[1:3]
        size = torch.tensor([1 / columns, 1 / rows], dtype=answers.dtype, device=answers.device)
        distances = functional.softplus(answers[..., :NUM_EDGES]) * torch.cat([size, size])
        middle = centres(rows, columns).to(answers)
        edges = [middle - distances[..., :2], middle + distances[..., 2:]]
        return torch.cat([*edges, answers[..., NUM_EDGES:]], dim=-1)


def centres(rows: int, columns: int) -> Tensor:
    """Return the centre of each cell, (rows, columns, 2): x and y as shares of the image."""
    y, x = torch.meshgrid(
        (torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns, indexing="ij"
    )
    return torch.stack([x, y], dim=-1)


def detection_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the focal loss of the scores plus the loss of the boxes, averaged over the images.

    Args:
        outputs: (batch, rows, columns, 4 + classes), from a Detector.
        targets: (batch, boxes, 5): class, left, top, right, bottom as shares of the image. A class
            below 0 means that there is no box.

    Raises:
        ExperimentError: If the outputs have another shape.
    """
    if outputs.ndim != 4 or outputs.shape[-1] <= NUM_EDGES:
        raise ExperimentError(
            f"the model returns outputs of shape {tuple(outputs.shape)}",
            field="model",
            allowed="(batch, rows, columns, 4 + classes)",
            next_step="Choose detector for boxes.",
        )
    owner = assign(targets, *outputs.shape[1:3])
    cells = outputs.flatten(1, 2)
    has_box = owner >= 0
    boxes = targets.gather(1, owner.clamp(min=0).unsqueeze(-1).expand(-1, -1, targets.shape[-1]))
    scores = cells[..., NUM_EDGES:]
    wanted = functional.one_hot(boxes[..., 0].clamp(min=0).long(), scores.shape[-1]).to(scores)
    wanted = wanted * has_box.unsqueeze(-1)
    num_cells = has_box.sum(dim=1).clamp(min=1)
    missed = (1 - generalised_overlap(cells[..., :NUM_EDGES], boxes[..., 1:])) * has_box
    return ((focal_loss(scores, wanted).sum(dim=(1, 2)) + missed.sum(dim=1)) / num_cells).mean()


def assign(targets: Tensor, rows: int, columns: int) -> Tensor:
    """Return the box that each cell learns, (batch, cells), or -1 for none.

    A box is learned by the cell that contains its centre, and by nearby cells whose centres are in
    the box. If a cell has several boxes, it learns the smallest one.
    """
    size = targets.new_tensor([1 / columns, 1 / rows])
    places = centres(rows, columns).to(targets).flatten(0, 1)
    low, high = targets[:, :, None, 1:3], targets[:, :, None, 3:5]
    away = (places - (low + high) / 2).abs() / size
    is_inside = ((places >= low) & (places <= high)).all(dim=-1)
    is_owned = (away <= 0.5).all(dim=-1) | (is_inside & (away <= _NEAR).all(dim=-1))
    is_owned &= targets[:, :, :1] >= 0
    areas = (high - low).prod(dim=-1).expand(is_owned.shape).masked_fill(~is_owned, math.inf)
    smallest, owner = areas.min(dim=1)
    return owner.masked_fill(smallest.isinf(), -1)


def focal_loss(scores: Tensor, wanted: Tensor) -> Tensor:
    """Return the focal loss of each score before the logistic function. `wanted` is 0 or 1."""
    cross_entropy = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
    chance = scores.sigmoid()
    missed = wanted * (1 - chance) + (1 - wanted) * chance
    weight = wanted * _ALPHA + (1 - wanted) * (1 - _ALPHA)
    return weight * missed**_GAMMA * cross_entropy


def generalised_overlap(edges: Tensor, others: Tensor) -> Tensor:
    """Return the generalised intersection over union of boxes, from -1 to 1 (equal boxes)."""
    area = _area(edges[..., :2], edges[..., 2:])
    other_area = _area(others[..., :2], others[..., 2:])
    common = _area(
        torch.maximum(edges[..., :2], others[..., :2]),
        torch.minimum(edges[..., 2:], others[..., 2:]),
    )
    around = _area(
        torch.minimum(edges[..., :2], others[..., :2]),
        torch.maximum(edges[..., 2:], others[..., 2:]),
    )
    tiny = torch.finfo(edges.dtype).tiny
    both = area + other_area - common
    return common / both.clamp(min=tiny) - (around - both) / around.clamp(min=tiny)


def _area(low: Tensor, high: Tensor) -> Tensor:
    return (high - low).clamp(min=0).prod(dim=-1)


class MeanAveragePrecision:
    """Collects the predicted and the true boxes of each image."""

    def __init__(self) -> None:
        """Start without images."""
        self._found: list[Sequence[FoundBox]] = []
        self._wanted: list[np.ndarray] = []

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch. See `detection_loss` for the arguments."""
        edges = outputs[..., :NUM_EDGES].float()
        scores = outputs[..., NUM_EDGES:].float().sigmoid()
        self._found += [find_boxes(cells) for cells in torch.cat([edges, scores], dim=-1).numpy()]
        self._wanted += list(targets.numpy())

    def compute(self) -> float:
        """Return the mean average precision at an overlap of one half."""
        return mean_average_precision(self._found, self._wanted)


MEAN_AVERAGE_PRECISION = WholeMetric(MeanAveragePrecision)

"""Trains a smaller model on the targets and on the outputs of the whole model (distillation)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.data.splits import ArraySplit, Split
from workbench.training.source import Source

_TEMPERATURE = 2.0
_WEIGHT_DECAY = 1e-4
_WARM_UP = 0.1
_MAX_KEPT_NUMBERS = 2**24


class Teacher:
    """The outputs of the whole model. They are cached, unless samples change by augmentation."""

    def __init__(self, model: nn.Module, split: Split) -> None:
        """Hold a model.

        Args:
            model: The whole model.
            split: The training samples.
        """
        self._model = model.eval()
        self._num_samples = len(split)
        self._is_kept = isinstance(split, ArraySplit)
        self._outputs: Tensor | None = None
        self._is_known = torch.zeros(len(split), dtype=torch.bool)

    def outputs(self, indices: np.ndarray, inputs: Tensor) -> Tensor:
        """Return the outputs for samples.

        Args:
            indices: Their numbers.
            inputs: Their inputs.
        """
        places = torch.from_numpy(indices)
        if self._outputs is None or not bool(self._is_known[places].all()):
            with torch.no_grad():
                outputs = self._model(inputs)
            if not self._is_kept or outputs[0].numel() * self._num_samples > _MAX_KEPT_NUMBERS:
                return outputs
            if self._outputs is None:
                self._outputs = torch.empty(self._num_samples, *outputs.shape[1:])
            self._outputs[places] = outputs
            self._is_known[places] = True
        return self._outputs[places]


def fine_tune(
    model: nn.Module,
    teacher: Teacher,
    source: Source,
    loss: Callable[[Any, Any], Tensor],
    *,
    epochs: int,
    lr: float,
    distillation: float,
    batch: int,
    classes: bool,
    seed: int,
    report: Callable[[int, float], bool],
    quality: Callable[[], float] | None = None,
    scales: Sequence[Tensor] = (),
    slimming: float = 0.0,
    scores: Callable[[Any], Tensor] | None = None,
) -> bool:
    """Train a model with AdamW and a rate that falls to zero. The best of the later epochs is kept.

    Args:
        model: The model. It is changed.
        teacher: The outputs of the whole model, which are also learned.
        source: The training samples.
        loss: A function of (outputs, targets).
        epochs: How often all samples are seen.
        lr: The highest rate.
        distillation: The weight of the teacher's outputs, from 0 to 1. The targets have the rest.
        batch: Samples of a step.
        classes: Whether outputs are scores of classes.
        seed: Seed of the order of the samples.
        report: Receives the epoch and its mean loss, and returns whether to stop.
        quality: Returns the score of the model in evaluation mode. None keeps the last epoch.
        scales: Parameters of which as many as possible should become zero.
        scores: Moves the classes of scores to the last dimension, or None if they are there.
        slimming: The weight of the sum of their sizes in the loss.

    Returns:
        Whether it was stopped.
    """
    steps = source.num_batches(batch) * epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=_WEIGHT_DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _factor(step, steps))
    layout = _layout_of(model)
    model.to(memory_format=layout)  # pyright: ignore[reportCallIssue] (torch declares it for tensors only)
    stops = False
    best, kept = -math.inf, None
    for epoch in range(epochs):
        model.train()
        total = count = 0.0
        for indices in source.batches(global_batch=batch, epoch=epoch, seed=seed):
            inputs, targets = source.fetch(indices)
            outputs = model(
                inputs.contiguous(memory_format=layout) if inputs.dim() == 4 else inputs
            )
            value = loss(outputs, targets)
            if distillation > 0:
                wanted = teacher.outputs(indices, inputs)
                answers = outputs
                if scores is not None:
                    answers, wanted = scores(outputs), scores(wanted)
                distance = _distance(answers, wanted, classes)
                value = (1 - distillation) * value + distillation * distance
            if scales:
                value = (
                    value + slimming * torch.stack([scale.abs().sum() for scale in scales]).sum()
                )
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            optimizer.step()
            schedule.step()
            total += value.item() * len(indices)
            count += len(indices)
        if report(epoch + 1, total / count):
            stops = True
            break
        if quality is not None and epoch >= epochs // 2:
            model.eval()
            reached = quality()
            if reached >= best:  # of equal epochs, the last one
                best, kept = reached, copy.deepcopy(model.state_dict())
    if kept is not None:
        model.load_state_dict(kept)
    model.to(memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]
    model.eval()
    return stops


def _layout_of(model: nn.Module) -> torch.memory_format:
    """Return the memory format in which a model trains fastest on a CPU."""
    has_images = any(isinstance(module, nn.Conv2d) for module in model.modules())
    return torch.channels_last if has_images else torch.contiguous_format


def _factor(step: int, steps: int) -> float:
    warm_up = max(1, round(_WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def _distance(outputs: Tensor, wanted: Tensor, classes: bool) -> Tensor:
    """Return the distance from the teacher's outputs. Probabilities of classes are softened."""
    if not classes:
        return functional.mse_loss(outputs, wanted)
    outputs, wanted = outputs.flatten(0, -2) / _TEMPERATURE, wanted.flatten(0, -2) / _TEMPERATURE
    divergence = functional.kl_div(
        outputs.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    return _TEMPERATURE**2 * divergence

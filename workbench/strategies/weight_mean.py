"""A moving mean of the weights of a model, which is often better than the weights of the last step.

It is held beside the model and exchanged with its weights while these are evaluated or stored. Each worker
holds the mean of what it holds of the model, shards included.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class WeightMean:
    """The exponential moving mean of parameters and floating-point buffers.

    Attributes:
        num_steps: Steps that it covers.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Begin with the weights as they are.

        Args:
            model: The model, where it is trained.
            decay: What stays of the mean at a step; less in the first steps, as in
                `tf.train.ExponentialMovingAverage` with a number of updates.
        """
        self._model, self._decay = model, decay
        self._means = [each.clone() for each in self._held()]
        self._is_shown = False
        self.num_steps = 0

    @torch.no_grad()
    def follow(self) -> None:
        """Take in the weights after a step."""
        self.num_steps += 1
        decay = min(self._decay, (1.0 + self.num_steps) / (10.0 + self.num_steps))
        torch._foreach_lerp_(self._means, list(self._held()), 1.0 - decay)  # type: ignore[attr-defined]

    @torch.no_grad()
    def show(self, shown: bool) -> None:
        """Give the model the mean in place of its weights (True), or its weights back (False)."""
        if shown == self._is_shown:
            return
        self._is_shown = shown
        for held, mean in zip(self._held(), self._means, strict=True):
            weights = held.clone()
            held.copy_(mean)
            mean.copy_(weights)

    @torch.no_grad()
    def restart(self) -> None:
        """Begin again with the weights as they are."""
        for held, mean in zip(self._held(), self._means, strict=True):
            mean.copy_(held)

    def _held(self) -> Iterator[Tensor]:
        """Yield what this worker holds of each parameter and buffer."""
        for each in itertools.chain(self._model.parameters(), self._model.buffers()):
            if each.is_floating_point():
                yield each.to_local().detach() if isinstance(each, DTensor) else each.detach()

"""A mean of the weights of a model, which is often better than the weights of the last step.

It is held in addition to the model, and swapped with the weights when they are evaluated or stored.
Each worker holds the mean of its part of the model, including shards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from workbench.training.strategies.tensor_shards import local_part


class WeightMean(Protocol):
    """A mean of parameters and floating-point buffers.

    Attributes:
        num_steps: Steps that it has followed.
        keeps_statistics: Whether its statistics of normalisation fit its weights.
    """

    num_steps: int
    keeps_statistics: bool

    @property
    def is_begun(self) -> bool:
        """Whether there is a mean yet."""
        ...

    def follow(self) -> None:
        """Add the weights after a step to the mean."""
        ...

    def show(self, shown: bool) -> None:
        """Give the model the mean instead of its weights (True), or its weights back (False)."""
        ...

    def restart(self) -> None:
        """Start again from the current weights."""
        ...

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the mean, while the model has its own weights."""
        ...


class _Held:
    """A second set of weights, which can be swapped with the weights of the model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._means = [tensor.clone() for tensor in self._held()]
        self._is_shown = False
        self.num_steps = 0

    @property
    def is_begun(self) -> bool:
        """Whether there is a mean yet."""
        return True

    @torch.no_grad()
    def show(self, shown: bool) -> None:
        """Give the model the mean instead of its weights (True), or its weights back (False)."""
        if shown == self._is_shown or not self.is_begun:
            return
        self._is_shown = shown
        for held, mean in zip(self._held(), self._means, strict=True):
            # Swap the values, not the tensors: optimizers and wrappers refer to the parameters.
            weights = held.clone()
            held.copy_(mean)
            mean.copy_(weights)

    @torch.no_grad()
    def restart(self) -> None:
        """Start again from the current weights."""
        for held, mean in zip(self._held(), self._means, strict=True):
            mean.copy_(held)

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the mean, while the model has its own weights."""
        return self._means

    def _held(self) -> Iterator[Tensor]:
        """Yield this worker's part of each parameter and buffer."""
        for tensor in itertools.chain(self._model.parameters(), self._model.buffers()):
            if tensor.is_floating_point():
                yield local_part(tensor).detach()


class MovingMean(_Held):
    """The exponential moving mean (EMA)."""

    keeps_statistics = True

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Start with the current weights.

        Args:
            model: The model, on its device.
            decay: The part of the mean that stays at each step. It is less in the first steps, as
                in `tf.train.ExponentialMovingAverage` with `num_updates`.
        """
        super().__init__(model)
        self._decay = decay

    @torch.no_grad()
    def follow(self) -> None:
        """Add the weights after a step to the mean."""
        self.num_steps += 1
        # Without the second term, the random initial weights would dominate the mean for a long
        # time: with a decay of 0.999, for about a thousand steps.
        decay = min(self._decay, (1.0 + self.num_steps) / (10.0 + self.num_steps))
        torch._foreach_lerp_(self._means, list(self._held()), 1.0 - decay)  # type: ignore[attr-defined]


class EqualMean(_Held):
    """The equal mean of the weights at the end of each of the last epochs (SWA).

    Source: Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima and Better
    Generalization".
    """

    keeps_statistics = False

    def __init__(self, model: nn.Module, first_step: int, steps_per_epoch: int) -> None:
        """Wait for the first epoch that counts.

        Args:
            model: The model, on its device.
            first_step: The first step of that epoch.
            steps_per_epoch: After how many steps an epoch ends.
        """
        super().__init__(model)
        self._first_step, self._steps_per_epoch = first_step, steps_per_epoch

    @property
    def is_begun(self) -> bool:
        """Whether an epoch that counts has ended."""
        return self._num_taken > 0

    @property
    def _num_taken(self) -> int:
        return max(0, self.num_steps - self._first_step) // self._steps_per_epoch

    @torch.no_grad()
    def follow(self) -> None:
        """Add the weights to the mean if the step ends an epoch."""
        before = self._num_taken
        self.num_steps += 1
        if self._num_taken > before:  # mean += (weights - mean) / n is the equal mean of n
            torch._foreach_lerp_(self._means, list(self._held()), 1.0 / self._num_taken)  # type: ignore[attr-defined]

"""Losses: the mean over the predictions of a batch, as a function of (outputs, targets).

Classification outputs are (batch, classes), language-model outputs (batch, context, vocabulary), both with
integer targets; regression outputs are (batch, targets), or (batch, 1) where targets are (batch,).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def paired(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and targets of a regression in one shape and type, so that nothing broadcasts."""
    return outputs.reshape(targets.shape), targets.to(outputs.dtype)


def listed(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return (predictions, classes) scores and their class numbers, whatever dimensions came before."""
    numbers = targets if targets.is_floating_point() else targets.long()
    return outputs.flatten(0, -2), numbers.flatten()


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the targets, in nats."""
    return functional.cross_entropy(*listed(outputs, targets))


def mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared difference, in the squared unit of the targets."""
    return functional.mse_loss(*paired(outputs, targets))


def mean_absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean absolute difference, in the unit of the targets."""
    return functional.l1_loss(*paired(outputs, targets))


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean Huber loss: squared below a difference of 1, linear above."""
    return functional.huber_loss(*paired(outputs, targets))
